import { statSync } from 'node:fs'
import { isSame } from '../../agent/node/executables.ts'

const known = new Map<string, boolean>()

/** Whether a program is plumb's, of this version: this file, or one of the same bytes. False when this user must not read it. */
export function isOurs(file: string): boolean {
  const { dev, ino } = statSync(file)
  // All plugins are one file.
  const key = `${dev} ${ino}`
  const is = known.get(key) ?? visible(() => isSame(file, '/proc/self/exe')) === true
  known.set(key, is)
  return is
}

/** What a look at a file gives; undefined when this user must not take it. */
export function visible<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch (cause) {
    if (/^E(ACCES|PERM)$/.test((cause as NodeJS.ErrnoException).code ?? '')) return undefined
    throw cause
  }
}
