import { fstatSync, readFileSync, writeSync } from 'node:fs'
import { CniError, CODE } from './errors.ts'

const O_CLOEXEC = 0o2000000

/** Writes a text to stdout to its end. Throws when nobody reads it or the disk is full: console.log would not. */
export function toStdout(text: string): void {
  if (isShut()) throw new CniError(CODE.io, 'EBADF: stdout is closed')
  const bytes = new TextEncoder().encode(text)
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done)
}

// In place of a stdout that is closed Bun opens /dev/null with O_CLOEXEC, which no file that was handed down can have.
function isShut(): boolean {
  if (!fstatSync(1).isCharacterDevice()) return false
  const [, flags = '0'] = /^flags:\s*(\d+)/m.exec(readFileSync('/proc/self/fdinfo/1', 'utf8')) ?? []
  return (Number.parseInt(flags, 8) & O_CLOEXEC) !== 0
}
