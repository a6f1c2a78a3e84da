import { ValueError } from '../../../lib/text/errors.ts'
import { PROTO } from '../../kernel/marks.ts'
import type { Backend } from '../backend.ts'
import { eachPeer, onLink, routed } from '../peers.ts'

const reach = eachPeer<object>(({ uplink, facts }) => {
  const isOnLink = onLink(uplink)
  return ({ subnet, ip }) => {
    if (!isOnLink(ip)) return `${ip} is not on the link ${uplink.name}, there is a router in between; want backend vxlan, or nodes that share a link`
    return routed({ kind: 'route', ns: 'host', dev: uplink.name, dst: subnet, via: [ip], exclusive: true, proto: PROTO }, facts)
  }
})

const hostGw: Backend<object, never> = {
  type: 'host-gw',
  conf: () => ({}),
  mtu: (_conf, uplink) => uplink,
  announce(_node, { name, tunnel, advertise }) {
    // Peers route to what they are told: behind a NAT that would be the router (flannel refuses it, too).
    for (const family of ['v4', 'v6'] as const)
      if (advertise[family] !== tunnel[family]) throw new ValueError(`Cannot use backend host-gw: peers are told ${advertise[family]}, which is not the address ${tunnel[family]} of ${name}; want no public address, or backend vxlan`)
    return {}
  },
  data: () => ({}),
  want: (self, peers, uplink, conf, facts) => reach(peers, { type: 'host-gw', self, uplink, conf, facts }),
  // There is no device of the overlay, and a bridge only once there was a pod: the next hop itself.
  answersAt: ({ ips }) => ips,
  links: () => [],
}

/** Packets to a node's pods are routed to that node, as they are: it has to be on the same link. flannel's, both families. */
export default hostGw
