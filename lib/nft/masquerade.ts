import { heldKeys } from '../journal/elements.ts'
import { partName } from '../journal/journal.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { addition, type Element, removal } from '../state/kinds/element.ts'
import { isAlone, isSix, networkOf } from '../text/cidr.ts'
import { type Cidr, parseCidr, split } from '../text/ip.ts'
import { commentOf, type Owner, type PartName } from '../text/owner.ts'
import { brief } from '../text/values.ts'

/** The type of the journal part that `masquerade` makes. */
export const MASQUERADE = 'masquerade'

/**
 * The elements for "ipMasq" of an attachment. Packets from its addresses to other subnets get the node's address.
 * Multicast packets keep their source (lib/nft/masquerade.nft). DEL of the attachment removes the elements. An element
 * stays when another attachment needs it.
 */
export function masquerade(owner: Owner, addresses: readonly Cidr[]): Element[] {
  const part = partName(MASQUERADE, owner)
  return addresses.flatMap((address) => {
    const one: Element = {
      kind: 'element',
      ns: 'host',
      set: `masq${isSix(address) ? 6 : 4}`,
      key: split(address).ip,
      owner: commentOf(owner),
      part,
    }
    return isAlone(address) ? [one] : [one, localPair(address, owner, part)]
  })
}

/** The pair that marks the subnet of an address as local. All pods of the subnet share it. */
export function localPair(address: Cidr, { network }: Owner, part: PartName): Element {
  return pairOf(networkOf(address), brief(network), part)
}

/** Whether an element is a pair of `localPair`. The sets of pairs hold intervals, and intervals must not overlap. */
export function isPair({ set }: Element): boolean {
  return set.startsWith('local')
}

/**
 * The nft lines that add pairs to sets with other pairs. A pair is skipped when a larger subnet is already in the set.
 * A larger pair replaces the pairs that it covers.
 */
export async function amongOthers(wanted: readonly Element[], run: Run): Promise<string[]> {
  const lines: string[] = []
  for (const pair of wanted.filter(isPair)) {
    const subnet = subnetOf(pair)
    const others = (await networksIn(pair.set, run)).filter((other) => other !== subnet)
    if (others.some((other) => covers(other, subnet))) continue
    lines.push(
      ...others.filter((other) => covers(subnet, other)).map((other) => removal(pairOf(other, ''))),
      addition(pair),
    )
  }
  return lines
}

/** The nft lines that add pairs to empty sets. Of overlapping subnets only the largest is added. */
export function largest(pairs: readonly Element[]): string[] {
  const subnets = new Map(pairs.map((pair) => [subnetOf(pair), pair]))
  const isCovered = (subnet: Cidr) => [...subnets.keys()].some((other) => other !== subnet && covers(other, subnet))
  return [...subnets].filter(([subnet]) => !isCovered(subnet)).map(([, pair]) => addition(pair))
}

/**
 * The nft lines that add smaller pairs again when a larger pair goes. Only pairs that attachments still hold are added.
 */
export function uncovered(gone: readonly Element[]): string[] {
  const pairs = gone.filter(isPair)
  return [...new Set(pairs.map(({ set }) => set))].flatMap((set) => {
    const going = pairs.filter((pair) => pair.set === set).map(subnetOf)
    const held = heldKeys(set).flatMap(({ key, holders: [holder = ''] }) =>
      going.includes(subnetIn(key)) ? [] : [pairOf(subnetIn(key), holder.split(':')[1] ?? '')],
    )
    return largest(held.filter((pair) => going.some((subnet) => covers(subnet, subnetOf(pair)))))
  })
}

function pairOf(subnet: Cidr, owner: string, part?: PartName): Element {
  return {
    kind: 'element',
    ns: 'host',
    set: `local${isSix(subnet) ? 6 : 4}`,
    key: `${subnet} . ${subnet}`,
    owner,
    ...(part === undefined ? {} : { part }),
  }
}

function subnetOf({ key }: Element): Cidr {
  return subnetIn(key)
}

function subnetIn(key: string): Cidr {
  return key.split(' ', 1)[0] as Cidr
}

async function networksIn(set: string, run: Run): Promise<Cidr[]> {
  const text = await listed(['nft', 'list', 'set', 'inet', 'plumb', set], run)
  // nft prints a subnet of one address without its prefix length.
  const whole = (key: string) => parseCidr(key.includes('/') ? key : `${key}/${set.endsWith('6') ? 128 : 32}`)
  return [...text.matchAll(/([0-9a-f:./]+)(?: \. [0-9a-f:./]+)? comment "/g)].map(([, key = '']) => whole(key))
}

function covers(outer: Cidr, inner: Cidr): boolean {
  const [large, small] = [split(outer), split(inner)]
  return large.family === small.family && large.first <= small.first && large.last >= small.last
}
