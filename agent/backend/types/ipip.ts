import * as v from 'valibot'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { field, read } from '../../../lib/text/shape.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'
import { PROTO } from '../../kernel/marks.ts'
import type { Backend } from '../backend.ts'
import { eachPeer, isDirect, networksOnLink, onLinkOf, readOnLink, routed, sourceOf } from '../peers.ts'
import { beginOf, entranceOf, refuseSix, tunnelDevice } from '../tunnel-device.ts'

/** When packets go by the tunnel, in Calico's words: to all peers, to those behind a router, or to none. */
type Mode = (typeof MODES)[number]
interface Conf {
  readonly mode: Mode
}
/** The data that a node announces when not all of its peers use the tunnel, or behind NAT. flannel announces none. */
interface Data {
  /** The networks that the node reaches without a router. */
  readonly OnLink?: readonly Cidr[]
  /** The address that the node sends from, when it announces another one. */
  readonly Source?: Ip
}

const MODES = ['Always', 'CrossSubnet', 'Never'] as const
const DEVICE: IfName = parse.ifname('flannel.ipip')
/** Bytes of the outer IPv4 header (RFC 2003). */
const OVERHEAD = 20
// `DirectRouting` is flannel's key, `ipipMode` is Calico's.
const SHAPE = v.object({
  Backend: v.object({
    DirectRouting: v.optional(field.flag, false),
    ipipMode: v.exactOptional(field.word(...MODES)),
  }),
})

const reach = eachPeer<Conf>(({ uplink, conf: { mode }, facts }) => {
  const isPlain = isDirect(uplink)
  return (peer) => {
    const { subnet, ip } = peer
    const route = { kind: 'route', ns: 'host', dst: subnet, via: [ip], exclusive: true, proto: PROTO } as const
    const linked = onLinkOf(peer)
    if (typeof linked === 'string') return linked
    if (mode !== 'Always' && isPlain(peer, linked)) return routed({ ...route, dev: uplink.name }, facts)
    if (mode === 'Never')
      return `${ip} is not on the link ${uplink.name}, there is a router in between; want ipipMode CrossSubnet`
    return routed({ ...route, dev: DEVICE, onlink: true }, facts)
  }
})

const ipip: Backend<Conf, Data> = {
  type: 'ipip',
  shape: SHAPE,
  live: ['DirectRouting'],
  conf(options) {
    const { DirectRouting, ipipMode } = read(SHAPE, { Backend: options }).value.Backend
    return { mode: ipipMode ?? (DirectRouting ? 'CrossSubnet' : 'Always') }
  },
  mtu: ({ mode }, uplink) => (mode === 'Never' ? uplink : uplink - OVERHEAD),
  announce(_node, uplink, { mode }) {
    refuseSix('ipip', uplink)
    const linked = mode === 'Always' ? {} : { OnLink: networksOnLink(uplink, 'v4') }
    const data = { ...linked, ...(mode === 'Never' ? {} : sourceOf(uplink, 'v4')) }
    return Object.keys(data).length === 0 ? {} : { v4: data }
  },
  data({ v4 }) {
    const linked = readOnLink(v4, 'BackendData')
    return linked ? { v4: { OnLink: linked } } : {}
  },
  want(self, peers, uplink, conf, facts) {
    // Drops the routes that this backend does not use. Otherwise every change of any route makes the agent compute all
    // peers again.
    const seen = conf.mode === 'Always' ? { ...uplink, routes: [] } : uplink
    const reached = reach(peers, { type: 'ipip', self, uplink: seen, conf, facts })
    if (conf.mode === 'Never') return reached
    const device = { name: DEVICE, mtu: uplink.mtu - OVERHEAD }
    return { ...reached, resources: [...tunnelDevice(device, self, uplink, facts), ...reached.resources] }
  },
  // The address of the device. A node has it before its first pod, and a node with flannel has it, too. Without the
  // device, the next hop answers.
  answersAt: ({ subnets: { v4 }, ips }, { mode }) => (mode === 'Never' ? ips : v4 ? { v4: beginOf(v4) } : {}),
  links: () => [DEVICE],
  byBird: ({ mode }) => (mode === 'Never' ? {} : { device: DEVICE, isAlways: mode === 'Always' }),
  entrances: ({ mode }, uplink) => (mode === 'Never' ? [] : entranceOf(uplink)),
  whySilent: (_peer, _handshakes, { mode }) =>
    mode === 'Never' ? undefined : 'want IP protocol 4 to pass between the nodes (clouds need a rule, Azure drops it)',
}

/**
 * Sends packets for a node's pods to that node inside of IPv4 packets (RFC 2003), 20 bytes each and without a port. The
 * device and the leases equal flannel's, so that both can run in one cluster. For IPv4 alone, as flannel's.
 */
export default ipip
