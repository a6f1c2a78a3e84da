import assert from 'node:assert/strict'
import type { Cluster as Etcd } from './etcd.ts'
import { type Namespace, until } from './harness.ts'
import { type Cluster, inCluster, type Node, subnetEnv, UNDERLAY } from './nodes.ts'

// Leaves room for who attaches a namespace of its own.
let serial = 20

/** Makes the hub the router that the nodes' default routes name. */
export async function routeByHub({ hub }: Cluster): Promise<void> {
  await hub.ip('addr', 'add', `${UNDERLAY.v4(254)}/24`, 'dev', 'hub0')
  await hub.ip('addr', 'add', `${UNDERLAY.v6(254)}/64`, 'dev', 'hub0', 'nodad')
}

/** Lets the nodes reach an etcd: the hub is their router, and speaks for them. */
export async function joinEtcd(cluster: Cluster, etcd: Etcd): Promise<void> {
  await etcd.attach(cluster.hub, serial++)
  await routeByHub(cluster)
  const { status, stderr } = await cluster.hub.exec([
    'nft',
    'table ip speaks { chain out { type nat hook postrouting priority srcnat; oif "eth0" masquerade; }; }',
  ])
  assert.equal(status, 0, stderr)
}

/** Networks of tests in one etcd, each under a prefix of its own. */
export interface Networks {
  /** The current one's. */
  prefix(): string
  /** Writes the current one's configuration. */
  configure(conf: object): Promise<void>
  /** Its leases. */
  leases(): ReturnType<Etcd['list']>
  /** Wraps a test: so many nodes that reach the etcd, and a network with that configuration, or with none yet. */
  on<N extends keyof Several>(
    count: N,
    conf: object | undefined,
    work: (nodes: Several[N], cluster: Cluster) => Promise<void>,
  ): (this: Mocha.Context) => Promise<void>
}
interface Several {
  readonly 1: readonly [Node]
  readonly 2: readonly [Node, Node]
  readonly 3: readonly [Node, Node, Node]
  readonly 4: readonly [Node, Node, Node, Node]
}

/** Such networks, in the etcd that there is by the time of a test. */
export function networksIn(etcd: () => Etcd): Networks {
  let serial = 0
  const prefix = () => `/net${serial}`
  const configure = (conf: object) => etcd().put(`${prefix()}/config`, JSON.stringify(conf))
  const options = () => ['--etcd-endpoints', etcd().endpoints.join(','), '--etcd-prefix', prefix()]
  return {
    prefix,
    configure,
    leases: () => etcd().list(`${prefix()}/subnets/`),
    on(count, conf, work) {
      return inCluster(count, options, async (cluster, test) => {
        test.timeout(60_000)
        await joinEtcd(cluster, etcd())
        serial++
        if (conf) await configure(conf)
        await work(cluster.nodes as never, cluster)
      })
    },
  }
}

/**
 * The first address of a node's subnet, per family, as subnet.env has it: a bridge would have it. Throws as long as
 * there is none.
 */
export function gatewayOf(node: Node): { readonly v4?: string; readonly v6?: string } {
  const env = subnetEnv(node)
  const of = (key: string) => env?.[key]?.split('/')[0]
  const [v4, v6] = [of('FLANNEL_SUBNET'), of('FLANNEL_IPV6_SUBNET')]
  assert.ok(v4 || v6, `${node.name} has no subnet yet`)
  return { ...(v4 ? { v4 } : {}), ...(v6 ? { v6 } : {}) }
}

/** Puts it on the node, where it answers as a pod would. */
export async function stand(node: Node): Promise<void> {
  for (const address of Object.values(gatewayOf(node)))
    await node.ns.exec([
      'ip',
      'addr',
      'replace',
      `${address}/${address.includes(':') ? 128 : 32}`,
      'dev',
      'lo',
      ...(address.includes(':') ? ['nodad'] : []),
    ])
}

/**
 * Throws unless every node's gateway has packets of that size, by family, for every other's within the time, in one
 * piece.
 */
