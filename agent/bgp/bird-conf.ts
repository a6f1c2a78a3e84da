import { hostCidr, isSix } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { bitsOf, type Cidr, format, type Ip, split } from '../../lib/text/ip.ts'
import type { Labels } from '../cluster/reading.ts'
import type { Both, Lease } from '../lease/lease.ts'
import { type Accepted, type BgpConfiguration, isNeighbour, type OuterPeer } from './configuration.ts'
import { type Selection, select, type Who } from './selection.ts'

// What BIRD is told (BIRD 2, https://bird.network.cz). The agent programs the routes to nodes itself, with its own
// protocol number. BIRD gives the kernel only what outer peers announce, as `proto bird`. With `programs: bird` it also
// gives the kernel the routes to nodes.

/** All that BIRD's configuration depends on. */
export interface Situation {
  readonly conf: BgpConfiguration
  readonly node: string
  /** The subnets of this node, its own addresses towards the others, and those that the others see. */
  readonly subnets: Both<Cidr>
  readonly ips: Both<Ip>
  readonly seenAs: Both<Ip>
  /** The leases of the other nodes. */
  readonly others: readonly Lease[]
  /** The networks of the pods. Nobody outside may announce a part of them. */
  readonly networks: readonly Cidr[]
  /** Whether an address is reached without a router. */
  isOnLink(ip: Ip): boolean
  /** The labels of a node. Undefined when they are not known. */
  labelsOf(node: string): Labels | undefined
  /** How packets get to other nodes, where BIRD writes the routes to them. */
  readonly ways?: Ways
  /** The addresses of Services that this node announces. */
  readonly addresses: readonly Ip[]
  /** The passwords by the path of their file. */
  readonly passwords: ReadonlyMap<string, string>
  /** Where BIRD writes its log. */
  readonly logFile: string
}

/** How packets get to a node that is the next hop of a route. */
export interface Ways {
  /** The networks that the node reaches without a router. */
  readonly onLink: readonly Cidr[]
  /** The device of the tunnel. Without it, next hops behind a router are refused. */
  readonly device?: string
  /** The tunnel also takes packets to nodes on the link. */
  readonly isAlways?: boolean
}

/** A session that BIRD has. */
export interface Session {
  /** BIRD's name of it. It depends on the address alone, so that a change of the list resets no other session. */
  readonly protocol: string
  readonly kind: 'node' | 'peer'
  /** The node's name, or the name of the peer in the configuration, else its address. */
  readonly name: string
  readonly address: Ip
  readonly asn: number
}

/** The text of bird.conf, with its sessions. */
export interface BirdConf {
  readonly text: string
  readonly sessions: readonly Session[]
  /** How many prefixes the node announces. */
  readonly announced: number
  /** What the selectors of the configuration select that cannot be right. */
  readonly problems: readonly string[]
}

/** BIRD's log rotates at this size, in bytes. */
const LOG_BYTES = 1_000_000
const FAMILIES = ['v4', 'v6'] as const
type Family = (typeof FAMILIES)[number]
/** How long the other nodes keep a node's routes while its BIRD is away, in seconds. */
const RESTART_SECONDS = 120
const HOLD_SECONDS = 90
/** After this time, a BIRD that started again no longer waits for peers that are away, in seconds. */
const RECOVERY_SECONDS = 30

/** Makes the text of bird.conf. Pure. Throws ValueError for a password or a path that BIRD cannot read. */
export function birdConf(situation: Situation): BirdConf {
  const { conf, node, ips, others, labelsOf, logFile } = situation
  const selection = select(conf, { self: { node, ips }, others, labelsOf })
  const { peers, problems } = selection
  const nodes = FAMILIES.flatMap((family) => nodeSessions(situation, selection, family))
  const announced = FAMILIES.map((family) => announcedOf(situation, family))
  const statics = FAMILIES.flatMap((family, i) => staticRoutes(family, announced[i] ?? []))
  const lines = [
    '# The plumb agent writes this file. It depends on --bgp-config and on the leases of the nodes.',
    `log ${quoted(logFile)} ${LOG_BYTES} ${quoted(`${logFile}.1`)} { info, remote, warning, error, auth, fatal, bug };`,
    `router id ${routerId(ips, node)};`,
    'timeformat protocol iso long;',
    `graceful restart wait ${recoverySeconds(peers)};`,
    'protocol device { scan time 10; }',
    ...(peers.some(({ bfd }) => bfd) ? BFD : []),
    ...statics,
    ...FAMILIES.flatMap((family) => kernelRoutes(situation, family, peers)),
    ...nodes.flatMap(({ lines }) => lines),
    ...peers.flatMap((peer) => peerLines(peer, situation)),
  ]
  return {
    text: `${lines.join('\n')}\n`,
    sessions: [...nodes.map(({ session }) => session), ...peers.map((peer) => sessionOf(peer))],
    announced: announced.flat().length,
    problems,
  }
}

