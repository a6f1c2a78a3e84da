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

/** One host port and its target in the pod. */
export interface Mapping {
  readonly protocol: 'tcp' | 'udp' | 'sctp'
  readonly hostPort: number
  readonly containerPort: number
  /** An address of the node. `0.0.0.0` and `::` mean all addresses of that family. Absent: those of both families. */
  readonly hostIP?: Ip | undefined
  /** The number of consecutive ports, mapped one to one (podman's `range`). 1 unless given. */
  readonly range: number
}

/** The settings for all mappings of a network. */
export interface Treatment {
  /** When clients get the node's address. `needed`: only where the answer would not come back otherwise. */
  readonly snat: 'needed' | 'always' | 'never'
  /** The conditions for a packet, as an nft match, by family. */
  readonly conditions: { readonly 4?: string; readonly 6?: string }
}

/**
 * The resources for the mappings of an attachment: elements, claims of ports, and UDP connections (`flows`). Only the
 * first address of each family gets mappings. The resources after a claim belong to that claim. The resources before
 * the first claim can belong to other attachments, too.
 */
export function hostPorts(
  owner: Owner,
  mappings: readonly Mapping[],
  addresses: readonly Cidr[],
  { snat, conditions }: Treatment,
): Resource[] {
  const part = partName('portmap', owner)
  const used = new Map<4 | 6, Cidr>()
  const own = places(mappings).flatMap((place): Resource[] => {
    const { family, protocol, hostPort, ip } = place
    const address = addresses.find((one) => isSix(one) === (family === 6))
    if (!address) return []
    used.set(family, address)
    const pod = split(address).ip
    return [
      { kind: 'claim', ns: 'host', protocol, port: hostPort, ip: ip ?? `any${family}`, part },
      ...elements(owner, place, pod, snat, conditions[family] !== undefined),
      ...(snat !== 'never' && isAlone(address) ? [selfPair(owner, pod)] : []),
      ...(protocol === 'udp'
        ? [{ kind: 'flows', ns: 'host', family, port: hostPort, ...(ip === undefined ? {} : { ip }), pod } as const]
        : []),
    ]
  })
  const chains = [...used.keys()].flatMap((family) =>
    conditions[family] === undefined ? [] : [conditionChain(owner.network, family, conditions[family])],
  )
  const subnets = snat === 'never' ? [] : [...used.values()].filter((address) => !isAlone(address))
  return [...chains, ...subnets.map((address) => localPair(address, owner, part)), ...own]
}

/**
 * The first IPv4 and the first IPv6 address of the attachment's interface in the pod. Upstream's rule: an address
 * counts unless its result entry names another interface.
 */
export function podAddresses({ ips = [], interfaces = [] }: Result, ifname: string): Cidr[] {
  const mine = ips.filter(({ interface: index }) => {
    const link = index === undefined ? undefined : interfaces[index]
    return link === undefined || (link.sandbox && link.name === ifname)
  })
  return [false, true].flatMap((six) => mine.find(({ address }) => isSix(address) === six)?.address ?? [])
}

/** Refuses a host port that leads to two container ports. The same mapping may appear twice. Throws ValueError. */
export function refuseTwice(mappings: readonly Mapping[]): void {
  const seen = new Map<string, number>()
  for (const { family, protocol, hostPort, containerPort, ip = 'any' } of places(mappings)) {
    const key = `${protocol} ${hostPort} ${family} ${ip}`
    const other = seen.get(key)
    if (other !== undefined && other !== containerPort) {
      const fact = `host port ${hostPort}/${protocol} leads to container ports ${other} and ${containerPort}`
      throw new ValueError(`Cannot read runtimeConfig.portMappings: ${fact}: want one of them`)
    }
    seen.set(key, containerPort)
  }
}

/** Reads `protocol` of a mapping, in upper or lower case. An empty text means TCP. Throws ValueError. */
export function readProtocol(value: unknown): Mapping['protocol'] {
  const word = typeof value === 'string' ? value.toLowerCase() || 'tcp' : ''
  if (word !== 'tcp' && word !== 'udp' && word !== 'sctp')
    throw new ValueError(`${shown(value)}: want tcp, udp or sctp`)
  return word
}

/** One port of the node. Without `ip` it is open on all addresses of the family. */
export interface OpenPort extends Pick<Mapping, 'protocol' | 'hostPort' | 'containerPort'> {
  readonly family: 4 | 6
  readonly ip: Ip | undefined
}

/**
 * The places of mappings on the node, one for each port and each family. Duplicates are removed, because a mapping may
 * appear twice.
 */
export function places(mappings: readonly Mapping[]): OpenPort[] {
  const all: OpenPort[] = []
  for (const { protocol, hostPort, containerPort, hostIP, range } of mappings) {
    const families = hostIP === undefined ? ([4, 6] as const) : [isSix(hostIP) ? (6 as const) : (4 as const)]
    const ip = hostIP === '0.0.0.0' || hostIP === '::' ? undefined : hostIP
    for (let i = 0; i < (range || 1); i++)
      for (const family of families)
        all.push({ family, protocol, hostPort: hostPort + i, containerPort: containerPort + i, ip })
  }
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()]
}

function selfPair(owner: Owner, pod: Ip): Element {
  return {
    kind: 'element',
    ns: 'host',
    set: `self${isSix(pod) ? 6 : 4}`,
    key: `${pod} . ${pod}`,
    owner: commentOf(owner),
  }
}

function elements(
  of: Owner,
  { family, protocol, hostPort, containerPort, ip }: OpenPort,
  pod: Ip,
  snat: Treatment['snat'],
  isConditional: boolean,
): Element[] {
  const owner = commentOf(of)
  const element = (set: string, key: string, value?: string): Element => ({
    kind: 'element',
    ns: 'host',
    set,
    key,
    ...(value === undefined ? {} : { value }),
    owner,
  })
  const at = ip === undefined ? '' : 'at'
  const key = `${ip === undefined ? '' : `${ip} . `}${protocol} . ${hostPort}`
  const target = `${pod} . ${containerPort}`
  const all = [element(`ports${family}${at}${isConditional ? 'if' : ''}`, key, target)]
  if (isConditional) all.push(element(`conditional${family}${at}`, key, `jump ${chainName(of.network, family)}`))
  if (protocol === 'udp') {
    all.push({ ...element('given', `${hostPort}`), moment: 'made' })
    all.push({ ...element(`left${family}`, target), moment: 'removed' })
  }
  if (snat === 'always') all.push(element(`masqall${family}`, `${protocol} . ${target}`))
  else if (snat !== 'never') all.push(element(`snat${family}`, `${protocol} . ${target}`))
  return all
}
