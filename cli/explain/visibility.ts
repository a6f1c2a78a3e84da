import { isPluginProgram } from '../../agent/node/plugin-program.ts'

/** Tells whether a program is the plugins' of this version. False when this user may not read the file. */
export function isOurs(file: string): boolean {
  return visible(() => isPluginProgram(file)) === true
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
