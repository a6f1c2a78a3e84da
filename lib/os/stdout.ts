import { CniError, CODE } from '../text/errors.ts'
import { fs } from './fs.ts'
import { hasLibc, libc } from './libc.ts'

const [F_GETFD, FD_CLOEXEC] = [1, 1]

/** Writes the whole text to stdout. Throws when no process reads it or the disk is full. console.log does not throw then. */
export function toStdout(text: string): void {
  if (isShut()) throw new CniError(CODE.io, 'EBADF: stdout is closed')
  fs.writeAllSync(1, text)
}

// When stdout is closed, Bun opens /dev/null there with FD_CLOEXEC. An inherited file never has FD_CLOEXEC.
function isShut(): boolean {
  return hasLibc() && libc().fcntl(1, F_GETFD, 0) === FD_CLOEXEC
}
