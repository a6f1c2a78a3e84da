import { existsSync, type FSWatcher, statSync, watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import { pause } from './pause.ts'

/** Called with a folder, and with the name of a file in it. Without a name anything in the folder may have changed. */
export type Touched = (dir: string, name?: string) => void

/**
 * Reports changes in folders, until the signal. Starts no process. A folder that is missing or replaced is watched as
 * soon as it exists. `poll` is called every `pollMs` for changes without an event: writes of another machine to a
 * shared folder, and the end of leases.
 */
export async function watchFolders(
  dirs: readonly string[],
  touched: Touched,
  poll: () => void,
  pollMs: number,
  signal: AbortSignal,
): Promise<void> {
  const watched = new Map<string, { readonly id: string; readonly watcher: FSWatcher }>()
  const attach = () => {
    for (const dir of dirs) {
      const id = found(dir)
      const now = watched.get(dir)
      if (now?.id === id) continue
      now?.watcher.close()
      watched.delete(dir)
      const watcher = id === undefined ? undefined : open(dir, changed)
      if (id !== undefined && watcher) watched.set(dir, { id, watcher })
      touched(dir)
    }
  }
  function changed(dir: string, name: string | undefined): void {
    // A watched folder may contain other watched folders. Those may have appeared or gone.
    attach()
    touched(dir, name)
  }
  attach()
  while (!signal.aborted) {
    await pause(pollMs, signal)
    attach()
    poll()
  }
  for (const { watcher } of watched.values()) watcher.close()
}

function open(dir: string, changed: (dir: string, name: string | undefined) => void): FSWatcher | undefined {
  try {
    const watcher = watch(dir, { persistent: false }, (_, name) => changed(dir, name ?? undefined))
    watcher.on('error', () => changed(dir, undefined))
    return watcher
  } catch {
    // The folder is gone again, or no inotify watches are left. The poll goes on.
    return undefined
  }
}

// The key has the device, because the roots of all file systems have the same inode number.
function found(dir: string): string | undefined {
  try {
    const stats = statSync(dir, { bigint: true, throwIfNoEntry: false })
    return stats && `${stats.dev}-${stats.ino}`
  } catch {
    return undefined
  }
}

const POLL_MS = 1000

/**
 * Calls `touched` when a file or its folder may have changed or gone, until the signal. Without events from the kernel,
 * a removed file is noticed within a second.
 */
export async function watchFile(path: string, touched: () => void, signal: AbortSignal): Promise<void> {
  const dir = dirname(path)
  const poll = () => {
    if (!existsSync(path)) touched()
  }
  // Without a name the event is about the folder: it appeared, or it is gone.
  const changed = (_: string, name?: string) => {
    if (name === undefined) poll()
    else if (name === basename(path)) touched()
  }
  await watchFolders([dir], changed, poll, POLL_MS, signal)
}