export async function assertReach(
  nodes: readonly Node[],
  mtu: { readonly v4?: number; readonly v6?: number },
  ms = 10_000,
): Promise<void> {
  for (const node of nodes) await stand(node)
  const pairs = nodes.flatMap((from) => nodes.filter((to) => to !== from).map((to) => [from, to] as const))
  for (const [from, to] of pairs)
    for (const [family, header] of [
      ['v4', 28],
      ['v6', 48],
    ] as const) {
      const size = mtu[family]
      if (size === undefined) continue
      const [source, target] = [gatewayOf(from)[family], gatewayOf(to)[family]] as [string, string]
      const argv = [
        'ping',
        '-n',
        '-q',
        '-c',
        '1',
        '-w',
        '1',
        '-M',
        'do',
        '-s',
        String(size - header),
        '-I',
        source,
        target,
      ]
      await until(async () => (await from.ns.exec(argv)).status === 0, ms).catch(() =>
        assert.fail(`${from.name} (${source}) does not reach ${to.name} (${target}) with ${size} bytes`),
      )
    }
}

/**
 * Echo requests from one gateway to another, a hundred a second, until `end`: how many were lost, and the longest time
 * without an answer.
 */
export interface Flow {
  end(): Promise<{ readonly sent: number; readonly lost: number; readonly gapMs: number }>
}

/** Begins them, and waits for the first answer. */
export async function flow(from: Namespace, source: string, target: string): Promise<Flow> {
  const child = Bun.spawn(
    ['nsenter', `--net=${from.path}`, '--', 'ping', '-n', '-i', '0.01', '-W', '1', '-I', source, target],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
  )
  let said = ''
  const reading = (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) said += text
  })()
  await until(() => /icmp_seq=\d+ ttl/.test(said), 10_000)
  return {
    async end() {
      child.kill('SIGINT')
      await child.exited
      await reading
      const seen = [...said.matchAll(/icmp_seq=(\d+) ttl/g)].map(([, n]) => Number(n))
      const sent = Number(/(\d+) packets transmitted/.exec(said)?.[1])
      // The last one may have been under way.
      const last = Math.max(...seen, sent - 1)
      const ordered = [...new Set([...seen, last + 1])].sort((a, b) => a - b)
      const gaps = ordered.slice(1).map((n, i) => n - (ordered[i] as number) - 1)
      return { sent, lost: gaps.reduce((sum, n) => sum + n, 0), gapMs: Math.max(0, ...gaps) * 10 }
    },
  }
}

/**
 * Makes one node of a cluster a pod of another. It has no link to the hub any more. It gets the second addresses of the
 * node's subnets, and a bridge of the node for a gateway. Gives its addresses.
 */
export async function becomePod(pod: Node, node: Node): Promise<{ readonly v4?: string; readonly v6?: string }> {
  const gateways = gatewayOf(node)
  await pod.ns.ip('link', 'del', 'eth0')
  await node.ns.ip('link', 'add', 'name', 'pods0', 'up', 'type', 'bridge')
  await node.ns.ip(
    'link',
    'add',
    'name',
    `pod${pod.n}`,
    'up',
    'master',
    'pods0',
    'type',
    'veth',
    'peer',
    'name',
    'eth0',
    'netns',
    pod.ns.path,
  )
  await pod.ns.ip('link', 'set', 'eth0', 'up')
  const own = Object.entries(gateways).map(
    ([family, gateway]) => [family, gateway.replace(/1$/, '2'), gateway] as const,
  )
  for (const [family, address, gateway] of own) {
    const [length, more] = family === 'v4' ? [24, []] : [64, ['nodad']]
    await node.ns.ip('addr', 'add', `${gateway}/${length}`, 'dev', 'pods0', ...more)
    await pod.ns.ip('addr', 'add', `${address}/${length}`, 'dev', 'eth0', ...more)
    await pod.ns.ip('route', 'add', 'default', 'via', gateway)
  }
  return Object.fromEntries(own)
}