// A BIRD that waits for one peer announces nothing to the others meanwhile. They forget its routes after their time.
function recoverySeconds(peers: readonly OuterPeer[]): number {
  const times = peers.flatMap(({ gracefulRestart }) => (gracefulRestart > 0 ? [Math.ceil(gracefulRestart / 2)] : []))
  return Math.min(RECOVERY_SECONDS, ...times)
}

// BIRD has no times for BFD that follow those of the peer. These find a cut within a second.
const BFD = [
  'protocol bfd bfd_all {',
  '  interface "*" { interval 300 ms; multiplier 3; };',
  '  multihop { interval 300 ms; multiplier 3; };',
  '}',
]

function announcedOf({ conf, subnets, addresses }: Situation, family: Family): Cidr[] {
  const subnet = conf.announce.nodeSubnet ? subnets[family] : undefined
  const own = addresses.filter((ip) => isOf(ip, family)).map(hostCidr)
  return [...(subnet === undefined ? [] : [subnet]), ...own.sort()]
}

// The routes exist in BIRD alone, to be announced.
function staticRoutes(family: Family, prefixes: readonly Cidr[]): string[] {
  if (prefixes.length === 0) return []
  const routes = prefixes.map((prefix) => `  route ${prefix} blackhole;`)
  return [`protocol static own_${family} {`, `  ${channel(family)};`, ...routes, '}']
}

// Without a peer that may announce something, the kernel's routes are none of BIRD's business. The routes of others are
// learned only for peers behind a router, whose next hops BIRD resolves by them. None of them is announced.
function kernelRoutes({ subnets, ways }: Situation, family: Family, all: readonly OuterPeer[]): string[] {
  const peers = all.filter((peer) => isOf(peer.address, family) && peer.import.length > 0)
  const hasNodes = ways !== undefined && subnets[family] !== undefined
  if (peers.length === 0 && !hasNodes) return []
  const outer = `proto ~ "peer_${family}_*"`
  const from = hasNodes ? `(${outer} || proto ~ "node_${family}_*")` : outer
  const learns = peers.some(({ multihop }) => multihop !== undefined)
  return [
    `protocol kernel kernel_${family} {`,
    `  ${channel(family)} {`,
    `    import ${learns ? 'all' : 'none'};`,
    `    export filter { if ${from} && dest != RTD_UNREACHABLE then accept; reject; };`,
    '  };',
    '  merge paths on;',
    ...(learns ? ['  learn;'] : []),
    // What another program has removed comes back with the next scan.
    `  scan time ${hasNodes ? 2 : 10};`,
    '}',
  ]
}

interface NodeSession {
  readonly session: Session
  readonly lines: readonly string[]
}

