import * as v from 'valibot'
import type { Wgpeer } from '../../../lib/state/kinds/wgpeer.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import { shown, ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { Secret } from '../../../lib/text/secret.ts'
import { field, read } from '../../../lib/text/shape.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'
import { markOf, PROTO } from '../../kernel/marks.ts'
import { within } from '../../kernel/ownership.ts'
import { CONNECTED_S } from '../../kernel/wireguard.ts'
import type { Both, Lease } from '../../lease/lease.ts'
import { isWireguardKey, WireguardKeys } from '../../node/wireguard-keys.ts'
import type { Backend } from '../backend.ts'
import { LAST_METRIC } from '../blackhole.ts'
import { eachPeer } from '../peers.ts'
import { beginOf, underlayMtu } from '../tunnel-device.ts'
import type { Uplink } from '../uplink.ts'

type Family = 'v4' | 'v6'
/** One device for each family, or one for both whose outer packets are of the family that the mode names. */
type Mode = (typeof MODES)[number]
/** The keys of `Backend` in net-conf.json, all of them flannel's. */
interface Conf {
  readonly mode: Mode
  /** `ListenPort` and `ListenPortV6`. */
  readonly ports: Required<Both<number>>
  /** The MTU of the underlay, in bytes. 0 stands for the uplink's MTU. */
  readonly mtu: number
  /** Seconds between packets that keep the way through a NAT open. 0 means none. Absent when the node decides. */
  readonly keepalive?: number
  /** A second key, the same on all nodes. */
  readonly psk?: Secret
  /** This node's keys. Absent until `equip`. */
  readonly keys?: WireguardKeys
}
/** The data that a node announces (`BackendData`, `BackendV6Data`), in flannel's format. */
interface Data {
  readonly PublicKey: string
  /** Absent or 0 stands for the reader's own port. */
  readonly Port?: number
}

const MODES = ['separate', 'auto', 'ipv4', 'ipv6'] as const
const FAMILIES: readonly Family[] = ['v4', 'v6']
const DEVICES: Required<Both<IfName>> = { v4: parse.ifname('flannel-wg'), v6: parse.ifname('flannel-wg-v6') }
/**
 * Bytes of the outer IPv6 and UDP headers, and of WireGuard's header, padding and tag. flannel takes as much for IPv4.
 */
const OVERHEAD = 80
const RELIST_MS = 15_000
/**
 * A node behind a NAT sends this often, in seconds, when the configuration does not say. Peers cannot reach it by another
 * port than that of its last packet. Most NATs keep a UDP mapping for 30 s (`nf_conntrack_udp_timeout`).
 */
const NAT_S = 25
const PRIVATE = within(['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'] as Cidr[])
const SHAPE = v.object({
  Backend: v.object({
    ListenPort: v.optional(field.int(1, 65535), 51820),
    ListenPortV6: v.optional(field.int(1, 65535), 51821),
    MTU: v.optional(field.by(underlayMtu), 0),
    PSK: v.exactOptional(field.by(secondKey)),
    PersistentKeepaliveInterval: v.exactOptional(field.int(0, 65535)),
    Mode: v.optional(field.word(...MODES), 'separate'),
  }),
})

const reach = eachPeer<Conf>(({ self, uplink, conf }) => {
  const own = FAMILIES.map((family) => keyOf(self, family))
  const toPeer = endpoints(uplink, conf)
  const isBehindNat = FAMILIES.some((one) => uplink.advertise[one] !== uplink.tunnel[one])
  return ({ lease, family, subnet }) => {
    const { v4, v6 } = lease.subnets
    const isJoined = conf.mode !== 'separate' && v4 !== undefined && self.subnets.v4 !== undefined
    // One peer has both families.
    if (isJoined && family === 'v6') return []
    const data = dataOf(lease, family)
    if (typeof data === 'string') return data
    const { PublicKey: publicKey } = data
    if (own.includes(publicKey))
      return `it has this node's own key ${publicKey}: one node is a copy of the other; ${COPY}`
    const endpoint = toPeer(lease, family)
    if (typeof endpoint === 'string') return endpoint
    const allowed = isJoined && v6 !== undefined && self.subnets.v6 !== undefined ? [subnet, v6] : [subnet]
    const { keepalive = isBehindNat ? NAT_S : 0, psk } = conf
    const dev = deviceOf(conf, family)
    return [
      { kind: 'wgpeer', ns: 'host', dev, publicKey, endpoint: endpoint.text, allowed, keepalive, ...(psk && { psk }) },
    ]
  }
})

const COPY = 'give this one another key: plumb wireguard rotate'

