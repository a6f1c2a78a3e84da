import { heldKeys } from '../journal/elements.ts'
import { partName } from '../journal/journal.ts'
import type { Run } from '../os/run.ts'
import { addition, type Element, removal } from '../state/kinds/element.ts'
import { isAlone, isSix, networkOf } from '../text/cidr.ts'
import { type Cidr, parseCidr, split } from '../text/ip.ts'
import { commentOf, type Owner, type PartName } from '../text/owner.ts'
import { brief } from '../text/values.ts'

/** The type of the part that `masquerade` gives. */
export const MASQUERADE = 'masquerade'

/** "ipMasq" of an attachment: what its addresses send out of their subnets takes the node's address, but for multicast (lib/nft/masquerade.nft). They go with the attachment; another one may need the same element and then keeps it. */
export function masquerade(owner: Owner, addresses: readonly Cidr[]): Element[] {
  const part = partName(MASQUERADE, owner)
  return addresses.flatMap((address) => {
    const one: Element = { kind: 'element', ns: 'host', set: `masq${isSix(address) ? 6 : 4}`, key: split(address).ip, owner: commentOf(owner), part }
    return isAlone(address) ? [one] : [one, localPair(address, owner, part)]
  })
}

/** The pair that says what is local to an address's subnet. All pods of the subnet have it. */
export function localPair(address: Cidr, { network }: Owner, part: PartName): Element {
  return pairOf(networkOf(address), brief(network), part)
}

/** Whether an element is such a pair. Their sets hold intervals, which must not overlap. */
export function isPair({ set }: Element): boolean {
  return set.startsWith('local')
}

/** The nft lines that add pairs to those that are there: what a larger subnet covers is left to it, and a larger one takes the place of what it covers. */
export async function amongOthers(wanted: readonly Element[], run: Run): Promise<string[]> {
  const lines: string[] = []
  for (const pair of wanted.filter(isPair)) {
    const subnet = subnetOf(pair)
    const others = (await listed(pair.set, run)).filter((other) => other !== subnet)
    if (others.some((other) => covers(other, subnet))) continue
    lines.push(...others.filter((other) => covers(subnet, other)).map((other) => removal(pairOf(other, ''))), addition(pair))
  }
  return lines
}

/** The nft lines that add pairs to sets without any: the largest of those that overlap stands for the others. */
export function largest(pairs: readonly Element[]): string[] {
  const subnets = new Map(pairs.map((pair) => [subnetOf(pair), pair]))
  const isCovered = (subnet: Cidr) => [...subnets.keys()].some((other) => other !== subnet && covers(other, subnet))
  return [...subnets].filter(([subnet]) => !isCovered(subnet)).map(([, pair]) => addition(pair))
}

/** The nft lines that bring back what stood under pairs that go: those that attachments still have. */
export function uncovered(gone: readonly Element[]): string[] {
  const pairs = gone.filter(isPair)
  return [...new Set(pairs.map(({ set }) => set))].flatMap((set) => {
    const going = pairs.filter((pair) => pair.set === set).map(subnetOf)
    const held = heldKeys(set).flatMap(({ key, holders: [holder = ''] }) => (going.includes(subnetIn(key)) ? [] : [pairOf(subnetIn(key), holder.split(':')[1] ?? '')]))
    return largest(held.filter((pair) => going.some((subnet) => covers(subnet, subnetOf(pair)))))
  })
}

function pairOf(subnet: Cidr, owner: string, part?: PartName): Element {
  return { kind: 'element', ns: 'host', set: `local${isSix(subnet) ? 6 : 4}`, key: `${subnet} . ${subnet}`, owner, ...(part === undefined ? {} : { part }) }
}

function subnetOf({ key }: Element): Cidr {
  return subnetIn(key)
}

function subnetIn(key: string): Cidr {
  return key.split(' ', 1)[0] as Cidr
}

async function listed(set: string, run: Run): Promise<Cidr[]> {
  const { stdout } = await run(['nft', 'list', 'set', 'inet', 'plumb', set], '')
  // A subnet of one address is printed without its length.
  const whole = (key: string) => parseCidr(key.includes('/') ? key : `${key}/${set.endsWith('6') ? 128 : 32}`)
  return [...stdout.matchAll(/([0-9a-f:./]+)(?: \. [0-9a-f:./]+)? comment "/g)].map(([, key = '']) => whole(key))
}

function covers(outer: Cidr, inner: Cidr): boolean {
  const [large, small] = [split(outer), split(inner)]
  return large.family === small.family && large.first <= small.first && large.last >= small.last
}
