import assert from 'node:assert/strict'
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { linesOf } from '../../lib/text/lines.ts'
import { type Namespace, until } from './harness.ts'
import { type Agent, fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from './nodes.ts'
import { patient } from './patience.ts'

const POD = join(import.meta.dir, 'service-pod.ts')
/** The ports of every backend. */
export const PORTS = [8080, 8081] as const
/** The network of the nodes. */
export const CONF = {
  Network: '10.244.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  Backend: { Type: 'host-gw' },
}

/**
 * Who asks or answers: backends a and b on n1, c on n2; pods p on n1 and q on n2 that only ask; the nodes themselves; a
 * client outside.
 */
export type Who = 'a' | 'b' | 'c' | 'p' | 'q' | 'n1' | 'n2' | 'client'
const PODS = { a: 0, b: 0, p: 0, c: 1, q: 1 } as const
type PodName = keyof typeof PODS
/** An endpoint: a backend that is ready, or one with these conditions and hints. */
export type Backend = PodName | { readonly pod: PodName; readonly conditions?: object; readonly hints?: object }

interface Options {
  readonly count?: number
  /** A limit for each answer. On a slow machine it is longer. */
  readonly ms?: number
  readonly from?: string
  readonly fromPort?: number
  readonly text?: string
}

/** Two nodes with agents that serve the manifests of a folder, pods on them, and a client outside. */
export interface Fixture {
  readonly n1: Node
  readonly n2: Node
  readonly client: Namespace
  readonly agents: Agent[]
  ip(pod: PodName, family?: 4 | 6): string
  /** Adds or replaces a Service of namespace x; `ports` of its spec may be left out: TCP 80 to 8080. */
  service(
    name: string,
    spec?: object,
    more?: { readonly status?: object; readonly labels?: Readonly<Record<string, string>> },
  ): void
  /** Adds or replaces the slice of a Service, of one family. */
  slice(
    service: string,
    backends: readonly Backend[],
    options?: { readonly ports?: readonly object[]; readonly family?: 4 | 6 },
  ): void
  /** Adds or replaces an object of any kind. */
  object(raw: {
    readonly kind: string
    readonly metadata: { readonly name: string; readonly [key: string]: unknown }
    readonly [key: string]: unknown
  }): void
  node(name: string, labels: Readonly<Record<string, string>>): void
  remove(kind: 'Service' | 'EndpointSlice', name: string): void
  /** Brings all of it to the agents, and waits until the kernels have it. */
  sync(): Promise<void>
  tcp(from: Who, ip: string, port: number, options?: Options): Promise<string[]>
  udp(from: Who, ip: string, port: number, options?: Options): Promise<string[]>
  /** Opens a TCP connection that stays, and says something on it. */
  hold(from: Who, ip: string, port: number): Promise<string>
  say(from: Who, ip: string, port: number, options?: Options): Promise<string>
  /** What nft lists on node n1. */
  nft(...words: readonly string[]): Promise<string>
}

/** Makes the fixture for a test, and ends it. `options` go to the agents; MANIFESTS in them is the folder. */
export function withFixture(
  work: (fixture: Fixture, test: Mocha.Context) => Promise<void>,
  ...options: readonly string[]
): (this: Mocha.Context) => Promise<void> {
  return withFixtureOf(CONF, work, ...options)
}

/** The same with another network. */
export function withFixtureOf(
  conf: object,
  work: (fixture: Fixture, test: Mocha.Context) => Promise<void>,
  ...options: readonly string[]
): (this: Mocha.Context) => Promise<void> {
  return inCluster(
    3,
    (cluster) => [
      ...fileStore(cluster, conf),
      `--service-proxy=${join(cluster.dir, 'manifests')}`,
      '--status-address=off',
      '--probe-interval=0',
      ...options.map((one) => one.replace('MANIFESTS', join(cluster.dir, 'manifests'))),
    ],
    async (cluster, test) => {
      test.timeout(600_000)
      const [n1, n2, outside] = cluster.nodes as [Node, Node, Node]
      const folder = join(cluster.dir, 'manifests')
      mkdirSync(folder)
      const agents = [n1.agent(), n2.agent()]
      await Promise.all(agents.map((agent) => agent.ready(30_000)))
      const processes = new Map<Who, Process>()
      const made: string[] = []
      const ips = new Map<PodName, { 4: string; 6: string }>()
      try {
        for (const [i, node] of [n1, n2].entries()) {
          const env = subnetEnv(node)
          // 10.244.1.1/24 and fd00:244:0:1::1/64
          const [four = '', six = ''] = [env?.['FLANNEL_SUBNET'], env?.['FLANNEL_IPV6_SUBNET']].map((text) =>
            text?.replace(/1\/\d+$/, ''),
          )
          // A redirect uses up the kernel's allowance of ICMP to the client, and then refusals are not told.
          const setup = [
            'sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0',
            'ip link add br0 type bridge',
            `ip addr add ${four}1/24 dev br0`,
            `ip addr add ${six}1/64 dev br0 nodad`,
            'ip link set br0 up',
          ]
          const own = Object.entries(PODS).filter(([, on]) => on === i)
          for (const [k, [pod]] of own.entries()) {
            const ns = `${node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)}-${pod}`
            made.push(ns)
            ips.set(pod as PodName, { 4: `${four}${k + 10}`, 6: `${six}${k + 10}` })
            setup.push(
              `ip netns add ${ns}`,
              `ip link add v${pod} master br0 up type veth peer name eth0 netns ${ns}`,
              `bridge link set dev v${pod} hairpin on`,
              `ip -n ${ns} addr add ${four}${k + 10}/24 dev eth0`,
              `ip -n ${ns} addr add ${six}${k + 10}/64 dev eth0 nodad`,
              `ip -n ${ns} link set eth0 up`,
              `ip -n ${ns} link set lo up`,
              `ip -n ${ns} route add default via ${four}1`,
              `ip -n ${ns} route add default via ${six}1`,
            )
          }
          await must(node.ns, setup)
          for (const [pod] of own)
            processes.set(pod as Who, start(pod, `/run/netns/${made.find((one) => one.endsWith(`-${pod}`))}`))
          processes.set(node.name as Who, start(node.name, node.ns.path))
        }
        // The client sends all that is not the underlay's to node n1.
        await must(outside.ns, [
          `ip route replace default via ${UNDERLAY.v4(1)}`,
          `ip -6 route replace default via ${UNDERLAY.v6(1)}`,
        ])
        processes.set('client', start('client', outside.ns.path))
        await Promise.all([...processes.values()].map((one) => one.ready()))
        await work(fixtureOf({ n1, n2, client: outside.ns, agents, ips, processes, folder }), test)
      } catch (cause) {
        const listed = await n1.ns.exec(['sh', '-c', 'nft list ruleset | sed -n 1,400p'])
        throw new Error(
          `${(cause as Error).message}\n${agents[0]?.log().slice(-2000)}\n${process.env['PLUMB_SHOW'] ? listed.stdout : ''}`,
          { cause },
        )
      } finally {
        for (const one of processes.values()) one.kill()
        await n1.ns.exec(['sh', '-c', made.map((ns) => `ip netns delete ${ns}`).join('\n')])
      }
    },
  )
}

interface Parts extends Pick<Fixture, 'n1' | 'n2' | 'client' | 'agents'> {
  readonly ips: ReadonlyMap<PodName, { readonly 4: string; readonly 6: string }>
  readonly processes: ReadonlyMap<Who, Process>
  readonly folder: string
}

function fixtureOf({ n1, n2, client, agents, ips, processes, folder }: Parts): Fixture {
  const objects = new Map<string, object>()
  let serial = 0
  const ip = (pod: PodName, family: 4 | 6 = 4) => (ips.get(pod) as { 4: string; 6: string })[family]
  async function ask(
    op: string,
    who: Who,
    to: string,
    port: number,
    { count = 1, ms = 1500, from, fromPort, text }: Options = {},
  ): Promise<string[]> {
    return (processes.get(who) as Process).ask({
      op,
      ip: to,
      port,
      count,
      ms: patient(ms),
      ...(from && { from }),
      ...(fromPort && { fromPort }),
      ...(text && { text }),
    })
  }
  return {
    n1,
    n2,
    client,
    agents,
    ip,
    service(name, spec = {}, { status = {}, labels = {} } = {}) {
      objects.set(`Service ${name}`, {
        kind: 'Service',
        metadata: { namespace: 'x', name, labels },
        spec: { ports: [{ port: 80 }], ...spec },
        status,
      })
    },
    slice(service, backends, { ports = [{ name: '', port: 8080 }], family = 4 } = {}) {
      const endpoints = backends.map((one) => {
        const {
          pod,
          conditions = { ready: true },
          hints,
        } = typeof one === 'string' ? { pod: one } : { hints: undefined, ...one }
        return {
          addresses: [ip(pod, family)],
          nodeName: PODS[pod] === 0 ? n1.name : n2.name,
          conditions,
          ...(hints && { hints }),
        }
      })
      const name = family === 4 ? service : `${service}-v6`
      objects.set(`EndpointSlice ${name}`, {
        kind: 'EndpointSlice',
        metadata: { namespace: 'x', name, labels: { 'kubernetes.io/service-name': service } },
        addressType: `IPv${family}`,
        ports,
        endpoints,
      })
    },
    object: (raw) => void objects.set(`${raw.kind} ${raw.metadata.name}`, raw),
    node: (name, labels) => void objects.set(`Node ${name}`, { kind: 'Node', metadata: { name, labels }, status: {} }),
    remove: (kind, name) => void objects.delete(`${kind} ${name}`),
    async sync() {
      // The agents read a folder as a whole: what the kernel has of the last object, it has of all.
      const marker = `203.0.${++serial >> 8}.${serial & 255}`
      objects.set('Service marker', {
        kind: 'Service',
        metadata: { namespace: 'marker', name: 'marker' },
        spec: { clusterIP: marker, ports: [{ port: 1 }] },
      })
      writeFileSync(join(folder, '.draft'), JSON.stringify({ kind: 'List', items: [...objects.values()] }))
      renameSync(join(folder, '.draft'), join(folder, 'all.json'))
      for (const { ns } of [n1, n2])
        await until(
          async () =>
            (await ns.exec(['nft', 'get', 'element', 'inet', 'plumb_services', 'vips4', `{ ${marker} }`])).status === 0,
          15_000,
        )
    },
    tcp: (who, to, port, options) => ask('tcp', who, to, port, options),
    udp: (who, to, port, options) => ask('udp', who, to, port, options),
    hold: async (who, to, port) => (await ask('hold', who, to, port))[0] as string,
    say: async (who, to, port, options) => (await ask('say', who, to, port, options))[0] as string,
    nft: async (...words) => (await n1.ns.exec(['nft', ...words])).stdout,
  }
}

async function must(ns: Namespace, lines: readonly string[]): Promise<void> {
  const { status, stderr } = await ns.exec(['sh', '-ec', lines.join('\n')])
  assert.equal(status, 0, stderr)
}

interface Process {
  ready(): Promise<void>
  ask(request: object): Promise<string[]>
  kill(): void
}

function start(name: string, netns: string): Process {
  const ports = /^[abc]$/.test(name) ? PORTS : []
  const child = Bun.spawn(['nsenter', `--net=${netns}`, process.execPath, POD, name, ...ports.map(String)], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => ((await lines.next()).value as string | undefined) ?? ''
  return {
    ready: async () => void assert.equal(await next(), 'ready'),
    async ask(request) {
      child.stdin.write(`${JSON.stringify(request)}\n`)
      child.stdin.flush()
      return JSON.parse(await next())
    },
    kill: () => child.kill('SIGKILL'),
  }
}
