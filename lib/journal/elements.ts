import type { Element } from '../state/kinds/element.ts'
import { commentOf, type PartName } from '../text/owner.ts'
import { attachmentsWith, hasEntry, isThere, partsOf, readPart } from './journal.ts'
import { holdersOf, release, share, thingsOf } from './shared.ts'

/** Notes that the parts of these elements hold them. Several parts may hold the same element. */
export function hold(elements: readonly Element[]): void {
  for (const element of elements) if (element.part !== undefined) share(thing(element), element.part)
}

/**
 * Removes the notes of `hold`. Returns the elements that another attachment still holds, or has in its entry. The caller
 * must keep them.
 */
export function releaseElements(elements: readonly Element[]): Element[] {
  const needed = ofTwins(elements)
  return elements.filter((element) => {
    if (element.part === undefined) return needed.has(nameOf(element))
    if (release(thing(element), element.part)) return false
    const parts = partsWith(element, elements)
    return element.part !== parts.at(-1) || isHeld(element, parts)
  })
}

// Two networks may give the same address, and a pod of each may have the same container port. The elements about that
// port (`snat4`, `masqall4`, `self4`) are then elements of both. Reads each entry once, however many elements there are.
function ofTwins(elements: readonly Element[]): ReadonlySet<string> {
  const isShared = ({ part, set }: Element) => part === undefined && /^(snat|masqall|self)[46]$/.test(set)
  const ips = new Set(elements.filter(isShared).flatMap(({ key }) => POD_PORT.exec(key)?.[1] ?? []))
  const owners = new Set(elements.map(({ owner }) => owner))
  const others = [...ips].flatMap(attachmentsWith).filter((entry) => !owners.has(commentOf(entry.owner)))
  const living = others.flatMap(partsOf).filter(([part]) => isAlive(part))
  return new Set(living.flatMap(([, { own }]) => own.flatMap((one) => (one.kind === 'element' ? nameOf(one) : []))))
}

function nameOf({ set, key }: Pick<Element, 'set' | 'key'>): string {
  return `${set} ${key}`
}

// `tcp . 10.1.0.2 . 80`, or `10.1.0.2 . 10.1.0.2`
const POD_PORT = /^(?:\w+ \. )?([\da-f:.]+) \. [\da-f:.]+$/

/**
 * The parts that hold an element, among elements that are removed together. Two parts of one attachment may hold the
 * same element. It goes with the last of them, also when the disk keeps their notes.
 */
export function partsWith(element: Element, among: readonly Element[]): PartName[] {
  return among.flatMap((one) => (one.part !== undefined && thing(one) === thing(element) ? one.part : []))
}

/**
 * Whether an attachment needs the element. The parts in `but` do not count. A part does not count either when its pod
 * is gone. Exception: a pair of subnets has one holder per pod, and each of them that has an entry counts.
 */
export function isHeld(element: Element, but: readonly PartName[] = []): boolean {
  const others = holdersOf(thing(element)).filter((part) => !but.includes(part))
  return isPair(element) ? others.some(hasEntry) : others.some(isAlive)
}

function isPair({ set }: Element): boolean {
  return set.startsWith('local')
}

// A part that cannot be read counts as alive. That happens when a user who is not root runs an explanation.
function isAlive(part: PartName): boolean {
  try {
    const note = readPart(part)
    return note !== undefined && (note.netns === undefined || isThere(note))
  } catch {
    return true
  }
}

/** The elements of a set of subnets that attachments hold, each with the parts that hold it. */
export function heldKeys(set: string): { readonly key: string; readonly holders: readonly string[] }[] {
  return thingsOf('elements').flatMap((name) => {
    if (!name.startsWith(`${set} `)) return []
    return [{ key: name.slice(set.length + 1).replaceAll('_', '/'), holders: holdersOf(`elements/${name}`) }]
  })
}

/** The names of the sets that contain elements of attachments. */
export function heldSets(): string[] {
  return [...new Set(thingsOf('elements').map((name) => name.split(' ', 1)[0] as string))]
}

// Replaces the slash of a subnet, because the name is a file name.
function thing({ set, key }: Pick<Element, 'set' | 'key'>): string {
  return `elements/${set} ${key.replaceAll('/', '_')}`
}
