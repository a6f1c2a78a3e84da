import { statSync } from 'node:fs'
import { isSame } from '../../agent/node/executables.ts'

const known = new Map<string, boolean>()

/**
 * Tells whether a program is plumb of this version: the running file, or a file with the same bytes. False when this user may not read the
 * file.
 */
export function isOurs(file: string): boolean {
  const { dev, ino } = statSync(file)
  // The plugins are hard links to one file. So one comparison serves all of them.
  const key = `${dev} ${ino}`
  const is = known.get(key) ?? visible(() => isSame(file, '/proc/self/exe')) === true
  known.set(key, is)
  return is
}

/** Returns what `look` returns. Returns undefined when this user may not look at the file (EACCES, EPERM). */
export function visible<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch (cause) {
    if (/^E(ACCES|PERM)$/.test((cause as NodeJS.ErrnoException).code ?? '')) return undefined
    throw cause
  }
}
