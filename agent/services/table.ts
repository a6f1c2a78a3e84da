import { contains, isSix } from '../../lib/text/cidr.ts'
import { type Cidr, type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Shape } from '../kernel/elements.ts'
import {
  type ChainShape,
  CLUSTER_TOKEN,
  chainName,
  type Family,
  type L4,
  LOCAL_SLOT,
  setName,
  slotsName,
} from './compile.ts'

// The nft tables of Services. The first packet of a connection takes one lookup of its address and port, which leads to
// a chain, and one lookup of an endpoint there. All other packets take neither: the connection is translated by the
// kernel. Chains have shapes and no Services; all that is of Services is elements.

/** The table of all Services. */
export const TABLE = 'plumb_services'
/** The table of source ranges. It has interval sets, which would make every nft run on the other table read them. */
export const SOURCES = 'plumb_services_sources'

/**
 * A bit of the packet mark: postrouting gives the packet the node's address, and clears the bit. kube-proxy uses the
 * same one, and others leave such packets to it.
 */
const MASQUERADE_BIT = 0x4000
/** Where connection marks are tokens of session affinity: 0x7e and 0x7f in the first byte. */
const TOKEN_MASK = 0xfe00_0000
/** The bit that tells tokens for clients from outside. */
const LOCAL_BIT = 0x0100_0000
/** Clients with session affinity, per family. The kernel makes room for the hash table at once: 4 MB. */
const MOST_CLIENTS = 262_144
const FAMILIES: readonly Family[] = [4, 6]
const KINDS: readonly ChainShape['kind'][] = ['vip', 'port']
const PROTOCOLS: readonly L4[] = ['tcp', 'udp', 'sctp']
const WORD = { 4: 'ip', 6: 'ip6' } as const
const ADDRESS = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const

/** The chain that keeps other machines and pods from 127.0.0.0/8. It is there while NodePorts on 127.0.0.1 are. */
export const MARTIANS = 'martians'
/** With this sysctl the kernel takes packets to and from 127.0.0.0/8 that come in by any link. */
export const LOCALNET = 'ipv4/conf/all/route_localnet'

/** What the rules depend on besides Services. */
export interface TableOptions {
  /** Addresses of the node that have NodePorts. Empty: all but loopback. `primary`: those of `Addresses`. */
  readonly nodePortAddresses: readonly Cidr[] | 'primary'
  /** All clients of ClusterIPs get the node's address. */
  readonly masqueradeAll: boolean
  /** Clients of ClusterIPs with other addresses get the node's address. Empty: none. */
  readonly clusterCidrs: readonly Cidr[]
  /** The UDP port of VXLAN. No masqueraded packet gets it as its source port. */
  readonly vxlanPort?: number
}

/** Whether NodePorts are on the loopback address of a family. */
export function isOnLoopback({ nodePortAddresses }: Pick<TableOptions, 'nodePortAddresses'>, family: Family): boolean {
  const loopback = parseIp(family === 4 ? '127.0.0.1' : '::1')
  return (
    nodePortAddresses !== 'primary' &&
    nodePortAddresses.some((one) => isSix(one) === (family === 6) && contains(one, loopback))
  )
}

/** A chain: its hook if it has one, and its rules. */
export interface Chain {
  readonly hook?: string
  readonly rules: readonly string[]
}

/**
 * The sets and maps whose elements are Services, for `Elements`. Endpoints come first: an element that leads to them
 * comes after them.
 */
export const SHAPES: Readonly<Record<string, Shape>> = Object.fromEntries([
  ...FAMILIES.flatMap((family) => KINDS.flatMap((kind) => shapesOf(kind, family))),
  ...FAMILIES.flatMap((family): [string, Shape][] => [
    [`vips${family}`, { key: [ADDRESS[family]] }],
    [`hairpin${family}`, { key: [ADDRESS[family], ADDRESS[family]] }],
  ]),
])

