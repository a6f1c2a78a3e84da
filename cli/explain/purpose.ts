import { isPodKind } from '../../lib/state/kinds/podlink.ts'
import type { Rerouted, Rule, Unrouted, Vrf } from '../../lib/state/policy-routing.ts'
import type { Addr, Chain, Claim, Element, Fdb, Flows, Kind, Line, Link, Passage, Qdisc, Redirect, Resource, Route, Sysctl, Vlan, Zoned } from '../../lib/state/resource.ts'
import type { Saved, Setting } from '../../lib/state/settings.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { type Cidr, split } from '../../lib/text/ip.ts'

/** What a line is for, in a few words for people: of the resource that it makes or, with `gone`, removes. */
export function purpose(resource: Resource, { text }: Line, gone = false): string {
  const about = ABOUT[resource.kind as Explained] as (one: Resource, at: At) => string
  return about(resource, { text, gone })
}

interface At {
  readonly text: string
  readonly gone: boolean
}
// Neighbours, tunnels and nexthops are the agent's alone.
type Explained = Exclude<Kind, 'neigh' | 'tunnel' | 'nexthop'>
type Describers = { readonly [K in Explained]: (resource: Extract<Resource, { kind: K }>, at: At) => string }

// One place per kind; a kind without one does not compile.
const ABOUT: Describers = { link, addr, route, sysctl, fdb, vlan, element, chain, claim, flows, setting, saved, passage, rule, unrouted, qdisc, redirect, rerouted, vrf, zoned }

function link(want: Link, { text, gone }: At): string {
  const { ns, name, type, peer, port, alias, mtu, vlanFiltering, move } = want
  if (isPodKind(type)) return podLink(want, text, gone)
  if (move) return gone ? `the device is back on the node as ${move.name}, with address, size and state as they were` : `the device goes to the pod, is ${move.name} there, and bears a mark by which DEL finds it`
  if (gone && text.startsWith('link set')) return `${name} goes together with other links: the kernel waits once for all of a group`
  if (gone && text.startsWith('link delete group')) return 'they go, with their other ends, addresses and routes'
  if (gone) return `${name} and with it its other end, its addresses and its routes`
  if (type === 'ifb') return `what the pod sends passes through it, to be shaped`
  if (type === 'port' && port?.isolated) return `the bridge carries no frames between ${name} and other such ports`
  if (type === 'port') return `what comes from ${name} may go back through it: a pod reaches its own host ports`
  if (text.startsWith('link add') && type === 'bridge') return `the bridge${vlanFiltering ? ', which tells VLANs apart' : ''}`
  if (text.startsWith('link add')) return `the pair: ${name} here, ${peer?.name} ${peer?.ns === 'host' ? 'too' : 'in the pod'}${port ? `, a port of ${port.master}` : ''}${mtu ? `, for packets of ${mtu} bytes` : ''}`
  if (type === 'veth') return [alias === undefined ? '' : 'whose it is, for GC', ...marks(port)].filter(Boolean).join('; ')
  return `${name} comes up${ns === 'host' ? '' : ' in the pod'}`
}

function podLink({ name, type, born, was, port, alias }: Link, text: string, gone: boolean): string {
  if (gone) return `${name} and with it its addresses and its routes`
  if (born && !/^(link|tuntap) add/.test(text)) return 'its address and its size'
  if (born) return `the ${type === 'tun' ? 'tap' : type}${born.master ? ` on ${born.master}` : ''}, in the pod at once, under a name that it has until it is marked`
  if (was) return `its own name, and whose it is (${alias}): both at once`
  return `${name} comes up in the pod${port ? `, a port of its bridge ${port.master}` : ''}`
}

function marks(port: Link['port']): string[] {
  return [port?.hairpin ? 'hairpin: a frame may go back where it came from' : '', port?.isolated ? 'isolated: no frames between it and other isolated ports' : '', port?.locked ? 'locked: frames from one address only (macspoofchk)' : '']
}

function addr({ ns, dev, dad, noprefixroute }: Addr, { gone }: At): string {
  if (gone) return `${dev} loses it`
  const extra = [dad ? 'made sure of first (enabledad)' : '', noprefixroute ? 'without a route of its own to the subnet' : ''].filter(Boolean)
  return [ns === 'host' ? `the gateway of the pods, on ${dev}` : "the pod's address", ...extra].join(', ')
}

