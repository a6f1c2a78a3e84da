import { isHeld } from '../../lib/journal/elements.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { PartName } from '../../lib/text/owner.ts'
import { visible } from './visibility.ts'

/** Whether somebody else has it, too: it stays for that. These parts are gone by then. */
export function isOthersToo(one: Resource, gone: readonly PartName[] = []): boolean {
  if (one.kind !== 'element' || one.part === undefined) return false
  const { part } = one
  return visible(() => isHeld(one, [part, ...gone])) === true
}
