import * as v from 'valibot'
import type { Resource } from '../../../lib/state/resource.ts'
import { digest } from '../../../lib/text/digest.ts'
import { shown, ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { field, read } from '../../../lib/text/shape.ts'
import { type IfName, localMac, type Mac, parse } from '../../../lib/text/values.ts'
import { markOf, PROTO } from '../../kernel/marks.ts'
import type { Lease } from '../../lease/lease.ts'
import type { Backend, Facts } from '../backend.ts'
import { chooseChecksumOffload } from '../checksum-offload.ts'
import { eachPeer, isDirect, networksOnLink, onLinkOf, readOnLink, routed, sourceOf } from '../peers.ts'
import { beginOf, underlayMtu } from '../tunnel-device.ts'
import type { Uplink } from '../uplink.ts'

/** The keys of `Backend` in net-conf.json. `TxChecksumOffload` is plumb's, all others are flannel's. */
interface Conf {
  readonly VNI: number
  readonly Port: number
  /** The MTU of the underlay, in bytes. 0 stands for the uplink's MTU. */
  readonly MTU: number
  readonly GBP: boolean
  readonly Learning: boolean
  /** Peers on the uplink's own network get a route instead of a tunnel. */
  readonly DirectRouting: boolean
  /**
   * Whether the device may leave the checksums of inner packets to the hardware. Without this key, the network card
   * decides.
   */
  readonly TxChecksumOffload?: boolean
}
/** The data that a node announces (`BackendData`, `BackendV6Data`), in flannel's format. */
interface Vtep {
  /** Absent in leases of flannel before 0.12. */
  readonly VNI?: number
  readonly VtepMAC: Mac
  /** With DirectRouting: the networks that the node reaches without a router. */
  readonly OnLink?: readonly Cidr[]
  /** The address that the node sends from, when it announces another one. */
  readonly Source?: Ip
}
type Family = 'v4' | 'v6'

const FAMILIES: readonly Family[] = ['v4', 'v6']
// The default port of the kernel. flannel leaves the choice to the kernel. A configuration can name IANA's port 4789.
const PORT = 8472
/** Bytes of the outer Ethernet, IP, UDP and VXLAN headers. */
const OVERHEAD = { v4: 50, v6: 70 } as const
const SHAPE = v.object({
  Backend: v.object({
    VNI: v.optional(field.int(1, 0xffffff), 1),
    Port: v.optional(field.int(0, 65535), 0),
    MTU: v.optional(field.by(underlayMtu), 0),
    GBP: v.optional(field.flag, false),
    Learning: v.optional(field.flag, false),
    DirectRouting: v.optional(field.flag, false),
    TxChecksumOffload: v.exactOptional(field.flag),
    // flannel reads these on Windows.
    Name: v.exactOptional(v.unknown()),
    MacPrefix: v.exactOptional(v.unknown()),
  }),
})

const reach = eachPeer<Conf>(({ self, uplink, conf, facts }) => {
  const isPlain = isDirect(uplink)
  const own = FAMILIES.flatMap((family) => macIn(self, family) ?? [])
  return (peer) => {
    const { lease, family, subnet, ip } = peer
    const route = { kind: 'route', ns: 'host', dst: subnet, exclusive: true, proto: PROTO } as const
    const linked = onLinkOf(peer)
    if (typeof linked === 'string') return linked
    if (conf.DirectRouting && isPlain(peer, linked)) return routed({ ...route, via: [ip], dev: uplink.name }, facts)
    const vtep = vtepOf(lease, family)
    if (typeof vtep === 'string') return vtep
    if (vtep.VNI !== undefined && vtep.VNI !== conf.VNI)
      return `it announces VNI ${vtep.VNI}, this node has ${conf.VNI}`
    if (own.includes(vtep.VtepMAC)) return `it announces this node's own MAC ${vtep.VtepMAC}: ${copied(self, conf)}`
    const dev = device(conf, family)
    const gateway = beginOf(subnet)
    return [
      { kind: 'neigh', ns: 'host', dev, ip: gateway, mac: vtep.VtepMAC, proto: PROTO },
      { kind: 'tunnel', ns: 'host', dev, mac: vtep.VtepMAC, dst: ip },
      ...routed({ ...route, via: [gateway], dev, onlink: true }, facts),
    ]
  }
})

const vxlan: Backend<Conf, Vtep> = {
  type: 'vxlan',
  shape: SHAPE,
  live: ['MTU', 'Learning', 'DirectRouting', 'TxChecksumOffload'],
  conf(options) {
    const { value } = read(SHAPE, { Backend: options })
    const { VNI, Port, MTU, GBP, Learning, DirectRouting, TxChecksumOffload: offload } = value.Backend
    const conf = { VNI, Port: Port || PORT, MTU, GBP, Learning, DirectRouting }
    return offload === undefined ? conf : { ...conf, TxChecksumOffload: offload }
  },
  mtu(conf, uplink, families) {
    const used = FAMILIES.filter((family) => families[family] !== undefined)
    return Math.min(uplink, ...used.map((family) => inner(conf, uplink, family)))
  },
  announce(node, uplink, conf, existing) {
    const { VNI } = conf
    const { tunnel } = uplink
    // Keeps the MAC of a device that flanneld or an earlier agent made. Peers know this MAC. With another MAC, packets
    // are lost until all peers have the new lease.
    const macOf = (family: Family) => existing?.get(device(conf, family)) ?? vtepMac(node, VNI, family === 'v4' ? 4 : 6)
    const linked = (family: Family) => (conf.DirectRouting ? { OnLink: networksOnLink(uplink, family) } : {})
    const one = (family: Family) =>
      tunnel[family] === undefined
        ? {}
        : { [family]: { VNI, VtepMAC: macOf(family), ...linked(family), ...sourceOf(uplink, family) } }
    return { ...one('v4'), ...one('v6') }
  },
  existing(conf, earlier) {
    const known = (family: Family): readonly [string, Mac][] => {
      const announced = vtepOf({ data: earlier }, family)
      if (typeof announced === 'string' || (announced.VNI ?? conf.VNI) !== conf.VNI) return []
      return [[device(conf, family), announced.VtepMAC]]
    }
    return new Map(FAMILIES.flatMap(known))
  },
  data: (raw) => ({
    ...(raw.v4 === undefined ? {} : { v4: vtep(raw.v4, 'BackendData') }),
    ...(raw.v6 === undefined ? {} : { v6: vtep(raw.v6, 'BackendV6Data') }),
  }),
  want(self, peers, uplink, conf, facts) {
    // Drops the routes that this backend does not use. Otherwise every change of any route makes the agent compute all
    // peers again.
    const seen = conf.DirectRouting
      ? uplink
      : { ...uplink, routes: uplink.routes.filter(({ dev, gateway }) => dev === uplink.name && !gateway) }
    const reached = reach(peers, { type: 'vxlan', self, uplink: seen, conf, facts })
    return {
      ...reached,
      resources: [...FAMILIES.flatMap((family) => own(self, family, uplink, conf, facts)), ...reached.resources],
    }
  },
  // The address of the VXLAN device. A node has it before its first pod, and a node with flannel has it, too.
  answersAt: ({ subnets: { v4, v6 } }) => ({ ...(v4 && { v4: beginOf(v4) }), ...(v6 && { v6: beginOf(v6) }) }),
  links: (conf) => FAMILIES.map((family) => device(conf, family)),
  checksumOffload: ({ TxChecksumOffload }, { card }) => chooseChecksumOffload(TxChecksumOffload, card),
  // The VNI stands after the UDP header of 8 bytes and 4 more bytes (RFC 7348). Other programs use the port with others.
  entrances: ({ VNI, Port }, { tunnel }) =>
    FAMILIES.filter((family) => tunnel[family] !== undefined).map((family) => ({
      family,
      match: `udp dport ${Port} @th,96,24 ${VNI}`,
    })),
}

/**
 * Sends packets for a node's pods to that node in UDP. Devices, entries and leases equal flannel's, so that both can
 * run in one cluster.
 */
export default vxlan

function own({ subnets, data }: Lease, family: Family, uplink: Uplink, conf: Conf, { instance }: Facts): Resource[] {
  const [subnet, local] = [subnets[family], uplink.tunnel[family]]
  if (subnet === undefined || local === undefined) return []
  const dev = device(conf, family)
  const { VtepMAC: mac } = vxlan.data(data)[family] ?? fail(`this node's lease of ${subnet} announces no VtepMAC`)
  const { VNI: id, Port: port, Learning: learning, GBP } = conf
  const { isOn: offload } = chooseChecksumOffload(conf.TxChecksumOffload, uplink.card)
  const attributes = {
    id,
    dev: uplink.name,
    local,
    port,
    learning,
    ...(GBP ? { gbp: true as const } : {}),
    ...(offload === undefined ? {} : { offload }),
  }
  return [
    {
      kind: 'link',
      ns: 'host',
      name: dev,
      type: 'vxlan',
      mac,
      mtu: inner(conf, uplink.mtu, family),
      alias: markOf(instance),
      vxlan: attributes,
      up: true,
    },
    // Same setting as flannel. A peer's pod is not a router.
    { kind: 'sysctl', ns: 'host', name: `ipv6/conf/${dev}/accept_ra`, value: '0', optional: true },
    { kind: 'addr', ns: 'host', dev, cidr: `${beginOf(subnet)}/${family === 'v4' ? 32 : 128}` as Cidr },
  ]
}

// Without this limit, the kernel silently drops packets that do not fit into the uplink's packets.
function inner({ MTU }: Conf, uplink: number, family: Family): number {
  return Math.min(MTU || uplink, uplink) - OVERHEAD[family]
}

// A device name has at most 15 characters. With a long VNI, flannel's name does not fit, and its agent does not start.
function device({ VNI }: Conf, family: Family): IfName {
  const names = family === 'v4' ? [`flannel.${VNI}`, `fl.${VNI}`] : [`flannel-v6.${VNI}`, `fl6.${VNI}`]
  return parse.ifname(names.find((name) => name.length <= 15))
}

function vtepOf(lease: Pick<Lease, 'data'>, family: Family): Vtep | string {
  const raw = lease.data[family]
  if (raw === undefined) return `it announces no VtepMAC for IPv${family === 'v4' ? 4 : 6}`
  try {
    return vtep(raw, family === 'v4' ? 'BackendData' : 'BackendV6Data')
  } catch (cause) {
    return (cause as Error).message
  }
}

function vtep(raw: unknown, at: string): Vtep {
  if (typeof raw !== 'object' || raw === null)
    throw new ValueError(`Cannot read ${at} ${shown(raw)}: want an object with VtepMAC`)
  const { VNI, VtepMAC } = raw as { VNI?: unknown; VtepMAC?: unknown }
  if (VNI !== undefined && !Number.isInteger(VNI))
    throw new ValueError(`Cannot read ${at}.VNI ${shown(VNI)}: want a whole number`)
  let mac: Mac
  try {
    mac = parse.mac(VtepMAC)
  } catch (cause) {
    throw new ValueError(`Cannot read ${at}.VtepMAC ${(cause as Error).message}`, { cause })
  }
  const linked = readOnLink(raw, at)
  return { ...(VNI === undefined ? {} : { VNI: VNI as number }), VtepMAC: mac, ...(linked && { OnLink: linked }) }
}

function fail(why: string): never {
  throw new ValueError(`Cannot program VXLAN: ${why}`)
}

// The MAC of a node's VXLAN device. It derives from the node's name, the VNI and the family. A new device gets the same
// MAC, so that the entries of peers stay right.
function macIn(lease: Pick<Lease, 'data'>, family: Family): Mac | undefined {
  const vtep = vtepOf(lease, family)
  return typeof vtep === 'string' ? undefined : vtep.VtepMAC
}

// A node whose MAC is not the one of its name has the device of another node.
function copied({ node, data }: Lease, { VNI }: Conf): string {
  const isOwn = (family: Family) =>
    macIn({ data }, family) === vtepMac(node ?? '', VNI, family === 'v4' ? 4 : 6) || data[family] === undefined
  return node === undefined || FAMILIES.every(isOwn) ? 'it is a copy of this node' : 'this node is a copy of it'
}

function vtepMac(node: string, id: number, family: 4 | 6): Mac {
  return localMac(digest(`vtep ${family} ${id} ${node}`))
}
