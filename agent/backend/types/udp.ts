import * as v from 'valibot'
import type { Ip } from '../../../lib/text/ip.ts'
import { field, read } from '../../../lib/text/shape.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'
import { PROTO } from '../../kernel/marks.ts'
import type { Backend } from '../backend.ts'
import { eachPeer, routed, sourceOf } from '../peers.ts'
import { beginOf, entranceOf, refuseSix, tunnelDevice } from '../tunnel-device.ts'

interface Conf {
  /** The UDP port of all nodes, for both ends. */
  readonly Port: number
}
/** The data that a node announces when it sends from another address than it announces. flannel announces none. */
interface Data {
  readonly Source?: Ip
}

const DEVICE: IfName = parse.ifname('flannel0')
/** flannel's port (pkg/backend/udp/udp_amd64.go). */
const PORT = 8285
/** Bytes of the outer IPv4 and UDP headers. */
const OVERHEAD = 28
/** flannel's leases of this backend have no BackendType. */
const LEASE_TYPE = ''
const SHAPE = v.object({ Backend: v.object({ Port: v.optional(field.port, PORT) }) })

// flannel has one route for the whole network, as its program chooses the peer. The kernel chooses by the gateway.
const reach = eachPeer<Conf>(
  ({ facts }) =>
    ({ subnet, ip }) =>
      routed(
        { kind: 'route', ns: 'host', dev: DEVICE, dst: subnet, via: [ip], onlink: true, exclusive: true, proto: PROTO },
        facts,
      ),
)

const udp: Backend<Conf, Data> = {
  type: 'udp',
  shape: SHAPE,
  leaseType: LEASE_TYPE,
  conf: (options) => ({ Port: read(SHAPE, { Backend: options }).value.Backend.Port }),
  mtu: (_conf, uplink) => uplink - OVERHEAD,
  announce(_node, uplink) {
    refuseSix('udp', uplink)
    const data = sourceOf(uplink, 'v4')
    return data.Source === undefined ? {} : { v4: data }
  },
  data: () => ({}),
  want(self, peers, uplink, conf, facts) {
    // The node's routes do not matter here. Without them, a change of a route does not make the agent compute all peers
    // again.
    const seen = { ...uplink, routes: [] }
    const reached = reach(peers, { type: 'udp', leaseType: LEASE_TYPE, self, uplink: seen, conf, facts })
    const device = { name: DEVICE, mtu: uplink.mtu - OVERHEAD, port: conf.Port }
    return { ...reached, resources: [...tunnelDevice(device, self, uplink, facts), ...reached.resources] }
  },
  answersAt: ({ subnets: { v4 } }) => (v4 ? { v4: beginOf(v4) } : {}),
  links: () => [DEVICE],
  // The device also takes what comes without UDP.
  entrances: ({ Port }, uplink) => [{ family: 'v4', match: `udp dport ${Port}` }, ...entranceOf(uplink)],
  whySilent: (_peer, _handshakes, { Port }) => `want UDP port ${Port} to pass between the nodes`,
}

/**
 * Sends packets for a node's pods to that node inside of UDP, without a further header, 28 bytes each. Packets and
 * leases equal those of flannel's udp, so that both can run in one cluster. flannel copies each packet through a program.
 * Here the kernel does the work (FOU, ip-fou(8)). For IPv4 alone, as flannel's.
 */
export default udp
