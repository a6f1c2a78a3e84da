import { isPluginProgram } from '../../agent/node/plugin-program.ts'
import { isHeld } from '../../lib/journal/elements.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { PartName } from '../../lib/text/owner.ts'

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

/**
 * Tells whether another attachment uses the same nft element. Then the element stays. `gone` lists the parts that are
 * already removed by then.
 */
export function isOthersToo(one: Resource, gone: readonly PartName[] = []): boolean {
  if (one.kind !== 'element' || one.part === undefined) return false
  const { part } = one
  return visible(() => isHeld(one, [part, ...gone])) === true
}
