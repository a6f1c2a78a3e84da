import { isHeld } from '../../lib/journal/elements.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { PartName } from '../../lib/text/owner.ts'
import { visible } from './visibility.ts'

/**
 * Tells whether another attachment uses the same nft element. Then the element stays. `gone` lists the parts that are
 * already removed by then.
 */
export function isOthersToo(one: Resource, gone: readonly PartName[] = []): boolean {
  if (one.kind !== 'element' || one.part === undefined) return false
  const { part } = one
  return visible(() => isHeld(one, [part, ...gone])) === true
}