const wireguard: Backend<Conf, Data> = {
  type: 'wireguard',
  shape: SHAPE,
  live: ['MTU', 'PersistentKeepaliveInterval'],
  conf(options) {
    const { Mode: mode, ...given } = read(SHAPE, { Backend: options }).value.Backend
    const { ListenPort, ListenPortV6, MTU: mtu, PersistentKeepaliveInterval: keepalive, PSK: psk } = given
    const ports = { v4: ListenPort, v6: mode === 'separate' ? ListenPortV6 : ListenPort }
    if (mode === 'separate' && ListenPort === ListenPortV6)
      throw new ValueError(`Cannot use Backend.ListenPortV6 ${ListenPortV6}: want another one than ListenPort's`)
    return { mode, ports, mtu, ...(keepalive !== undefined && { keepalive }), ...(psk && { psk }) }
  },
  equip: (conf, { stateDir, node }) => ({ ...conf, keys: WireguardKeys.open(stateDir, node) }),
  rotate: ({ keys }, self) => (keys ?? noKeys()).rotate(self && (keyOf(self, 'v4') ?? keyOf(self, 'v6'))),
  // Smaller packets are padded to 16 bytes, so the MTU is flannel's.
  mtu: (conf, uplink) => inner(conf, uplink),
  announce(_node, { tunnel }, { keys, ports }) {
    const { publicKey: PublicKey } = keys ?? noKeys()
    const one = (family: Family) =>
      tunnel[family] === undefined ? {} : { [family]: { PublicKey, Port: ports[family] } }
    return { ...one('v4'), ...one('v6') }
  },
  data: ({ v4, v6 }) => ({
    ...(v4 === undefined ? {} : { v4: parsed(v4, 'BackendData') }),
    ...(v6 === undefined ? {} : { v6: parsed(v6, 'BackendV6Data') }),
  }),
  want(self, peers, uplink, conf, facts) {
    // Routes do not matter here. Otherwise every change of any route makes the agent compute all peers again.
    const reached = reach(peers, { type: 'wireguard', self, uplink: { ...uplink, routes: [] }, conf, facts })
    const families = FAMILIES.filter((family) => self.subnets[family] && uplink.tunnel[family])
    const devices = [...new Set(families.map((family) => deviceOf(conf, family)))]
    return {
      ...reached,
      resources: [
        ...devices.flatMap((dev) => device(dev, self, uplink, conf, markOf(facts.instance))),
        ...families.map((family) => address(deviceOf(conf, family), self.subnets[family] as Cidr)),
        ...joined(reached.resources),
        ...facts.networks.flatMap((network) => {
          const family = isSix(network) ? 'v6' : 'v4'
          return families.includes(family) ? routes(network, deviceOf(conf, family)) : []
        }),
      ],
    }
  },
  // The address of the device. A node has it before its first pod, and a node with flannel has it, too.
  answersAt: ({ subnets: { v4, v6 } }) => ({ ...(v4 && { v4: beginOf(v4) }), ...(v6 && { v6: beginOf(v6) }) }),
  links: (conf) => [...new Set(FAMILIES.map((family) => deviceOf(conf, family)))],
  relist: { kinds: ['wgdevice', 'wgpeer'], everyMs: RELIST_MS },
  handshakeAge(peer, handshakes) {
    const ages = FAMILIES.flatMap((family) => handshakes.get(keyOf(peer, family) ?? '') ?? [])
    return ages.length === 0 ? undefined : Math.min(...ages)
  },
  whySilent(peer, handshakes) {
    const keys = FAMILIES.flatMap((family) => keyOf(peer, family) ?? [])
    const ages = keys.filter((key) => handshakes.has(key)).map((key) => handshakes.get(key))
    if (ages.length === 0 || ages.some((age) => age !== undefined && age < CONNECTED_S)) return undefined
    const since = ages.every((age) => age === undefined)
      ? 'no WireGuard handshake yet'
      : `no WireGuard handshake for ${CONNECTED_S} s`
    return `${since}: want the same PSK on both nodes, and its UDP port open`
  },
}

/**
 * Sends packets for a node's pods to that node encrypted (WireGuard). Devices, routes and leases equal flannel's, so
 * that both can run in one cluster. When the device is gone, no packet leaves in clear.
 */
export default wireguard

function device(dev: IfName, self: Lease, uplink: Uplink, conf: Conf, alias: string): Resource[] {
  const family: Family = dev === DEVICES.v6 || self.subnets.v4 === undefined ? 'v6' : 'v4'
  // Peers encrypt for the key that the store has. The device changes to a new key when the store has it.
  const { publicKey, privateKey } = (conf.keys ?? noKeys()).pairOf(keyOf(self, family))
  return [
    { kind: 'link', ns: 'host', name: dev, type: 'wireguard', mtu: inner(conf, uplink.mtu), alias, up: true },
    { kind: 'wgdevice', ns: 'host', dev, port: conf.ports[family], publicKey, privateKey },
  ]
}

