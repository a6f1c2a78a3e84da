import * as v from 'valibot'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { field, read } from '../../../lib/text/shape.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'
import { markOf, PROTO } from '../../kernel/marks.ts'
import type { Backend } from '../backend.ts'
import { eachPeer, onLink, routed } from '../peers.ts'

/** The keys of `Backend` in net-conf.json, as flannel's. */
interface Conf {
  /** Peers on the uplink's own network get a route instead of a tunnel. */
  readonly DirectRouting: boolean
}

const DEVICE: IfName = parse.ifname('flannel.ipip')
/** Bytes of the outer IPv4 header (RFC 2003). */
const OVERHEAD = 20
const SHAPE = v.object({ Backend: v.looseObject({ DirectRouting: v.optional(field.flag, false) }) })

const reach = eachPeer<Conf>(({ uplink, conf, facts }) => {
  const isOnLink = onLink(uplink)
  return ({ subnet, ip }) => {
    const route = { kind: 'route', ns: 'host', dst: subnet, via: [ip], exclusive: true, proto: PROTO } as const
    if (conf.DirectRouting && isOnLink(ip)) return routed({ ...route, dev: uplink.name }, facts)
    return routed({ ...route, dev: DEVICE, onlink: true }, facts)
  }
})

const ipip: Backend<Conf, never> = {
  type: 'ipip',
  conf: (options) => ({ DirectRouting: read(SHAPE, { Backend: options }).value.Backend.DirectRouting }),
  mtu: (_conf, uplink) => uplink - OVERHEAD,
  announce(_node, { tunnel }) {
    if (tunnel.v4 === undefined || tunnel.v6 !== undefined)
      throw new ValueError(
        'Cannot use backend ipip with IPv6: it carries IPv4 alone; want "EnableIPv6": false, or backend vxlan',
      )
    return {}
  },
  data: () => ({}),
  want(self, peers, uplink, conf, facts) {
    // Drops the routes that this backend does not use. Otherwise every change of any route makes the agent compute all
    // peers again.
    const seen = conf.DirectRouting ? uplink : { ...uplink, routes: [] }
    const reached = reach(peers, { type: 'ipip', self, uplink: seen, conf, facts })
    const [subnet, local] = [self.subnets.v4, uplink.tunnel.v4]
    if (subnet === undefined || local === undefined) return reached
    const device = {
      kind: 'link',
      ns: 'host',
      name: DEVICE,
      type: 'ipip',
      mtu: uplink.mtu - OVERHEAD,
      alias: markOf(facts.instance),
      ipip: { local },
      up: true,
    } as const
    const address = { kind: 'addr', ns: 'host', dev: DEVICE, cidr: `${beginOf(subnet)}/32` as Cidr } as const
    return { ...reached, resources: [device, address, ...reached.resources] }
  },
  // The address of the device. A node has it before its first pod, and a node with flannel has it, too.
  answersAt: ({ subnets: { v4 } }) => (v4 ? { v4: beginOf(v4) } : {}),
  links: () => [DEVICE],
}

/**
 * Sends packets for a node's pods to that node inside of IPv4 packets (RFC 2003), 20 bytes each and without a port. The
 * device and the leases equal flannel's, so that both can run in one cluster. For IPv4 alone, as flannel's.
 */
export default ipip

function beginOf(subnet: Cidr): Ip {
  return subnet.slice(0, subnet.indexOf('/')) as Ip
}
