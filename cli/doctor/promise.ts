// Measures what the network promises before anything is looked up: packets on each kind of path, and for the lost ones
// the hop at which they are lost. Begin here. `agent/doctor/promise/` says which packets and sends them, `explain.ts`,
// `scopes.ts` and `suspects.ts` say why one is lost.
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { measure } from '../../agent/doctor/promise/packets.ts'
import {
  type Kind,
  type Known,
  type LocalPod,
  type Path,
  pathsOf,
  podsOfNode,
} from '../../agent/doctor/promise/paths.ts'
import { askForRoute } from '../../lib/os/route-question.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import { askPolicy } from '../ask-policy.ts'
import { attempt } from '../connectivity/attempt.ts'
import type { Given } from '../options.ts'
import { attachedPods } from '../trace/ends.ts'
import { type TraceReport, traced } from '../trace.ts'
import { isAkin, type Loss, representatives } from './explain.ts'
import { suspectsOf } from './scopes.ts'

/** What was measured. */
export interface Promised {
  /** The number of packets that arrived, and of kinds of path. */
  readonly arrived: number
  /** The pods of this node that were at an end of some. */
  readonly pods: number
  readonly kinds: readonly Kind[]
  readonly losses: readonly Loss[]
  readonly notMade: readonly NotMade[]
}
/** What was not measured, and why. */
interface NotMade {
  readonly what: string
  readonly why: string
}

/** Addresses of documentation: the route to them is the default route (RFC 5737, RFC 3849). */
const OUTSIDE: readonly Ip[] = ['192.0.2.1', '2001:db8::1'].map((text) => parseIp(text))
/** Other peers and pods come first at each call, when there are many. */
const TURN_MS = 10_000
/** So much of a container's id tells it from others. */
const ID = 13

/** Sends the packets, and explains the lost ones. Never rejects. */
export async function measurePromise(facts: Facts, values: Given['values']): Promise<Promised> {
  const notMade: NotMade[] = []
  const known = process.getuid?.() === 0 ? knownOf(facts, values, notMade) : refused(notMade)
  if (!known) return { arrived: 0, pods: 0, kinds: [], losses: [], notMade }
  const paths = pathsOf(known, Math.floor(Date.now() / TURN_MS))
  const { arrived, lost, unsent } = await measure(paths, connects)
  const promised = lost.filter((path) => isPromised(path, arrived))
  const losses = await explainAll([...promised, ...unsent.map(({ path }) => path)], facts, values)
  const kinds = [...new Set(arrived.map(({ kind }) => kind))]
  return { arrived: arrived.length, pods: known.pods.length, kinds, losses, notMade }
}

function refused(notMade: NotMade[]): undefined {
  notMade.push({ what: 'packets', why: 'they need root; run it with sudo' })
  return undefined
}

// Undefined when nobody promises anything, and when that is not known.
function knownOf(facts: Facts, values: Given['values'], notMade: NotMade[]): Known | undefined {
  const told = tried(notMade, 'packets to other nodes and to Services', () => {
    if (facts.status === undefined && facts.network) throw new Error('no agent answers')
    return facts.status
  })
  const state = told ?? tried(notMade, 'packets', () => ownState(facts))
  if (!state) return undefined
  const pods = new Map<string, LocalPod>()
  for (const { container, name, reach, ...pod } of attachedPods(values['cache-dir'] ?? '/var/lib/cni')) {
    const had = pods.get(container)
    const known = name === undefined ? (had?.name ?? `pod ${container.slice(0, ID)}`) : `pod ${name}`
    const routes = reach ?? had?.reach
    pods.set(container, { ...pod, name: known, ...(routes && { reach: routes }) })
  }
  return {
    pods: podsOfNode([...pods.values()], state),
    status: state,
    services: (told && tried(notMade, 'packets to Services', () => facts.services)) ?? [],
    others: (told?.policy && tried(notMade, 'packets to pods of other nodes', () => othersOf(values))) || new Map(),
    routers: OUTSIDE.flatMap((to) => {
      const route = askForRoute({ to })
      return 'errno' in route || route.via === undefined ? [] : [route.via]
    }),
  }
}

// Without an agent, subnet.env says which pods are on this node.
function ownState({ network }: Facts): Known['status'] {
  if (!network) return undefined
  const [v4, v6] = [false, true].map((six) => network.subnets.find((one) => isSix(one) === six))
  return {
    subnets: { ...(v4 && { v4 }), ...(v6 && { v6 }) },
    mtu: network.mtu,
    peers: [],
    backend: 'none',
    uplink: undefined,
  }
}

// What cannot be read is not measured, and that is said.
function tried<T>(notMade: NotMade[], what: string, read: () => T): T | undefined {
  try {
    return read()
  } catch (cause) {
    notMade.push({ what, why: (cause as Error).message })
    return undefined
  }
}

/** So many pods of each other node get packets. */
const FAR_PODS = 2

// Pods of other nodes, of an agent that knows the objects of the cluster.
function othersOf(values: Given['values']): Known['others'] {
  const asked = { command: 'others', most: FAR_PODS }
  const { nodes } = askPolicy<{ readonly nodes: Readonly<Record<string, readonly Ip[]>> }>(asked, values)
  return new Map(Object.entries(nodes))
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
