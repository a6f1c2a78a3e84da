// Each file of this folder is one backend. This is the shortest one that reaches peers, so begin here. `index.ts` is
// the generated table of backends.
import * as v from 'valibot'
import { ValueError } from '../../../lib/text/errors.ts'
import { PROTO } from '../../kernel/marks.ts'
import type { Backend } from '../backend.ts'
import { eachPeer, onLink, routed } from '../peers.ts'

// flannel reads these on Windows.
const SHAPE = v.object({
  Backend: v.object({ Name: v.exactOptional(v.unknown()), DNSServerList: v.exactOptional(v.unknown()) }),
})

const reach = eachPeer<object>(({ uplink, facts }) => {
  const isOnLink = onLink(uplink)
  return ({ subnet, ip }) => {
    const dev = uplink.name
    const want = 'want backend vxlan, or nodes that share a link'
    if (!isOnLink(ip)) return `${ip} is not on the link ${dev}, there is a router in between; ${want}`
    return routed({ kind: 'route', ns: 'host', dev, dst: subnet, via: [ip], exclusive: true, proto: PROTO }, facts)
  }
})

const hostGw: Backend<object, never> = {
  type: 'host-gw',
  shape: SHAPE,
  conf: () => ({}),
  mtu: (_conf, uplink) => uplink,
  announce(_node, { name, tunnel, advertise }) {
    // Peers route packets to the advertised address. Behind a NAT, the router has this address. flannel refuses it.
    for (const family of ['v4', 'v6'] as const) {
      const [given, own] = [advertise[family], tunnel[family]]
      if (given === own) continue
      const why = `peers are told ${given}, which is not the address ${own} of ${name}`
      throw new ValueError(`Cannot use backend host-gw: ${why}; want no public address, or backend vxlan`)
    }
    return {}
  },
  data: () => ({}),
  want: (self, peers, uplink, conf, facts) => reach(peers, { type: 'host-gw', self, uplink, conf, facts }),
  // The answer comes from the next hop itself. The overlay has no device here, and the first pod brings a bridge.
  answersAt: ({ ips }) => ips,
  links: () => [],
  byBird: () => ({}),
}

/**
 * Routes packets for a node's pods to that node, unchanged. The node must be on the same link. Works as flannel's
 * host-gw, for both families.
 */
export default hostGw