function address(dev: IfName, subnet: Cidr): Resource {
  return { kind: 'addr', ns: 'host', dev, cidr: `${beginOf(subnet)}/${isSix(subnet) ? 128 : 32}` as Cidr }
}

// Without the second route, packets for pods would leave in clear by the default route while the device is gone.
function routes(dst: Cidr, dev: IfName): Resource[] {
  const route = { kind: 'route', ns: 'host', dst, via: [], proto: PROTO } as const
  return [
    { ...route, dev: parse.ifname('lo'), priority: LAST_METRIC, unreachable: true },
    { ...route, dev, exclusive: true },
  ]
}

// Several leases of one node have one key. The kernel has one peer for them, with all of their subnets.
function joined(resources: readonly Resource[]): readonly Resource[] {
  const peers = new Map<string, Wgpeer>()
  for (const one of resources as readonly Wgpeer[]) {
    const key = `${one.dev} ${one.publicKey}`
    const other = peers.get(key)
    peers.set(key, other ? { ...one, allowed: [...other.allowed, ...one.allowed] } : one)
  }
  return peers.size === resources.length ? resources : [...peers.values()]
}

// The address and port that the first packets to a peer go to.
function endpoints(uplink: Uplink, conf: Conf): (peer: Lease, family: Family) => { readonly text: string } | string {
  const { mode, ports } = conf
  return ({ ips, data }, family) => {
    const outer = mode === 'separate' ? family : outerOf(mode, ips, uplink.advertise)
    const ip = ips[outer]
    if (ip === undefined) return `it announces no IPv${outer === 'v4' ? 4 : 6} address, and Mode is ${mode}`
    // A node with one tunnel listens on one port. flannel announces another one for IPv6, where it does not listen.
    const port = mode === 'separate' ? portOf(data[family]) : portOf(data.v4) || portOf(data.v6)
    return { text: outer === 'v4' ? `${ip}:${port || ports.v4}` : `[${ip}]:${port || ports.v6}` }
  }
}

// IPv4, unless the peer's address is private and both nodes have public IPv6 addresses (flannel, selectMode).
function outerOf(mode: Exclude<Mode, 'separate'>, peer: Both<Ip>, own: Both<Ip>): Family {
  if (mode !== 'auto') return mode === 'ipv4' ? 'v4' : 'v6'
  if (peer.v6 === undefined) return 'v4'
  if (peer.v4 === undefined) return 'v6'
  if (!PRIVATE(peer.v4) && own.v4 !== undefined) return 'v4'
  return own.v6 !== undefined && !PRIVATE(peer.v6) && !PRIVATE(own.v6) ? 'v6' : 'v4'
}

function deviceOf({ mode }: Conf, family: Family): IfName {
  return mode === 'separate' ? DEVICES[family] : DEVICES.v4
}

function inner({ mtu }: Conf, uplink: number): number {
  return Math.min(mtu || uplink, uplink) - OVERHEAD
}

// The value stays out of the message. An empty one is none, as in flannel.
function secondKey(value: unknown): Secret | undefined {
  if (value === '') return undefined
  if (isWireguardKey(value)) return new Secret(value)
  throw new ValueError('(not shown): want 32 bytes in base64, as wg genpsk makes them')
}

function keyOf(lease: Lease, family: Family): string | undefined {
  const data = dataOf(lease, family)
  return typeof data === 'string' ? undefined : data.PublicKey
}

function portOf(data: unknown): number | undefined {
  try {
    return data === undefined ? undefined : parsed(data, 'BackendData').Port
  } catch {
    return undefined
  }
}

function dataOf({ data }: Lease, family: Family): Data | string {
  const raw = data[family]
  if (raw === undefined) return `it announces no PublicKey for IPv${family === 'v4' ? 4 : 6}`
  try {
    return parsed(raw, family === 'v4' ? 'BackendData' : 'BackendV6Data')
  } catch (cause) {
    return (cause as Error).message
  }
}

function parsed(raw: unknown, at: string): Data {
  if (typeof raw !== 'object' || raw === null)
    throw new ValueError(`Cannot read ${at} ${shown(raw)}: want an object with PublicKey`)
  const { PublicKey, Port } = raw as { PublicKey?: unknown; Port?: unknown }
  if (!isWireguardKey(PublicKey))
    throw new ValueError(`Cannot read ${at}.PublicKey ${shown(PublicKey)}: want 32 bytes in base64`)
  if (Port === undefined) return { PublicKey }
  if (typeof Port !== 'number' || !Number.isInteger(Port) || Port < 0 || Port > 65535)
    throw new ValueError(`Cannot read ${at}.Port ${shown(Port)}: want a port, or 0`)
  return { PublicKey, Port }
}

function noKeys(): never {
  throw new TypeError('the backend wireguard has no keys yet')
}
