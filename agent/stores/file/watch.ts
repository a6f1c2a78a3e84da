import { type FSWatcher, watch } from 'node:fs'
import { type Bell, pause } from '../pause.ts'
import { status } from './folder.ts'

/** Rings whenever something happens in one of the folders, until the signal, and every `pollMs` for what the kernel does not tell of: another machine's writes to a shared folder, or the end of a lease. Starts no process. A folder that is not there yet, or is removed, is watched as soon as it is there (again). */
export async function watchFolders(dirs: readonly string[], pollMs: number, news: Bell, signal: AbortSignal): Promise<void> {
  const watched = new Map<string, { readonly ino: bigint; readonly watcher: FSWatcher }>()
  const attach = () => {
    for (const dir of dirs) {
      const ino = found(dir)
      const now = watched.get(dir)
      if (now?.ino === ino) continue
      now?.watcher.close()
      watched.delete(dir)
      const watcher = ino === undefined ? undefined : open(dir, heard)
      if (ino !== undefined && watcher) watched.set(dir, { ino, watcher })
    }
  }
  function heard(): void {
    // The first folder holds the others: they may have come or gone.
    attach()
    news.ring()
  }
  while (!signal.aborted) {
    attach()
    news.ring()
    await pause(pollMs, signal)
  }
  for (const { watcher } of watched.values()) watcher.close()
}

function open(dir: string, heard: () => void): FSWatcher | undefined {
  try {
    const watcher = watch(dir, { persistent: false }, heard)
    watcher.on('error', heard)
    return watcher
  } catch {
    // Gone again, or no watches left: the poll goes on.
    return undefined
  }
}

function found(dir: string): bigint | undefined {
  try {
    return status(dir)?.ino
  } catch {
    return undefined
  }
}
