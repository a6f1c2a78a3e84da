// Where to look for what stands on the way of a lost packet: on this node, and in the pods at its ends.
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { bridgesOf } from '../../agent/doctor/facts/pods.ts'
import { firstOf, type Path } from '../../agent/doctor/promise/paths.ts'
import { both } from '../../agent/lease/families.ts'
import { linkFacts } from '../../lib/os/links.ts'
import { inside } from '../../lib/os/netns.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'
import { endsOf } from './explain.ts'
import type { Scope, Suspect } from './suspects/suspect.ts'
import { readSuspects } from './suspects.ts'

const VXLAN_PORT = 8472
/** So many peers are looked for among foreign routes. */
const MOST_ENDS = 100

/** What stands on the way of a lost packet, on this node and in the pods at its ends. Never rejects. */
export async function suspectsOf(path: Path, facts: Facts): Promise<Suspect[]> {
  const { status } = facts
  const { links, pods } = facts
  const ofPods = pods.flatMap(({ link }) => link ?? [])
  const bridges = [...bridgesOf(pods, links)]
  const isTunnel = (kind: string) => kind === 'vxlan' || kind === 'ipip' || kind === 'wireguard'
  const tunnels = links.filter(({ kind }) => isTunnel(kind)).map(({ name }) => name)
  const uplink = status?.uplink === undefined ? [] : [status.uplink.name]
  const peers = status?.peers.flatMap(({ ips }) => [ips.v4, ips.v6]) ?? []
  const own = [status?.uplink?.tunnel.v4, status?.uplink?.tunnel.v6]
  const tunnelEnds = (status?.peers ?? []).slice(0, MOST_ENDS).flatMap(({ subnets }) => both(subnets).map(firstOf))
  const isFar = path.to.ns === undefined
  const six = isSix(path.to.ip)
  const ends = [...endsOf([path]), ...(isFar ? [...peers, ...own, ...tunnelEnds] : [])].filter(
    (ip) => ip !== undefined,
  ) as Ip[]
  const atEnds = pods.filter(({ ips }) => ips.some((ip) => endsOf([path]).includes(ip)))
  const ports = atEnds.flatMap(({ link }) => link ?? [])
  const node: Scope = {
    ns: 'host',
    ips: ends.filter((ip) => isSix(ip) === six || isFar),
    links: [...(isFar ? [...tunnels.filter((name) => /v6/.test(name) === six), ...uplink] : []), ...bridges],
    ports: ports.length > 0 ? ports : ofPods.slice(0, 1),
    portNumbers: [
      VXLAN_PORT,
      ...links.flatMap(({ vxlan }) => vxlan?.port ?? []),
      ...(path.port === undefined ? [] : [path.port]),
    ],
    mtu: status?.mtu ?? 0,
    macs: macsOf(pathEnds(path)),
    ways: new Map(pods.flatMap(({ ips, link }) => (link === undefined ? [] : ips.map((ip) => [ip, link] as const)))),
    gateways: [],
    isPod: false,
  }
  // A pod's gateway is the address of this node in its own subnet.
  const ofEnds = atEnds.flatMap(({ ips }) => ips)
  const gateways = links.flatMap(({ addresses }) =>
    addresses.flatMap(({ ip, cidr }) => (ofEnds.some((end) => contains(cidr, end)) ? [ip] : [])),
  )
  const inPods = pathEnds(path).map(
    (place): Scope => ({
      ...node,
      ns: place.ns ?? 'host',
      links: ['eth0'],
      ports: [],
      gateways,
      isPod: true,
    }),
  )
  const all = await Promise.all([node, ...inPods].map((scope) => readSuspects(scope)))
  // What could not be read is no proof that nothing stands there.
  const unread = all.flatMap((one) => one.unread.map((why): Suspect => ({ text: `not known is ${why}` })))
  const found = all.flatMap(({ suspects }, i) =>
    i === 0
      ? suspects
      : suspects.map((one) => inPod(one, pathEnds(path)[i - 1]?.name ?? '', inPods[i - 1]?.ns ?? 'host')),
  )
  return [...found, ...unread]
}

function pathEnds({ from, to }: Path) {
  return [from, to].filter(({ ns }) => ns !== undefined && ns !== 'host')
}

function inPod({ text, undo }: Suspect, name: string, ns: string): Suspect {
  return {
    text: `in ${name}, ${text}`,
    ...(undo !== undefined && { undo: `nsenter --net=${ns} ${/[>|;&]/.test(undo) ? `sh -c '${undo}'` : undo}` }),
  }
}

// The MACs of the pods, as their own namespaces have them.
function macsOf(places: readonly Path['from' | 'to'][]): ReadonlyMap<Ip, string> {
  return new Map(
    places.flatMap(({ ip, ns = 'host' }): (readonly [Ip, string])[] => {
      const mac = macIn(ns)
      return mac === undefined ? [] : [[ip, mac]]
    }),
  )
}

// A namespace that went meanwhile has no MAC to compare with.
function macIn(ns: Netns): string | undefined {
  try {
    return inside(ns, () => linkFacts('eth0')?.mac)
  } catch {
    return undefined
  }
}
