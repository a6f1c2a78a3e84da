import { isSix, networkOf } from './cidr.ts'
import { ExecError } from './errors.ts'
import { type Cidr, parseCidr, split } from './ip.ts'
import { addition, removal } from './kinds/element.ts'
import type { Run } from './plugin.ts'
import type { Element } from './state.ts'
import { brief, type NetworkName } from './values.ts'

const NFT = ['nft', '-f', '-']
const SETS = ['masq4', 'masq6', 'local4', 'local6']

/** "ipMasq" of a network: what leaves the subnets of its addresses for elsewhere takes the node's address, but for multicast. Elements of the network, not of a pod: DEL has nothing to remove, and an ADD costs the same among any number of pods. */
export function masquerade(network: NetworkName, addresses: readonly Cidr[]): Element[] {
  return [...new Set(addresses.map(networkOf))].flatMap((subnet) => elements(subnet, brief(network)))
}

/** Removes what a network's attachments share in interval sets: GC of a network with no attachment left. */
export async function unmasquerade(network: NetworkName, run: Run): Promise<void> {
  const lines: string[] = []
  for (const set of SETS) for (const other of await held(set, run)) if (other.owner === brief(network)) lines.push(removal(element(set, other.subnet, other.owner)))
  if (lines.length === 0) return
  const { status, stderr } = await run(NFT, `${lines.join('\n')}\n`)
  if (status !== 0) throw new ExecError(NFT, lines.join('; '), stderr.split('\n', 1)[0] || `ended with status ${status}`)
}

/** The nft lines that add these elements among those of other networks, which an interval set does not let overlap: what a larger subnet covers is left to it, and a larger one takes the place of what it covers. */
export async function amongOthers(wanted: readonly Element[], run: Run): Promise<string[]> {
  const lines: string[] = []
  for (const { set, key, owner } of wanted.filter((one) => SETS.includes(one.set))) {
    const subnet = key.split(' ', 1)[0] as Cidr
    const others = (await held(set, run)).filter((other) => other.subnet !== subnet)
    if (others.some((other) => covers(other.subnet, subnet))) continue
    lines.push(...others.filter((other) => covers(subnet, other.subnet)).map((other) => removal(element(set, other.subnet, other.owner))), addition(element(set, subnet, owner)))
  }
  return lines
}

/** The pair that says what is local to an address's subnet. */
export function localPair(address: Cidr, owner: string): Element {
  return element(`local${isSix(address) ? 6 : 4}`, networkOf(address), owner)
}

function elements(subnet: Cidr, owner: string): Element[] {
  return [element(`masq${isSix(subnet) ? 6 : 4}`, subnet, owner), localPair(subnet, owner)]
}

function element(set: string, subnet: Cidr, owner: string): Element {
  return { kind: 'element', ns: 'host', set, key: set.startsWith('local') ? `${subnet} . ${subnet}` : subnet, owner }
}

async function held(set: string, run: Run): Promise<{ subnet: Cidr; owner: string }[]> {
  const { stdout } = await run(['nft', 'list', 'set', 'inet', 'plumb', set], '')
  // A subnet of one address is printed without its length.
  const whole = (key: string) => parseCidr(key.includes('/') ? key : `${key}/${set.endsWith('6') ? 128 : 32}`)
  return [...stdout.matchAll(/([0-9a-f:./]+)(?: \. [0-9a-f:./]+)? comment "([^"]*)"/g)].map(([, key = '', owner = '']) => ({ subnet: whole(key), owner }))
}

function covers(outer: Cidr, inner: Cidr): boolean {
  const [large, small] = [split(outer), split(inner)]
  return large.family === small.family && large.first <= small.first && large.last >= small.last
}
