import { watchFolders } from '../../node/folder-watch.ts'
import { bell, pause } from '../../scheduler/pause.ts'
import type { Folder } from './folder.ts'
import type { Network } from './network.ts'

// So that the writes of one claim, or of many at once, are one look.
const QUIET_MS = 3
// So often a poll looks at every file: at those that were written in place by another machine.
const WHOLE = 12

/** What is followed. `tried` gives undefined when the disk fails, and tells the store's state why. */
export interface Followed {
  readonly dir: string
  readonly network: Network
  readonly pollMs: number
  tried<T>(work: () => T): T | undefined
}

/** Keeps a network's files read until the signal, and calls `changed` whenever one is another, or a lease has ended. After a failure everything is looked at with the next poll. */
export async function follow({ dir, network, pollMs, tried }: Followed, changed: () => void, ended: AbortSignal): Promise<void> {
  const folders: Readonly<Record<string, Folder<unknown>>> = { [`${dir}/subnets`]: network.subnets, [`${dir}/nodes`]: network.nodes }
  const [news, todo] = [bell(), marks()]
  let polls = 0
  const poll = () => {
    const isWhole = ++polls % WHOLE === 0
    for (const [at, folder] of Object.entries(folders)) if (isWhole || tried(() => folder.isStale()) !== false) todo.add(at)
    news.ring()
  }
  const touched = (at: string, name?: string) => {
    todo.add(at, name)
    news.ring()
  }
  const watching = watchFolders([dir, ...Object.keys(folders)], touched, poll, pollMs, ended)
  let known: string | undefined
  for (await news.heard(ended); !ended.aborted; await news.heard(ended)) {
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

/** Per folder the names to look at; undefined for all. */
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
