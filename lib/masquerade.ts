import { isSix, networkOf } from './cidr.ts'
import { type Cidr, parseCidr, split } from './ip.ts'
import { addition, removal } from './kinds/element.ts'
import type { Run } from './plugin.ts'
import type { Element } from './state.ts'
import { brief, type NetworkName } from './values.ts'

/** "ipMasq" of a network: what leaves the subnets of its addresses for elsewhere takes the node's address, but for multicast. Elements of the network, not of a pod: DEL has nothing to remove, and an ADD costs the same among any number of pods. */
export function masquerade(network: NetworkName, addresses: readonly Cidr[]): Element[] {
  return [...new Set(addresses.map(networkOf))].flatMap((subnet) => elements(subnet, brief(network)))
}

/** Removes a network's masquerading, whatever its subnets were: GC of a network with no attachment left. */
export async function unmasquerade(network: NetworkName, run: Run): Promise<void> {
  const held = (await subnets(run)).filter(({ owner }) => owner === brief(network))
  if (held.length > 0) await run(['nft', '-f', '-'], script(held.flatMap(({ subnet, owner }) => elements(subnet, owner)).map(removal)))
}

/** The nft lines that masquerade these elements' subnets among those of other networks, which an interval set does not let overlap: what a larger subnet covers is left to it, and a larger one takes the place of what it covers. */
export async function amongOthers(wanted: readonly Element[], run: Run): Promise<string[]> {
  const held = await subnets(run)
  const lines: string[] = []
  for (const { key, owner } of wanted.filter(({ set }) => set.startsWith('masq'))) {
    const subnet = key as Cidr
    if (held.some((other) => other.subnet !== subnet && covers(other.subnet, subnet))) continue
    const inner = held.filter((other) => other.subnet !== subnet && covers(subnet, other.subnet))
    lines.push(...inner.flatMap((other) => elements(other.subnet, other.owner).map(removal)), ...elements(subnet, owner).map(addition))
  }
  return lines
}

function elements(subnet: Cidr, owner: string): Element[] {
  const family = isSix(subnet) ? 6 : 4
  const element = (set: string, key: string): Element => ({ kind: 'element', ns: 'host', set: `${set}${family}`, key, owner })
  return [element('masq', subnet), element('local', `${subnet} . ${subnet}`)]
}

async function subnets(run: Run): Promise<{ subnet: Cidr; owner: string }[]> {
  const found: { subnet: Cidr; owner: string }[] = []
  for (const set of ['masq4', 'masq6']) {
    const { stdout } = await run(['nft', 'list', 'set', 'inet', 'plumb', set], '')
    // A subnet of one address is printed without its length.
    for (const [, key = '', owner = ''] of stdout.matchAll(/([0-9a-f:./]+) comment "([^"]*)"/g)) found.push({ subnet: parseCidr(key.includes('/') ? key : `${key}/${set === 'masq4' ? 32 : 128}`), owner })
  }
  return found
}

function covers(outer: Cidr, inner: Cidr): boolean {
  const [large, small] = [split(outer), split(inner)]
  return large.family === small.family && large.first <= small.first && large.last >= small.last
}

function script(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`
}
