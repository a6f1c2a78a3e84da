import type { Element, PartName } from '../state.ts'
import { holdersOf, release, share, thingsOf } from './shared.ts'

/** Notes that their parts have these elements, which others may have, too. */
export function hold(elements: readonly Element[]): void {
  for (const element of elements) if (element.part !== undefined) share(thing(element), element.part)
}

/** Takes those notes away, and gives the elements that somebody else still has: they must stay. */
export function letGo(elements: readonly Element[]): Element[] {
  return elements.filter((element) => element.part !== undefined && !release(thing(element), element.part))
}

/** Whether an attachment has the element; these parts do not count. */
export function isHeld(element: Element, but: readonly PartName[] = []): boolean {
  return holdersOf(thing(element)).some((part) => !but.includes(part))
}

/** The elements of a set of subnets that attachments have, with the parts that have them. */
export function heldKeys(set: string): { readonly key: string; readonly holders: readonly string[] }[] {
  return thingsOf('elements').flatMap((name) => (name.startsWith(`${set} `) ? [{ key: name.slice(set.length + 1).replaceAll('_', '/'), holders: holdersOf(`elements/${name}`) }] : []))
}

/** The sets that attachments have elements in. */
export function heldSets(): string[] {
  return [...new Set(thingsOf('elements').map((name) => name.split(' ', 1)[0] as string))]
}

// A subnet has a slash.
function thing({ set, key }: Pick<Element, 'set' | 'key'>): string {
  return `elements/${set} ${key.replaceAll('/', '_')}`
}