function nodeSessions(situation: Situation, selection: Selection, family: Family): NodeSession[] {
  const { conf, node, ips, others } = situation
  const own = ips[family]
  const seen = situation.seenAs[family] ?? own
  if (own === undefined || seen === undefined || !isNeighbour(own)) return []
  const { mesh, routeReflectors: reflectors } = conf
  const { isReflector: reflects } = selection
  const isReflector = reflects({ node, ips })
  // A node with an old and a new lease has one session.
  const found = new Map<Ip, { who: Who; subnets: Cidr[] }>()
  for (const who of others) {
    const [ip, subnet] = [who.ips[family], who.subnets[family]]
    if (ip === undefined || subnet === undefined || subnet === situation.subnets[family]) continue
    // BIRD refuses a whole configuration with a link-local neighbour. A peer of the file may be a node.
    if (ip === own || ip === seen || !isNeighbour(ip) || selection.peers.some(({ address }) => address === ip)) continue
    const known = found.get(ip)
    if (known) known.subnets.push(subnet)
    else found.set(ip, { who, subnets: [subnet] })
  }
  const everywhere = [...found.values()].flatMap(({ subnets }) => subnets)
  return [...found]
    .filter(([, { who }]) => (reflectors ? isReflector || reflects(who) : mesh))
    .sort(([a], [b]) => (isLower(a, b) ? -1 : 1))
    .map(([address, { who, subnets }]) => {
      const session: Session = {
        protocol: `node_${family}_${symbol(address)}`,
        kind: 'node',
        name: who.node ?? address,
        address,
        asn: conf.asn,
      }
      const allowed = reflects(who) ? everywhere : subnets
      const passes = isReflector ? ` || proto ~ "node_${family}_*"` : ''
      return {
        session,
        lines: [
          `protocol bgp ${session.protocol} {`,
          // A node with a second address for the others: BIRD takes the one of the neighbour's network.
          `  local ${own !== seen && situation.isOnLink(address) ? '' : `${own} `}as ${conf.asn};`,
          `  neighbor ${address} as ${conf.asn};`,
          // A next hop that is not looked up cannot lead through another router's default route.
          situation.isOnLink(address) ? '  direct;' : '  multihop;',
          // One side alone connects, so that two connections never meet. Both sides compare the addresses of the leases.
          ...(isLower(seen, address) ? [] : ['  passive on;']),
          ...TIMES,
          `  hold time ${HOLD_SECONDS};`,
          '  graceful restart on;',
          `  graceful restart time ${RESTART_SECONDS};`,
          ...(isReflector && !reflects(who) ? ['  rr client;'] : []),
          ...(isReflector ? [`  rr cluster id ${reflectors?.clusterId};`] : []),
          `  ${channel(family)} {`,
          ...nodeImport(`net ~ [ ${[...allowed].sort().join(', ')} ]`, situation, family),
          `    export filter { if ${ownSubnet(situation, family)}${passes} then accept; reject; };`,
          '  };',
          '}',
        ],
      }
    })
}

function nodeImport(isAllowed: string, { ways }: Situation, family: Family): string[] {
  if (!ways) return [`    import filter { if ${isAllowed} then accept; reject; };`]
  return ['    import filter {', `      if !(${isAllowed}) then reject;`, ...wayLines(ways, family), '    };']
}

// A next hop that is not looked up cannot lead through another router's default route. BIRD wants these assignments in
// this order: with another one it takes another device, or the kernel refuses the route.
function wayLines({ onLink, device, isAlways }: Ways, family: Family): string[] {
  const near = onLink.filter((one) => isOf(one, family))
  const isNear = near.map((one) => `bgp_next_hop ~ ${one}`).join(' || ')
  const direct = `      if ${isNear} then { gw = bgp_next_hop; accept; }`
  const tunnel = `      onlink = true; ifname = "${device}"; gw = bgp_next_hop;`
  return [
    ...(near.length === 0 || isAlways ? [] : [direct]),
    ...(device === undefined ? ['      reject;'] : [tunnel, '      accept;']),
  ]
}

// The addresses of Services are for the outside: each node serves them itself.
function ownSubnet({ conf, subnets }: Situation, family: Family): string {
  const subnet = subnets[family]
  return conf.announce.nodeSubnet && subnet !== undefined ? `(source = RTS_STATIC && net = ${subnet})` : 'false'
}

// BIRD waits for five seconds before it connects, and for a minute after an error.
const TIMES = ['  connect delay time 1;', '  connect retry time 5;', '  error wait time 1, 30;']

function sessionOf({ name, address, asn }: OuterPeer): Session {
  const family = isSix(address) ? 'v6' : 'v4'
  return { protocol: `peer_${family}_${symbol(address)}`, kind: 'peer', name: name ?? address, address, asn }
}

