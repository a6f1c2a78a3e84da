// Measures what the network promises before anything is looked up: packets on each kind of path, and for the lost ones
// the hop at which they are lost. Begin here. `agent/doctor/promise/` says which
// packets and sends them, `explain.ts` and `suspects.ts` say why one is lost.
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { bridgesOf } from '../../agent/doctor/facts/pods.ts'
import { measure } from '../../agent/doctor/promise/packets.ts'
import { firstOf, type Kind, type LocalPod, type Path, pathsOf, podsOfNode } from '../../agent/doctor/promise/paths.ts'
import { both } from '../../agent/lease/families.ts'
import { linkFacts } from '../../lib/os/links.ts'
import { inside } from '../../lib/os/netns.ts'
import { askForRoute } from '../../lib/os/route-question.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import { askPolicy } from '../ask-policy.ts'
import { attempt } from '../connectivity/attempt.ts'
import type { Given } from '../options.ts'
import { attachedPods } from '../trace/ends.ts'
import { type TraceReport, traced } from '../trace.ts'
import { endsOf, isAkin, type Loss, representatives } from './explain.ts'
import { readSuspects, type Scope, type Suspect } from './suspects.ts'

/** What was measured. */
export interface Promised {
  /** The number of packets that arrived, and of kinds of path. */
  readonly arrived: number
  readonly kinds: readonly Kind[]
  readonly losses: readonly Loss[]
  /** What was not measured, and why. */
  readonly notMade: readonly { readonly what: string; readonly why: string }[]
}

/** Addresses of documentation: the route to them is the default route (RFC 5737, RFC 3849). */
const OUTSIDE: readonly Ip[] = ['192.0.2.1', '2001:db8::1'].map((text) => parseIp(text))
/** Other peers and pods come first at each call, when there are many. */
const TURN_MS = 10_000
const VXLAN_PORT = 8472
/** So many peers are looked for among foreign routes. */
const MOST_ENDS = 100

/** Sends the packets, and explains the lost ones. Never rejects. `isRoot`: packets of pods can be sent. */
export async function measurePromise(facts: Facts, values: Given['values']): Promise<Promised> {
  const none = (why: string): Promised => ({ arrived: 0, kinds: [], losses: [], notMade: [{ what: 'packets', why }] })
  if (process.getuid?.() !== 0) return none('they need root; run it with sudo')
  const known = maybe(() => knownOf(facts, values))
  if (!known) return none('the agent does not answer')
  const paths = pathsOf(known, Math.floor(Date.now() / TURN_MS))
  const { arrived, lost, unsent } = await measure(paths, connects)
  const promised = lost.filter((path) => isPromised(path, arrived))
  const losses = await explainAll([...promised, ...unsent.map(({ path }) => path)], facts, values)
  const notMade = known.pods.length === 0 ? [{ what: 'packets of pods', why: 'no pod is on this node' }] : []
  return {
    arrived: arrived.length,
    kinds: [...new Set(arrived.map(({ kind }) => kind))],
    losses,
    notMade,
  }
}

function maybe<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

function knownOf(facts: Facts, values: Given['values']) {
  const { status } = facts
  if (!status) return undefined
  const pods = new Map<string, LocalPod>()
  for (const { container, ips, netns, name } of attachedPods(values['cache-dir'] ?? '/var/lib/cni')) {
    const had = pods.get(container)
    pods.set(container, { name: name ? `pod ${name}` : (had?.name ?? `pod ${container.slice(0, 13)}`), ips, netns })
  }
  return {
    pods: podsOfNode([...pods.values()], status),
    status,
    services: maybe(() => facts.services) ?? [],
    others: othersOf(values),
    routers: OUTSIDE.flatMap((to) => {
      const route = askForRoute({ to })
      return 'errno' in route || route.via === undefined ? [] : [route.via]
    }),
  }
}

/** So many pods of each other node get packets. */
const FAR_PODS = 2

// Pods of other nodes, of an agent that knows the objects of the cluster.
function othersOf(values: Given['values']): ReadonlyMap<string, readonly Ip[]> {
  const asked = { command: 'others', most: FAR_PODS }
  const told = maybe(() => askPolicy<{ readonly nodes: Readonly<Record<string, readonly Ip[]>> }>(asked, values))
  return new Map(Object.entries(told?.nodes ?? {}))
}

// A refusal is an answer: the path is open.
async function connects({ from, to, port = 0 }: Path): Promise<boolean> {
  const { state, says } = await attempt(from.ns, { protocol: 'TCP', to: to.ip, port, bytes: 0 })
  return state === 'arrived' || / refuses the connection/.test(says)
}

// Many routers do not answer at all: then nobody can say what becomes of the packets of pods.
function isPromised({ kind, to }: Path, arrived: readonly Path[]): boolean {
  return kind !== 'pod → outside' || arrived.some((one) => one.to.ip === to.ip)
}

async function explainAll(lost: readonly Path[], facts: Facts, values: Given['values']): Promise<Loss[]> {
  const losses: Loss[] = []
  // One after another: each follows its packet through the rules of the node.
  for (const path of representatives(lost)) {
    const paths = lost.filter((one) => isAkin(one, path))
    const trace = await follow(path.from, path.to.ip, path, values)
    const isFollowed = typeof trace !== 'string'
    if (isFollowed && isMeant(trace)) continue
    const isAnswerLost = isFollowed && trace.lostAt === 'answer' && path.to.ns !== undefined
    const back = isAnswerLost
      ? await follow({ ...path.to, ns: path.to.ns ?? 'host' }, path.from.ip, { bytes: path.bytes }, values)
      : undefined
    losses.push({ path, paths, trace, back, suspects: await suspectsOf(path, facts) })
  }
  return losses
}

// Policy, or a Service without endpoints: the network does what it should.
function isMeant({ lostAt, differsAt, hops }: TraceReport): boolean {
  const at = hops.find(({ hop }) => hop === lostAt)
  return differsAt === undefined && at?.expected?.passes === false && (lostAt === 'policy' || lostAt === 'service')
}

async function follow(
  from: Path['from'],
  to: Ip,
  { port, bytes }: Pick<Path, 'port' | 'bytes'>,
  values: Given['values'],
): Promise<TraceReport | string> {
  const word = from.ns === 'host' ? 'node' : from.ns
  const size = bytes > 0 ? { size: String(bytes) } : {}
  try {
    return await traced(
      word,
      to,
      port === undefined ? undefined : `${port}/tcp`,
      { ...values, ...size },
      { source: from.ip },
    )
  } catch (cause) {
    return (cause as Error).message
  }
}

// What stands on the way on this node, and in the pods at its ends.
async function suspectsOf(path: Path, facts: Facts): Promise<Suspect[]> {
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
    gateways: [],
    isPod: false,
  }
  const gateways = links.flatMap(({ addresses }) => addresses.map(({ ip }) => ip))
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
      const mac = maybe(() => inside(ns, () => linkFacts('eth0')?.mac))
      return mac === undefined ? [] : [[ip, mac]]
    }),
  )
}
