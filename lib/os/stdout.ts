import { CniError, CODE } from '../text/errors.ts'
import { fs } from './fs.ts'
import { hasLibc, libc } from './libc.ts'

const [F_GETFD, FD_CLOEXEC] = [1, 1]

/** Writes a text to stdout to its end. Throws when nobody reads it or the disk is full: console.log would not. */
export function toStdout(text: string): void {
  if (isShut()) throw new CniError(CODE.io, 'EBADF: stdout is closed')
  fs.writeAllSync(1, text)
}

// In place of a stdout that is closed Bun opens /dev/null to be closed on exec, which no file that was handed down can have.
function isShut(): boolean {
  return hasLibc() && libc().fcntl(1, F_GETFD, 0) === FD_CLOEXEC
}