function peerLines(peer: OuterPeer, situation: Situation): string[] {
  const { conf, ips, passwords } = situation
  const { address, asn, localAsn = conf.asn, port, passwordFile, multihop, ttlSecurity, bfd } = peer
  const family = isSix(address) ? 'v6' : 'v4'
  // On the link, the address depends on the peer. BFD over routers needs one.
  const source = peer.source ?? (multihop === undefined ? undefined : ips[family])
  const password = passwordFile === undefined ? undefined : passwords.get(passwordFile)
  return [
    `protocol bgp ${sessionOf(peer).protocol} {`,
    `  local ${source === undefined ? '' : `${source} `}as ${localAsn};`,
    `  neighbor ${address} port ${port} as ${asn};`,
    multihop === undefined ? '  direct;' : `  multihop ${multihop};`,
    ...(ttlSecurity ? ['  ttl security on;'] : []),
    ...(password === undefined ? [] : [`  password ${quoted(password)};`]),
    ...TIMES,
    `  hold time ${peer.holdTime};`,
    ...(bfd ? ['  bfd on;'] : ['  graceful restart on;', `  graceful restart time ${peer.gracefulRestart};`]),
    `  ${channel(family)} {`,
    ...importLines(peer, situation, family),
    '    export filter {',
    '      if source != RTS_STATIC then reject;',
    ...peer.communities.map((text) => `      ${addition(text)};`),
    ...Array.from({ length: peer.prepend }, () => `      bgp_path.prepend(${localAsn});`),
    '      accept;',
    '    };',
    '  };',
    '}',
  ]
}

function importLines(peer: OuterPeer, { subnets, networks, ways }: Situation, family: Family): string[] {
  const { import: all, importLimit } = peer
  const [within, own] = [networks.filter((network) => isOf(network, family)), subnets[family]]
  const takesSubnets = peer.subnets && ways !== undefined && own !== undefined && within.length > 0
  if (all.length === 0 && !takesSubnets) return ['    import none;']
  return [
    '    import filter {',
    ...(takesSubnets ? subnetLines(within, own, ways, family) : []),
    ...(within.length > 0 ? [`      if net ~ [ ${within.map((one) => `${one}+`).join(', ')} ] then reject;`] : []),
    ...(all.length > 0 ? [`      if net ~ [ ${all.map(pattern).join(', ')} ] then accept;`] : []),
    '      reject;',
    '    };',
    `    import limit ${importLimit} action block;`,
  ]
}

// The subnets of nodes have one length, that of this node's.
function subnetLines(networks: readonly Cidr[], own: Cidr, ways: Ways, family: Family): string[] {
  const { length } = split(own)
  const subnets = networks.map((network) => `${network}{${length},${length}}`)
  return [
    `      if net ~ [ ${own}+ ] then reject;`,
    `      if net ~ [ ${subnets.join(', ')} ] then {`,
    ...wayLines(ways, family).map((line) => `  ${line}`),
    '      }',
  ]
}

function pattern({ network, longest }: Accepted): string {
  const { length } = split(network)
  return longest === length ? network : `${network}{${length},${longest}}`
}

function addition(text: string): string {
  const parts = text.split(':')
  return `bgp_${parts.length === 3 ? 'large_' : ''}community.add((${parts.join(', ')}))`
}

function channel(family: Family): string {
  return family === 'v4' ? 'ipv4' : 'ipv6'
}

function isOf(value: Ip | Cidr, family: Family): boolean {
  return isSix(value) === (family === 'v6')
}

function isLower(one: Ip, other: Ip): boolean {
  return bitsOf(one).bits < bitsOf(other).bits
}

// A name in BIRD has letters, digits and "_". Addresses have one text each.
function symbol(ip: Ip): string {
  return ip.replace(/[.:]/g, '_')
}

// A number of 32 bits that no other node has. A node without IPv4 takes a digest of its address.
function routerId({ v4, v6 }: Both<Ip>, node: string): Ip {
  return v4 ?? format({ family: 4, bits: BigInt(Bun.hash.xxHash32(v6 ?? node) || 1) })
}

// BIRD's texts have no escapes.
function quoted(text: string): string {
  if (!/^[^"\r\n\0]*$/.test(text)) throw new ValueError(`${shown(text)}: want a text without quotes and line breaks`)
  return `"${text}"`
}
