import { existsSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { watchFolders } from './folder-watch.ts'

const POLL_MS = 1000

/** Calls `touched` when somebody may have changed or removed a file, or the folder that it is in, until the signal. Where the kernel does not tell, a removed file is noticed within a second. */
export async function watchFile(path: string, touched: () => void, signal: AbortSignal): Promise<void> {
  const dir = dirname(path)
  const poll = () => {
    if (!existsSync(path)) touched()
  }
  // Without a name it is the folder that came, or went.
  const heard = (_: string, name?: string) => {
    if (name === undefined) poll()
    else if (name === basename(path)) touched()
  }
  await watchFolders([dir], heard, poll, POLL_MS, signal)
}