function route({ ns, dst, via, dev, exclusive }: Route): string {
  const to = split(dst).length === 0 ? `default route, IPv${isSix(dst) ? 6 : 4}` : isHost(dst) ? `the way to ${split(dst).ip}` : `the way to ${dst}`
  const how = via.length > 1 ? `: over ${via.length} gateways at once` : via.length === 1 ? `, by the gateway ${via[0]}` : `: on the link ${dev}`
  return `${ns === 'host' ? 'to the pod: ' : ''}${to}${how}${exclusive ? '; no other may be there' : ''}`
}

function isHost(dst: Cidr): boolean {
  return split(dst).length === (isSix(dst) ? 128 : 32)
}

const SYSCTLS: readonly (readonly [RegExp, string])[] = [
  [/^ipv4\/ip_forward = 1$/, 'the node passes IPv4 packets on'],
  [/^ipv6\/conf\/all\/forwarding = 1$/, 'the node passes IPv6 packets on'],
  [/\/accept_ra = 0$/, 'takes no routes from router advertisements'],
  [/\/accept_dad = 0$/, 'no duplicate address detection, which would take 1 to 2 s'],
  [/\/accept_dad = 1$/, 'duplicate address detection, as asked (enabledad)'],
  [/\/enhanced_dad = 1$/, 'its own probes that come back are no duplicates (RFC 7527)'],
  [/\/arp_notify = 1$/, 'neighbours learn of the address at once, by a gratuitous ARP'],
  [/\/ndisc_notify = 1$/, 'the same for IPv6, by an unsolicited advertisement'],
  [/\/disable_ipv6 = 0$/, 'IPv6 on'],
  [/\/disable_ipv6 = 1$/, 'no IPv6 of its own: a port needs none'],
  [/\/keep_addr_on_down = 1$/, 'IPv6 addresses stay when the link goes down'],
  [/\/route_localnet = 1$/, "the node's own programs reach host ports on 127.0.0.1"],
]

function sysctl({ name, value, optional }: Sysctl): string {
  const [, about] = SYSCTLS.find(([pattern]) => pattern.test(`${name} = ${value}`)) ?? []
  return `${about ?? `sysctl net/${name}`}${optional ? '' : '; an error where the kernel has it not'}`
}

function fdb({ dev, mac }: Fdb, { gone }: At): string {
  return gone ? `${dev} no longer owns ${mac}` : `frames for ${mac} go to ${dev}, and no other port can take it over`
}

function vlan({ dev, first, last, pvid, absent }: Vlan, { gone }: At): string {
  const ids = first === last ? `VLAN ${first}` : `VLANs ${first} to ${last}`
  return absent || gone ? `${dev} leaves ${ids}` : `${dev} is in ${ids}${pvid ? ', untagged, its native one' : ', tagged'}`
}

function element({ set, key, value, moment }: Element, { gone }: At): string {
  const about = ELEMENTS.find(([prefix]) => set.startsWith(prefix))?.[1](key.split(' . '), value) ?? `an element of ${set}`
  return gone && !moment ? `no longer: ${about}` : about
}

// By the beginning of the set's name in lib/nft/sets.nft.
const ELEMENTS: readonly (readonly [string, (key: readonly string[], value: string | undefined) => string])[] = [
  ['masqall', ([protocol, ip, port]) => `every client of ${ip} port ${port}/${protocol} takes the node's address (masqAll)`],
  ['masq', ([ip]) => `what ${ip} sends out of its subnet takes the node's address (ipMasq)`],
  ['local', ([subnet]) => `within ${subnet} packets are left as they are, but to reach a host port`],
  ['self', ([ip]) => `${ip} is its own only neighbour, for the host ports that lead to it`],
  ['snat', ([protocol, ip, port]) => `clients beside ${ip} port ${port}/${protocol}, and the node's own, take the node's address where no answer would come back`],
  ['given', ([port]) => `for a second: what a process of the node still sends from UDP port ${port} makes no new connection`],
  ['left', ([ip, port]) => `for a second: what ${ip} still sends from UDP port ${port} makes no new connection`],
  ['ports', (key, value) => `${hostPort(key)} leads to ${value?.replace(' . ', ' port ')}`],
  ['pods', ([ip]) => `what ${ip} sends passes the node, and so do the answers`],
  ['admin', ([ip], value) => `an admin's chain, ${value?.replace('jump ', '')}, looks at packets of ${ip} first`],
  ['isolating', ([bridge]) => `nothing passes between ${bridge} and other bridges with such a policy`],
  ['together', ([bridge]) => `pods on ${bridge} reach each other`],
  ['apart', ([bridge]) => `pods on ${bridge} do not reach each other`],
  ['conditional', (key) => `${hostPort(key)} leads there on the network's conditions`],
]