function shapesOf(kind: ChainShape['kind'], family: Family): [string, Shape][] {
  const address = kind === 'vip' ? [ADDRESS[family]] : []
  const key = [...address, 'inet_proto', 'inet_service'] as const
  const slot = [...address, 'inet_service', 'slot'] as const
  const target = [ADDRESS[family], 'inet_service'] as const
  return [
    ...PROTOCOLS.flatMap((protocol): [string, Shape][] => [
      [slotsName('eps', kind, family, protocol), { key: slot, value: target }],
      [slotsName('tok', kind, family, protocol), { key: slot, value: ['mark'] }],
    ]),
    [setName('sel', kind, family), { key: [...key, 'mark'], value: target }],
    [setName('none', kind, family), { key }],
    [setName('svc', kind, family), { key, value: 'verdict' }],
  ]
}

/**
 * The lines that declare all sets and chains of the table, and give the chains these rules. They leave the elements of
 * sets as they are.
 */
export function declaration(chains: ReadonlyMap<string, Chain>): string[] {
  const bodyOf = ({ hook }: Chain) => (hook === undefined ? '' : `type ${hook}; policy accept; `)
  return [
    `table inet ${TABLE} {`,
    ...sets().map((line) => `  ${line}`),
    ...[...chains].map(([name, chain]) => `  chain ${name} { ${bodyOf(chain)}}`),
    '}',
    ...[...chains.keys()].map((name) => `flush chain inet ${TABLE} ${name}`),
    ...rulesOf(chains),
  ]
}

/** The lines that add new chains to the table. Chains that a failed step left are emptied first. */
export function addition(chains: ReadonlyMap<string, Chain>): string[] {
  return [
    ...[...chains.keys()].flatMap((name) => [`add chain inet ${TABLE} ${name}`, `flush chain inet ${TABLE} ${name}`]),
    ...rulesOf(chains),
  ]
}

/** A transaction that removes both tables. A missing table is no error. */
export const REMOVE = [TABLE, SOURCES]
  .flatMap((name) => [`table inet ${name}`, `delete table inet ${name}`, ''])
  .join('\n')

/** The table of source ranges: frontends, and the sources that may use them. No lines without frontends. */
export function sources(restricted: ReadonlyMap<string, readonly Cidr[]>): string[] {
  const head = [`table inet ${SOURCES}`, `delete table inet ${SOURCES}`]
  if (restricted.size === 0) return head
  const elements = (all: readonly string[]) => (all.length === 0 ? '' : ` elements = { ${all.join(', ')} };`)
  const setsOf = (family: Family) => {
    const own = [...restricted].filter(([key]) => key.split(' ', 1)[0]?.includes(':') === (family === 6))
    const frontends = elements(own.map(([key]) => key))
    const pairs = elements(own.flatMap(([key, ranges]) => ranges.map((range) => `${key} . ${range}`)))
    const type = `${ADDRESS[family]} . inet_proto . inet_service`
    return [
      `  set restricted${family} { type ${type};${frontends} }`,
      `  set allowed${family} { type ${type} . ${ADDRESS[family]}; flags interval;${pairs} }`,
    ]
  }
  const ruleOf = (family: Family) => {
    const key = keyOf('vip', family)
    // An answer may come to such an address and port, too: the node asks from any free port.
    const asked = `ct direction original ${key} @restricted${family}`
    return `    ${asked} ${key} . ${WORD[family]} saddr != @allowed${family} drop`
  }
  return [
    ...head,
    `table inet ${SOURCES} {`,
    ...FAMILIES.flatMap(setsOf),
    ...['prerouting', 'output'].flatMap((hook) => [
      `  chain ${hook} {`,
      `    type filter hook ${hook} priority -110; policy accept;`,
      ...FAMILIES.map(ruleOf),
      '  }',
    ]),
    '}',
  ]
}

/** The addresses that the rules ask for. What is absent is not known: the kernel keeps what it has. */
export interface Addresses {
  /** The pods of this node, and all pods. */
  readonly own: readonly Cidr[]
  readonly inside: readonly Cidr[]
  /** The networks of ClusterIPs. */
  readonly clusterIPs?: readonly Cidr[] | undefined
  /** The addresses with NodePorts, where `nodePortAddresses` is `primary`. */
  readonly primary?: readonly Ip[] | undefined
}

