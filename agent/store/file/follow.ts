import { watchFolders } from '../../scheduler/folder-watch.ts'
import { makeNotification, pause } from '../../scheduler/pause.ts'
import type { Folder } from './folder.ts'
import type { Network } from './network.ts'

// Pause after a change, in milliseconds. The writes of one claim, or of many claims at once, then cause one look.
const QUIET_MS = 3
// Every twelfth poll looks at every file. This finds files that another machine wrote in place.
const WHOLE = 12

/**
 * The files to follow. `tried` returns undefined when the disk fails, and stores the reason in the state of the store.
 */
export interface Followed {
  readonly dir: string
  readonly network: Network
  readonly pollMs: number
  tried<T>(work: () => T): T | undefined
}

/**
 * Reads the files of a network again after each change, until the signal. Calls `changed` when a file has changed or a
 * lease has ended. After a failure, the next poll looks at everything.
 */
export async function follow(
  { dir, network, pollMs, tried }: Followed,
  changed: () => void,
  ended: AbortSignal,
): Promise<void> {
  const folders: Readonly<Record<string, Folder<unknown>>> = {
    [`${dir}/subnets`]: network.subnets,
    [`${dir}/nodes`]: network.nodes,
  }
  const [changes, todo] = [makeNotification(), marks()]
  let polls = 0
  const poll = () => {
    const isWhole = ++polls % WHOLE === 0
    for (const [at, folder] of Object.entries(folders))
      if (isWhole || tried(() => folder.isStale()) !== false) todo.add(at)
    changes.notify()
  }
  const touched = (at: string, name?: string) => {
    todo.add(at, name)
    changes.notify()
  }
  const watching = watchFolders([dir, ...Object.keys(folders)], touched, poll, pollMs, ended)
  let known: string | undefined
  for (await changes.notified(ended); !ended.aborted; await changes.notified(ended)) {
    await pause(QUIET_MS, ended)
    const marked = todo.take()
    const stamp = tried(() => {
      for (const [at, folder] of Object.entries(folders)) if (marked.has(at)) folder.look(marked.get(at))
      return network.stamp()
    })
    if (stamp === undefined) for (const at of Object.keys(folders)) todo.add(at)
    if (stamp === undefined || stamp === known) continue
    known = stamp
    changed()
  }
  await watching
}

/** The names to look at, for each folder. Undefined means all names. */
function marks() {
  let found = new Map<string, Set<string> | undefined>()
  return {
    add(dir: string, name?: string): void {
      const names = found.get(dir)
      if (name === undefined) found.set(dir, undefined)
      else if (names || !found.has(dir)) found.set(dir, (names ?? new Set()).add(name))
    },
    take() {
      const taken = found
      found = new Map()
      return taken
    },
  }
}
