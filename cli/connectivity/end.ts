import { run } from '../../lib/os/exec.ts'
import { inside } from '../../lib/os/netns.ts'
import { askForRoute } from '../../lib/os/route-question.ts'
import type { NetworkList } from '../../lib/runtime/network-list.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Netns, NetnsPath } from '../../lib/text/values.ts'
import { addressesOf } from '../trace/ends.ts'
import { type Attempt, attempt, type Outcome } from './attempt.ts'
import { type EchoAddress, serveEchoes, serveInits } from './echo-server.ts'
import { serveSink } from './sink.ts'
import { DENIED_PORT, ECHO_PORT, makeTestPods, type PodNames } from './test-pods.ts'

/** Where a packet begins or ends on a node: the node itself, or one of its two test pods. */
export type PlaceName = 'node' | 'pod 1' | 'pod 2'
/** A place, with an echo server for each family that it has. */
export interface TestEnd {
  readonly v4?: EchoAddress
  readonly v6?: EchoAddress
}
/** What the others need to know of a node. */
export interface EndFacts {
  /** The name of the node in the cluster, as its agent has it, else that of the machine. */
  readonly node: string
  /** The name of the network of its pods. Absent without test pods. */
  readonly network?: string
  /** The MTU of the test pods' link, else that of the node's own link, in bytes. */
  readonly mtu: number
  /** The port of the node that leads to the echo servers of its first pod. Absent where no plugin maps ports. */
  readonly hostPort?: number
  /** The agent of the node enforces NetworkPolicy. */
  readonly hasPolicy: boolean
  /** The namespaces of the test pods. Absent without test pods. */
  readonly spaces?: Readonly<Record<Exclude<PlaceName, 'node'>, NetnsPath>>
  /** All addresses of the node. */
  readonly addresses: readonly Ip[]
  readonly places: Readonly<Record<PlaceName, TestEnd>>
}
/** The side of a test on one node: its test pods, its echo servers, and what sends from there. */
export interface End {
  readonly facts: EndFacts
  /** Sends from a place, and waits for the echo. Rejects when the node cannot be asked any more. */
  attempt(from: PlaceName, tried: Attempt): Promise<Outcome>
  /** Removes all that the end made. */
  close(): Promise<void>
}

// Addresses for documentation (RFC 5737, RFC 3849). The route to them is the default route.
const OUTSIDE = ['192.0.2.1', '2001:db8::1'].map(parseIp)
const LINK = 'eth0'

/** What makes the end of a node. */
export interface EndWish {
  /** Absent: no test pods are made. */
  readonly network?: NetworkList
  /** The folders of the plugins. */
  readonly plugins: readonly string[]
  readonly node: string
  readonly hasPolicy: boolean
  /** The objects of the test pods in the Kubernetes API, if there are any. */
  readonly names?: PodNames
}

/**
 * Makes the end of this node in its network, or without pods. Throws CniError when a plugin fails, and ExecError when a
 * tool does. Nothing is left then.
 */
export async function openEnd({ network, plugins, node, hasPolicy, names }: EndWish): Promise<End> {
  const pods = network && (await makeTestPods(network, plugins, names))
  const servers: { close(): void }[] = []
  const close = async () => {
    for (const server of servers) server.close()
    await pods?.close()
  }
  const [one, other] = pods?.spaces ?? []
  const spaces: Readonly<Partial<Record<PlaceName, Netns>>> = {
    node: 'host',
    ...(one && other && { 'pod 1': one, 'pod 2': other }),
  }
  try {
    const place = async (ns: Netns, ips: readonly Ip[], port: number): Promise<TestEnd> => {
      const found: { v4?: EchoAddress; v6?: EchoAddress } = {}
      for (const ip of ips) {
        const family = isSix(ip) ? 'v6' : 'v4'
        if (found[family]) continue
        const [server, sink] = [await serveEchoes(ns, ip, port), serveSink(ns, ip)]
        servers.push(server, sink)
        found[family] = {
          ip,
          tcp: server.tcp,
          udp: server.udp,
          sink: sink.port,
          ...(port !== 0 && { sctp: port }),
        }
        if (port !== 0) servers.push(serveInits(ns, ip, port), await serveEchoes(ns, ip, DENIED_PORT))
      }
      return found
    }
    const facts: EndFacts = {
      node,
      ...(network && { network: network.name }),
      ...(one && other && { spaces: { 'pod 1': one, 'pod 2': other } }),
      mtu: one ? await mtuOf(one, LINK) : await mtuOf('host', await uplink()),
      hasPolicy: hasPolicy && pods !== undefined,
      ...(pods?.hostPort !== undefined && { hostPort: pods.hostPort }),
      addresses: addressesOf('host').filter((ip) => !/^(127\.|::1$)/.test(ip)),
      places: {
        node: await place('host', OUTSIDE.flatMap(sourceTo), 0),
        'pod 1': one ? await place(one, addressesOf(one), ECHO_PORT) : {},
        'pod 2': other ? await place(other, addressesOf(other), ECHO_PORT) : {},
      },
    }
    return { facts, attempt: (from, tried) => attempt(spaces[from] ?? 'host', tried), close }
  } catch (cause) {
    await close()
    throw cause
  }
}

// The address of the default route. Empty when this node has none of that family.
function sourceTo(to: Ip): Ip[] {
  const route = inside('host', () => askForRoute({ to }))
  return 'errno' in route || route.source === undefined ? [] : [route.source]
}

// The link of the default route. Throws ValueError when there is none.
async function uplink(): Promise<string> {
  for (const to of OUTSIDE) {
    const { status, stdout } = await run(['ip', '-json', 'route', 'get', to], '')
    const [route] = status === 0 ? (JSON.parse(stdout) as { readonly dev?: string }[]) : []
    if (route?.dev !== undefined) return route.dev
  }
  throw new ValueError('This node has no default route: want one, so that its own address is known')
}

async function mtuOf(ns: Netns, link: string): Promise<number> {
  const { stdout } = await run(['ip', '-json', 'link', 'show', 'dev', link], '', ns)
  return (JSON.parse(stdout) as { readonly mtu: number }[])[0]?.mtu ?? 0
}
