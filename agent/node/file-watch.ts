import { existsSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { watchFolders } from '../scheduler/folder-watch.ts'

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