/** The sets that `addressLines` fills, without the family. */
export const ADDRESS_SETS = ['own', 'inside', 'clusterips', 'primary'] as const

/** The lines that replace these addresses. */
export function addressLines({ own, inside, clusterIPs, primary }: Addresses): string[] {
  const linesOf = (name: (typeof ADDRESS_SETS)[number], all: readonly (Cidr | Ip)[] = []) =>
    FAMILIES.flatMap((family) => {
      const those = ofFamily(family, all)
      return [
        `flush set inet ${TABLE} ${name}${family}`,
        ...(those.length > 0 ? [`add element inet ${TABLE} ${name}${family} { ${those.join(', ')} }`] : []),
      ]
    })
  return [
    ...linesOf('own', own),
    ...linesOf('inside', inside),
    ...(clusterIPs ? linesOf('clusterips', clusterIPs) : []),
    ...(primary ? linesOf('primary', primary) : []),
  ]
}

function ofFamily<T extends Cidr | Ip>(family: Family, all: readonly T[]): T[] {
  return all.filter((one) => isSix(one) === (family === 6))
}

/** The chains that every node has. */
export function baseChains(options: TableOptions): Map<string, Chain> {
  const { nodePortAddresses, masqueradeAll, clusterCidrs, vxlanPort } = options
  const masked = `meta mark set meta mark or 0x${MASQUERADE_BIT.toString(16)}`
  const masks = FAMILIES.flatMap((family) => {
    const word = WORD[family]
    if (masqueradeAll) return [`${word} daddr @vips${family} ${masked}`]
    const known = ofFamily(family, clusterCidrs)
    if (known.length === 0) return []
    return [`${word} daddr @vips${family} ${word} saddr != { ${known.join(', ')} } ${masked}`]
  })
  const nodePorts = FAMILIES.flatMap((family) => {
    // The kernel does not send what came from ::1 to another link. The agent itself listens there (loopback-ports.ts).
    const six = family === 6 ? ['ip6 daddr ::1 return'] : []
    if (nodePortAddresses === 'primary') return [`${WORD[family]} daddr != @primary${family} return`]
    if (nodePortAddresses.length === 0) return family === 4 ? ['ip daddr 127.0.0.0/8 return'] : six
    const known = ofFamily(family, nodePortAddresses)
    if (known.length === 0) return [...six, `meta nfproto ipv${family} return`]
    return [...six, `${WORD[family]} daddr != { ${known.join(', ')} } return`]
  })
  const addressed = FAMILIES.map((family) => `${keyOf('vip', family)} vmap @svc${family}`)
  const byPort = FAMILIES.map((family) => `meta nfproto ipv${family} ${keyOf('port', family)} vmap @portsvc${family}`)
  const hairpins = FAMILIES.map((family) => {
    const ends = `${WORD[family]} saddr . ${WORD[family]} daddr`
    return `ct status dnat ${ends} @hairpin${family} goto masquerading`
  })
  // A packet that the kernel cannot match to its connection keeps the pod's address. Its receiver would reset the
  // connection.
  const invalid = FAMILIES.flatMap((family) =>
    ['saddr', 'daddr'].map((end) => `ct state invalid ${WORD[family]} ${end} @inside${family} drop`),
  )
  // The mark was for the way to the endpoint. Policy has marks of its own, and looks at them after this.
  const unmarked = `ct mark and ${hex(TOKEN_MASK)} == ${hex(CLUSTER_TOKEN)} ct mark set 0x0`
  const unserved = FAMILIES.flatMap((family) => [
    `${WORD[family]} daddr @vips${family} goto refuse`,
    `${keyOf('vip', family)} @none${family} goto refuse`,
  ])
  // A ClusterIP of no Service. Without an answer, as with kube-proxy: the address may be a Service's in a moment.
  const unallocated = FAMILIES.map((family) => `ct state new ${WORD[family]} daddr @clusterips${family} drop`)
  const unservedPorts = FAMILIES.map((family) => {
    return `meta nfproto ipv${family} ${keyOf('port', family)} @portnone${family} goto refuse`
  })
  const postrouting = [`meta mark and ${hex(MASQUERADE_BIT)} != 0x0 goto masked`, ...hairpins]
  const masquerading = [...masqueradeBeside(vxlanPort), 'masquerade fully-random']
  const martians = ['daddr', 'saddr'].map((end) => `iifname != "lo" ip ${end} 127.0.0.0/8 drop`)
  // Packets of a known connection take one rule. All others here are about new ones, and about those of none.
  const known = 'ct state established,related accept'
  const filter = (hook: string, before: readonly string[], after: readonly string[]): [string, Chain] => [
    hook,
    { hook: `filter hook ${hook} priority -1`, rules: [known, ...before, 'ct state new jump first', ...after] },
  ]
  const chains: [string, Chain][] = [
    ['prerouting', { hook: 'nat hook prerouting priority -101', rules: ['jump services'] }],
    ['nat_output', { hook: 'nat hook output priority -101', rules: ['jump services'] }],
    ['services', { rules: [...masks, ...addressed, 'fib daddr type local jump nodeports'] }],
    ['nodeports', { rules: [...nodePorts, ...byPort] }],
    ['postrouting', { hook: 'nat hook postrouting priority 99', rules: postrouting }],
    ['masked', { rules: [`meta mark set meta mark and ${hex(~MASQUERADE_BIT)}`, 'goto masquerading'] }],
    ['masquerading', { rules: masquerading }],
    filter('forward', invalid, unallocated),
    filter('input', [], []),
    filter('output', [], unallocated),
    ['first', { rules: [unmarked, ...unserved, 'fib daddr type local jump unserved_ports'] }],
    ['unserved_ports', { rules: [...nodePorts, ...unservedPorts] }],
    ['refuse', { rules: ['meta l4proto tcp reject with tcp reset', 'reject with icmpx port-unreachable'] }],
  ]
  if (isOnLoopback(options, 4))
    chains.unshift([MARTIANS, { hook: 'filter hook prerouting priority -300', rules: martians }])
  return new Map(chains)
}

