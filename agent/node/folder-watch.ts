import { type FSWatcher, statSync, watch } from 'node:fs'
import { pause } from '../scheduler/pause.ts'

/** What to look at: files of a folder by their names, or all of it. */
export type Touched = (dir: string, name?: string) => void

/** Says what happens in folders, until the signal. Starts no process. A folder that is not there yet, or is made anew, is watched as soon as it is there. `poll` is called now and then for what the kernel does not tell of: another machine's writes to a shared folder, and the end of leases. */
export async function watchFolders(dirs: readonly string[], touched: Touched, poll: () => void, pollMs: number, signal: AbortSignal): Promise<void> {
  const watched = new Map<string, { readonly id: string; readonly watcher: FSWatcher }>()
  const attach = () => {
    for (const dir of dirs) {
      const id = found(dir)
      const now = watched.get(dir)
      if (now?.id === id) continue
      now?.watcher.close()
      watched.delete(dir)
      const watcher = id === undefined ? undefined : open(dir, heard)
      if (id !== undefined && watcher) watched.set(dir, { id, watcher })
      touched(dir)
    }
  }
  function heard(dir: string, name: string | undefined): void {
    // One of the folders holds the others: they may have come or gone.
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

function open(dir: string, heard: (dir: string, name: string | undefined) => void): FSWatcher | undefined {
  try {
    const watcher = watch(dir, { persistent: false }, (_, name) => heard(dir, name ?? undefined))
    watcher.on('error', () => heard(dir, undefined))
    return watcher
  } catch {
    // Gone again, or no watches left: the poll goes on.
    return undefined
  }
}

// Roots of file systems have the same inode number.
function found(dir: string): string | undefined {
  try {
    const stats = statSync(dir, { bigint: true, throwIfNoEntry: false })
    return stats && `${stats.dev}-${stats.ino}`
  } catch {
    return undefined
  }
}
