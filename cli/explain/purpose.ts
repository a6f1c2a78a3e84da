import { isSix } from '../../lib/cidr.ts'
import { type Cidr, split } from '../../lib/ip.ts'
import type { Rerouted, Rule, Unrouted, Vrf } from '../../lib/policy.ts'
import type { Saved, Setting } from '../../lib/settings.ts'
import type { Addr, Chain, Claim, Element, Fdb, Flows, Kind, Line, Link, Resource, Route, Sysctl, Vlan } from '../../lib/state.ts'

/** What a line is for, in a few words for people: of the resource that it makes or, with `gone`, removes. */
export function purpose(resource: Resource, { text, asks, otherwise }: Line, gone = false): string {
  const about = ABOUT[resource.kind as Explained] as (one: Resource, at: At) => string
  return about(resource, { text, asks: asks === true, isFirst: otherwise !== undefined, gone })
}

interface At {
  readonly text: string
  readonly asks: boolean
  /** What follows depends on its answer. */
  readonly isFirst: boolean
  readonly gone: boolean
}
// Neighbours, tunnels and nexthops are the agent's alone.
type Explained = Exclude<Kind, 'neigh' | 'tunnel' | 'nexthop'>
type Describers = { readonly [K in Explained]: (resource: Extract<Resource, { kind: K }>, at: At) => string }

// One place per kind; a kind without one does not compile.
const ABOUT: Describers = { link, addr, route, sysctl, fdb, vlan, element, chain, claim, flows, setting, saved, rule, unrouted, rerouted, vrf }

function link({ ns, name, type, peer, port, alias, mtu, vlanFiltering }: Link, { text, asks, isFirst, gone }: At): string {
  if (gone) return `${name} and with it its other end, its addresses and its routes`
  if (asks) return `what ${name} is like${isFirst ? '; where there is none, a second process goes on behind this line' : ''}`
  if (type === 'port') return `what comes from ${name} may go back through it: a pod reaches its own host ports`
  if (text.startsWith('link add') && type === 'bridge') return `the bridge${vlanFiltering ? ', which tells VLANs apart' : ''}`
  if (text.startsWith('link add')) return `the pair: ${name} here, ${peer?.name} ${peer?.ns === 'host' ? 'too' : 'in the pod'}${port ? `, a port of ${port.master}` : ''}${mtu ? `, for packets of ${mtu} bytes` : ''}`
  if (type === 'veth') return [alias === undefined ? '' : 'whose it is, for GC', ...marks(port)].filter(Boolean).join('; ')
  return `${name} comes up${ns === 'host' ? '' : ' in the pod'}`
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

function element({ set, key, value }: Element, { gone }: At): string {
  const about = ELEMENTS.find(([prefix]) => set.startsWith(prefix))?.[1](key.split(' . '), value) ?? `an element of ${set}`
  return gone ? `no longer: ${about}` : about
}

// By the beginning of the set's name in lib/ruleset.nft.
const ELEMENTS: readonly (readonly [string, (key: readonly string[], value: string | undefined) => string])[] = [
  ['masqall', ([protocol, ip, port]) => `every client of ${ip} port ${port}/${protocol} takes the node's address (masqAll)`],
  ['masq', ([subnet]) => `what leaves ${subnet} for elsewhere takes the node's address (ipMasq)`],
  ['local', ([subnet]) => `within ${subnet} packets are left as they are, but to reach a host port`],
  ['self', ([ip]) => `${ip} is its own only neighbour, for the host ports that lead to it`],
  ['snat', ([protocol, ip, port]) => `clients beside ${ip} port ${port}/${protocol}, and the node's own, take the node's address where no answer would come back`],
  ['ports', (key, value) => `${hostPort(key)} leads to ${value?.replace(' . ', ' port ')}`],
  ['conditional', (key) => `${hostPort(key)} leads there on the network's conditions`],
]

function hostPort(key: readonly string[]): string {
  return `host port ${key.at(-1)}/${key.at(-2)}${key.length > 2 ? ` of ${key[0]}` : ''}`
}

function chain({ name }: Chain, { text }: At): string {
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

function rule({ from, table }: Rule, { gone }: At): string {
  return gone ? `what ${from} sends goes by the usual tables` : `what ${from} sends goes by table ${table}`
}

function unrouted({ route: { dst } }: Unrouted, { gone }: At): string {
  return gone ? `${dst} is in the main table again` : `${dst} is no longer in the main table`
}

function rerouted({ route: { dst }, table }: Rerouted, { gone }: At): string {
  return gone ? `${dst} is in the main table again` : `${dst} is in table ${table}, the VRF's`
}

function vrf({ name, table }: Vrf, { gone }: At): string {
  return gone ? `${name}, whose last port this was` : `the VRF, with routes of its own in table ${table}`
}