// Masquerade prefers a free port, and VXLAN's socket does not count as one that is taken.
function masqueradeBeside(vxlanPort: number | undefined): string[] {
  if (vxlanPort === undefined) return []
  const range = vxlanPort < 32_768 ? `${vxlanPort + 1}-65535` : `1024-${vxlanPort - 1}`
  return [`meta l4proto udp masquerade to :${range} fully-random`]
}

/** The chain of a shape, and the chain that it leads to if there is one, which comes first. */
export function shapeChains(shape: ChainShape): [string, Chain][] {
  const { local, ...rest } = shape
  const { family, cluster, isMasked } = rest
  const ip = WORD[family]
  if (local === undefined) {
    const mask = `${ip} saddr != @own${family} meta mark set meta mark or ${hex(MASQUERADE_BIT)}`
    return [[chainName(shape), { rules: [...(isMasked ? [mask] : []), ...choice(shape, cluster, false)] }]]
  }
  // Policy Local is for clients from outside. Pods and the node use all endpoints.
  const outside = local === 0 ? ['meta l4proto { tcp, udp, sctp } drop'] : choice(rest, local, true)
  if (cluster === 0) return [[chainName(shape), { rules: outside }]]
  const whole = chainName(rest)
  const inside = [`${ip} saddr @inside${family} goto ${whole}`, `fib saddr type local goto ${whole}`]
  return [...shapeChains(rest), [chainName(shape), { rules: [...inside, ...outside] }]]
}

