import type { Result } from '../cni/result.ts'
import { partName } from '../journal/journal.ts'
import type { Element } from '../state/kinds/element.ts'
import type { Resource } from '../state/resource.ts'
import { isAlone, isSix } from '../text/cidr.ts'
import { shown, ValueError } from '../text/errors.ts'
import { type Cidr, type Ip, split } from '../text/ip.ts'
import { commentOf, type Owner } from '../text/owner.ts'
import { chainName, conditionChain } from './conditions.ts'
import { localPair } from './masquerade.ts'

/** One host port and where it leads. */
export interface Mapping {
  readonly protocol: 'tcp' | 'udp' | 'sctp'
  readonly hostPort: number
  readonly containerPort: number
  /** An address of the node; `0.0.0.0` and `::` are all of its family; absent: all of both. */
  readonly hostIP?: Ip | undefined
  /** So many ports from there on, one to one (podman's `range`); 1 unless given. */
  readonly range: number
}

/** How a network's mappings are treated. */
export interface Treatment {
  /** Whether clients are masqueraded: where the answer would not come back otherwise, always, or never. */
  readonly snat: 'needed' | 'always' | 'never'
  /** What a packet has to meet, as an nft match, by family. */
  readonly conditions: { readonly 4?: string; readonly 6?: string }
}

/** The elements, claims and memories that an attachment's mappings come down to, for its first address of each family. What follows a claim belongs to it; what comes before the first, other attachments may have, too. */
export function hostPorts(owner: Owner, mappings: readonly Mapping[], addresses: readonly Cidr[], { snat, conditions }: Treatment): Resource[] {
  const part = partName('portmap', owner)
  const used = new Map<4 | 6, Cidr>()
  const own = places(mappings).flatMap(({ family, protocol, hostPort, containerPort, ip }): Resource[] => {
    const address = addresses.find((one) => isSix(one) === (family === 6))
    if (!address) return []
    used.set(family, address)
    const pod = split(address).ip
    return [
      { kind: 'claim', ns: 'host', protocol, port: hostPort, ip: ip ?? `any${family}`, part },
      ...elements(owner, { family, protocol, hostPort, containerPort, ip }, pod, snat, conditions[family] !== undefined),
      ...(snat !== 'never' && isAlone(address) ? [selfPair(owner, pod)] : []),
      ...(protocol === 'udp' ? [{ kind: 'flows', ns: 'host', family, port: hostPort, ...(ip === undefined ? {} : { ip }), pod } as const] : []),
    ]
  })
  const chains = [...used.keys()].flatMap((family) => (conditions[family] === undefined ? [] : [conditionChain(owner.network, family, conditions[family])]))
  const subnets = snat === 'never' ? [] : [...used.values()].filter((address) => !isAlone(address))
  return [...chains, ...subnets.map((address) => localPair(address, owner, part)), ...own]
}

/** The first IPv4 and the first IPv6 address of the attachment's link in the pod (upstream's rule: those of links that are known to be others do not count). */
export function podAddresses({ ips = [], interfaces = [] }: Result, ifname: string): Cidr[] {
  const mine = ips.filter(({ interface: index }) => {
    const link = index === undefined ? undefined : interfaces[index]
    return link === undefined || (link.sandbox && link.name === ifname)
  })
  return [false, true].flatMap((six) => mine.find(({ address }) => isSix(address) === six)?.address ?? [])
}

/** Refuses one port of the node that leads to two ports of the container; the same twice over is no harm. Throws ValueError. */
export function refuseTwice(mappings: readonly Mapping[]): void {
  const seen = new Map<string, number>()
  for (const { family, protocol, hostPort, containerPort, ip = 'any' } of places(mappings)) {
    const key = `${protocol} ${hostPort} ${family} ${ip}`
    const other = seen.get(key)
    if (other !== undefined && other !== containerPort) throw new ValueError(`Cannot read runtimeConfig.portMappings: host port ${hostPort}/${protocol} leads to container ports ${other} and ${containerPort}: want one of them`)
    seen.set(key, containerPort)
  }
}

/** `protocol` of a mapping, in any case; an empty one is TCP. */
export function readProtocol(value: unknown): Mapping['protocol'] {
  const word = typeof value === 'string' ? value.toLowerCase() || 'tcp' : ''
  if (word !== 'tcp' && word !== 'udp' && word !== 'sctp') throw new ValueError(`${shown(value)}: want tcp, udp or sctp`)
  return word
}

/** One port of the node: without `ip` on all of its addresses of the family. */
export interface Place extends Pick<Mapping, 'protocol' | 'hostPort' | 'containerPort'> {
  readonly family: 4 | 6
  readonly ip: Ip | undefined
}

// A mapping may come twice.
/** Where mappings stand on the node: once for each port, and for each family that a mapping is for. */
export function places(mappings: readonly Mapping[]): Place[] {
  const all: Place[] = []
  for (const { protocol, hostPort, containerPort, hostIP, range } of mappings) {
    const families = hostIP === undefined ? ([4, 6] as const) : [isSix(hostIP) ? (6 as const) : (4 as const)]
    const ip = hostIP === '0.0.0.0' || hostIP === '::' ? undefined : hostIP
    for (let i = 0; i < (range || 1); i++) for (const family of families) all.push({ family, protocol, hostPort: hostPort + i, containerPort: containerPort + i, ip })
  }
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()]
}

function selfPair(owner: Owner, pod: Ip): Element {
  return { kind: 'element', ns: 'host', set: `self${isSix(pod) ? 6 : 4}`, key: `${pod} . ${pod}`, owner: commentOf(owner) }
}

function elements(of: Owner, { family, protocol, hostPort, containerPort, ip }: Place, pod: Ip, snat: Treatment['snat'], isConditional: boolean): Element[] {
  const owner = commentOf(of)
  const element = (set: string, key: string, value?: string): Element => ({ kind: 'element', ns: 'host', set, key, ...(value === undefined ? {} : { value }), owner })
  const at = ip === undefined ? '' : 'at'
  const key = `${ip === undefined ? '' : `${ip} . `}${protocol} . ${hostPort}`
  return [
    element(`ports${family}${at}${isConditional ? 'if' : ''}`, key, `${pod} . ${containerPort}`),
    ...(isConditional ? [element(`conditional${family}${at}`, key, `jump ${chainName(of.network, family)}`)] : []),
    ...(protocol === 'udp' ? [{ ...element('given', `${hostPort}`), moment: 'made' } as const, { ...element(`left${family}`, `${pod} . ${containerPort}`), moment: 'removed' } as const] : []),
    ...(snat === 'never' ? [] : [element(`${snat === 'always' ? 'masqall' : 'snat'}${family}`, `${protocol} . ${pod} . ${containerPort}`)]),
  ]
}
