import { CniError, CODE } from '../text/errors.ts'
import { libc } from './door.ts'
import { fs, untilWritable } from './fs.ts'

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
  for (let done = 0; done < all.length; isBegun ||= done > 0) done += written(all, done)
}

// The pipe of a runtime may not block (O_NONBLOCK), and be full for a moment.
function written(all: Uint8Array, done: number): number {
  try {
    return fs.writeSync(1, all, done)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EAGAIN') throw cause
    untilWritable(1)
    return 0
  }
}

// When stdout is closed, both engines open /dev/null there with FD_CLOEXEC. An inherited file never has FD_CLOEXEC.
function isShut(): boolean {
  return libc().fcntl(1, F_GETFD, 0) === FD_CLOEXEC
}
