import { CniError, CODE } from '../text/errors.ts'
import { libc } from './door.ts'
import { fs } from './fs.ts'

const [F_GETFD, FD_CLOEXEC] = [1, 1]

let isBegun = false

/**
 * Writes the whole text to stdout. Throws when no process reads it or the disk is full, unlike console.log. Throws also
 * when stdout has a part of an earlier text: a runtime reads one JSON document.
 */
export function toStdout(text: string): void {
  if (isShut()) throw new CniError(CODE.io, 'EBADF: stdout is closed')
  if (isBegun) throw new CniError(CODE.io, 'stdout has a part of another answer already')
  const all = new TextEncoder().encode(text)
  for (let done = 0; done < all.length; isBegun = true) done += fs.writeSync(1, all, done)
}

// When stdout is closed, both engines open /dev/null there with FD_CLOEXEC. An inherited file never has FD_CLOEXEC.
function isShut(): boolean {
  return libc().fcntl(1, F_GETFD, 0) === FD_CLOEXEC
}
