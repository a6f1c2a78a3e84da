import { CniError, CODE } from '../text/errors.ts'
import { libc } from './door.ts'
import { fs } from './fs.ts'

const [F_GETFD, FD_CLOEXEC] = [1, 1]

/** Writes the whole text to stdout. Throws when no process reads it or the disk is full, unlike console.log. */
export function toStdout(text: string): void {
  if (isShut()) throw new CniError(CODE.io, 'EBADF: stdout is closed')
  fs.writeAllSync(1, text)
}

// When stdout is closed, both engines open /dev/null there with FD_CLOEXEC. An inherited file never has FD_CLOEXEC.
function isShut(): boolean {
  return libc().fcntl(1, F_GETFD, 0) === FD_CLOEXEC
}