function hostPort(key: readonly string[]): string {
  return `host port ${key.at(-1)}/${key.at(-2)}${key.length > 2 ? ` of ${key[0]}` : ''}`
}

function chain({ name, kept }: Chain, { text }: At): string {
  if (kept) return "the admin's chain, whose rules are left alone"
  if (text.startsWith('add chain')) return `the chain of the network's conditions`
  return text.startsWith('flush') ? 'it is written anew each time' : `what meets the conditions is led to its pod, IPv${name.slice('cond'.length)[0]}`
}

function claim({ protocol, port, ip }: Claim, { gone }: At): string {
  const of = ip.startsWith('any') ? `all IPv${ip.slice(-1)} addresses of the node` : ip
  return gone ? `host port ${port}/${protocol} is free for others` : `no other container gets port ${port}/${protocol} of ${of}`
}

function flows({ port, pod }: Flows): string {
  return `UDP clients of port ${port} do not go on to ${pod}`
}

function setting({ ns, dev, mac, mtu, txQLen, promisc, allmulti, master }: Setting, { gone }: At): string {
  if (gone) return `${dev} is as it was before`
  const told = [
    master && `a port of ${master}`,
    mac && 'its address',
    mtu && `packets of ${mtu} bytes`,
    txQLen !== undefined && `a queue of ${txQLen} packets`,
    promisc !== undefined && 'whose packets it takes',
    allmulti !== undefined && 'which groups it listens to',
  ]
  return `${dev}${ns === 'host' ? ', the other end of the pair' : ''}: ${told.filter(Boolean).join(', ')}`
}

function saved({ path }: Saved, { gone }: At): string {
  return gone ? `${path} goes` : "what the reference plugin's DEL would put back"
}

function passage({ admin }: Passage, { text }: At): string {
  if (text === '*filter' || text === 'COMMIT') return 'all or nothing'
  if (text.startsWith(':')) return text.includes('PLUMB-PODS') ? "the chain of iptables that lets pods' packets pass" : `the admin's chain in iptables, for rules as a reference plugin's node has them`
  if (text.startsWith('-I')) return 'it comes before what Docker, say, drops there'
  return text.endsWith(` -j ${admin}`) ? "the admin's own rules come first" : 'what the chain `forward` of table inet plumb marked passes'
}

function zoned({ zone, source }: Zoned, { gone }: At): string {
  return gone ? `${source} belongs to no zone of its own any more` : `what ${source} sends is judged as of the zone ${zone}`
}

function rule({ from, table }: Rule, { gone }: At): string {
  return gone ? `what ${from} sends goes by the usual tables` : `what ${from} sends goes by table ${table}`
}

function unrouted({ route: { dst } }: Unrouted, { gone }: At): string {
  return gone ? `${dst} is in the main table again` : `${dst} is no longer in the main table`
}

function qdisc({ dev, rate, limit }: Qdisc, { gone }: At): string {
  return gone ? `${dev} is shaped no longer` : `at most ${rate} bit/s leave by ${dev}, and at most ${Math.round((limit * 8000) / rate)} ms of it wait`
}

function redirect({ dev, to }: Redirect, { text, gone }: At): string {
  if (text.startsWith('qdisc')) return `where filters of what comes in by ${dev} stand; another's serves as well`
  return gone ? `what comes in by ${dev} goes on as usual` : `what comes in by ${dev}, which the pod sends, goes through ${to} first`
}

function rerouted({ route: { dst }, table }: Rerouted, { gone }: At): string {
  return gone ? `${dst} is in the main table again` : `${dst} is in table ${table}, the VRF's`
}

function vrf({ name, table }: Vrf, { gone }: At): string {
  return gone ? `${name}, whose last port this was` : `the VRF, with routes of its own in table ${table}`
}