// The rules that choose one of `count` endpoints.
function choice({ kind, family, protocol, sticky }: ChainShape, count: number, isLocal: boolean): string[] {
  const dnat = `dnat ${WORD[family]} to`
  const offset = isLocal ? ` offset ${LOCAL_SLOT}` : ''
  const slot = `${placeOf(kind, family, protocol)} . numgen random mod ${count}${offset}`
  if (sticky === undefined) return [`${dnat} ${slot} map @${slotsName('eps', kind, family, protocol)}`]
  const aff = `@${setName('aff', kind, family)}`
  const tok = `@${slotsName('tok', kind, family, protocol)}`
  const sel = `@${setName('sel', kind, family)}`
  const client = clientOf(kind, family)
  const recall = `ct mark set ${client} map ${aff}`
  const isOfSide = `ct mark and ${hex(LOCAL_BIT)} == ${isLocal ? hex(LOCAL_BIT) : '0x0'}`
  const learn = `update ${aff} { ${client} timeout ${sticky}s : ct mark }`
  const lead = `${dnat} ${keyOf(kind, family)} . ct mark map ${sel}`
  return [
    // A known client whose endpoint is still there. Each connection renews the time.
    `${recall} ${isOfSide} ${learn} ${lead}`,
    // An update keeps the value of an element that is there.
    `delete ${aff} { ${client} : ct mark }`,
    `ct mark set ${slot} map ${tok}`,
    learn,
    lead,
  ]
}

// nft 1.0.6 has no room in its registers for an IPv6 client, a frontend and a mark. Two hashes stand for them: 64 bits.
function clientOf(kind: ChainShape['kind'], family: Family): string {
  const all = `${WORD[family]} saddr . ${keyOf(kind, family)}`
  return family === 4 ? all : [1, 2].map((seed) => `jhash ${all} mod 4294967295 seed 0x${seed}`).join(' . ')
}

function keyOf(kind: ChainShape['kind'], family: Family): string {
  return `${kind === 'vip' ? `${WORD[family]} daddr . ` : ''}meta l4proto . th dport`
}

function placeOf(kind: ChainShape['kind'], family: Family, protocol: L4): string {
  return `${kind === 'vip' ? `${WORD[family]} daddr . ` : ''}${protocol} dport`
}

function sets(): string[] {
  return [
    ...FAMILIES.flatMap((family) => [
      `set own${family} { type ${ADDRESS[family]}; flags interval; auto-merge; }`,
      `set inside${family} { type ${ADDRESS[family]}; flags interval; auto-merge; }`,
      `set clusterips${family} { type ${ADDRESS[family]}; flags interval; auto-merge; }`,
      `set primary${family} { type ${ADDRESS[family]}; }`,
      `set vips${family} { type ${ADDRESS[family]}; }`,
      `set hairpin${family} { type ${ADDRESS[family]} . ${ADDRESS[family]}; }`,
      ...KINDS.flatMap((kind) => setsOfKind(kind, family)),
    ]),
  ]
}

function setsOfKind(kind: ChainShape['kind'], family: Family): string[] {
  const types = `${kind === 'vip' ? `${ADDRESS[family]} . ` : ''}inet_proto . inet_service`
  const random = 'numgen random mod 65536'
  const client = family === 4 ? `type ${ADDRESS[4]} . ${types} : mark` : `typeof ${random} . ${random} : ct mark`
  // `typeof` because the type of numgen has no name. One map per protocol, because nft 1.0.6 does not read "th dport"
  // of a typeof back.
  const slots = PROTOCOLS.flatMap((protocol) => {
    const slot = `typeof ${placeOf(kind, family, protocol)} . ${random}`
    const endpoint = `${WORD[family]} daddr . ${protocol} dport`
    return [
      `map ${slotsName('eps', kind, family, protocol)} { ${slot} : ${endpoint}; }`,
      `map ${slotsName('tok', kind, family, protocol)} { ${slot} : ct mark; }`,
    ]
  })
  return [
    `map ${setName('svc', kind, family)} { type ${types} : verdict; }`,
    `set ${setName('none', kind, family)} { type ${types}; }`,
    ...slots,
    `map ${setName('sel', kind, family)} { type ${types} . mark : ${ADDRESS[family]} . inet_service; }`,
    `map ${setName('aff', kind, family)} { ${client}; flags dynamic,timeout; size ${MOST_CLIENTS}; }`,
  ]
}

function rulesOf(chains: ReadonlyMap<string, Chain>): string[] {
  return [...chains].flatMap(([name, { rules }]) => rules.map((rule) => `add rule inet ${TABLE} ${name} ${rule}`))
}

function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`
}
