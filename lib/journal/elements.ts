import type { Element } from '../state/kinds/element.ts'
import type { PartName } from '../text/owner.ts'
import { isThere, readPart } from './journal.ts'
import { holdersOf, release, share, thingsOf } from './shared.ts'

/** Notes that their parts have these elements, which others may have, too. */
export function hold(elements: readonly Element[]): void {
  for (const element of elements) if (element.part !== undefined) share(thing(element), element.part)
}

/** Takes those notes away, and gives the elements that somebody else still has: they must stay. */
export function letGo(elements: readonly Element[]): Element[] {
  return elements.filter((element) => element.part !== undefined && !release(thing(element), element.part) && (isPair(element) || isHeld(element)))
}

/** Whether an attachment needs the element; these parts do not count. Nor do those whose pod is gone, but for a pair of subnets: that has as many holders as there are pods. */
export function isHeld(element: Element, but: readonly PartName[] = []): boolean {
  const others = holdersOf(thing(element)).filter((part) => !but.includes(part))
  return isPair(element) ? others.length > 0 : others.some(isAlive)
}

function isPair({ set }: Element): boolean {
  return set.startsWith('local')
}

// What cannot be read, as by an explanation for somebody who is not root, is taken for alive.
function isAlive(part: PartName): boolean {
  try {
    const note = readPart(part)
    return note !== undefined && (note.netns === undefined || isThere(note))
  } catch {
    return true
  }
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
