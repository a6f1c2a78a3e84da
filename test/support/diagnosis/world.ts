// Three nodes with agents, two pods each, NetworkPolicy and Services: where faults of the data path are made.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Status } from '../../../agent/state/status.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import { DIST, makeNetwork } from '../doctor.ts'
import { type Namespace, plugin, until } from '../harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, UNDERLAY } from '../nodes.ts'
import { type Answering, startPod } from '../policy-fixture.ts'

const PLUMB = join(DIST, 'plumb')
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const READY_MS = 60_000
/** The Service of all second pods. */
export const SERVICE = { v4: '10.96.0.80' as Ip, v6: 'fd00:96::80' as Ip, port: 80 } as const
/** A router of the nodes' network, which stands for all that is outside. */
export const OUTSIDE = { v4: UNDERLAY.v4(254) as Ip, v6: UNDERLAY.v6(254) as Ip } as const

/** A pod: its namespace, its link on the node and its addresses. */
export interface PodOf {
  readonly name: string
  readonly ns: Namespace
  readonly link: string
  readonly v4: Ip
  readonly v6: Ip
}
/** A node of the world. */
export interface Place {
  readonly node: Node
  readonly agent: Agent
  /** Its namespace with files of its own: programs run there as on a machine. */
  readonly within: Namespace
  readonly pods: readonly [PodOf, PodOf]
  /** Its addresses at which the others reach it. */
  readonly v4: Ip
  readonly v6: Ip
  readonly bin: string
  readonly lists: string
  /** Its subnets. */
  readonly subnets: { readonly v4: string; readonly v6: string }
}
/** The world. */
export interface World {
  readonly hub: Namespace
  readonly places: readonly [Place, Place, Place]
}
/** What the command answered. */
export interface Told<Report> {
  readonly status: number
  readonly report: Report
  readonly ms: number
}

/** Wraps a test that gets worlds: each `open` makes a new one after the last has ended. */
export function inWorld(work: (world: World, test: Mocha.Context) => Promise<void>, ...more: readonly string[]) {
  return inCluster(
    9,
    (cluster) => [
      ...fileStore(cluster, NETWORK),
      `--network-policy=${join(cluster.dir, 'manifests')}`,
      `--service-proxy=${join(cluster.dir, 'manifests')}`,
      '--status-address=off',
      ...more,
    ],
    async (cluster, test) => {
      const running: Answering[] = []
      const undo: (() => unknown)[] = []
      try {
        await work(await made(cluster, running, undo), test)
      } finally {
        for (const one of undo.reverse()) await one()
        for (const one of running) one.kill()
      }
    },
  )
}

async function made({ nodes, hub, dir }: Cluster, running: Answering[], undo: (() => unknown)[]) {
  mkdirSync(join(dir, 'manifests'))
  await hub.ip('addr', 'add', `${OUTSIDE.v4}/24`, 'dev', 'hub0')
  await hub.ip('addr', 'add', `${OUTSIDE.v6}/64`, 'dev', 'hub0', 'nodad')
  const hosts = await Promise.all(nodes.slice(0, 3).map((node) => withFiles(node, undo)))
  const agents = hosts.map(({ node, way }) => node.agentBy(way))
  await Promise.all(agents.map((agent) => agent.ready(READY_MS)))
  const places = await Promise.all(
    hosts.map(async ({ node, ns: within }, i): Promise<Place> => {
      const agent = agents[i] as Agent
      const { bin, lists, conf } = makeNetwork(node)
      const add = async (name: string, ns: Namespace): Promise<PodOf> => {
        const call = (command: string) =>
          plugin(
            'flannel',
            {
              command,
              conf: { cniVersion: '1.0.0', name: 'cbr0', ...conf },
              containerId: `${name}-${ns.path.replace(/.*\//, '')}`,
              netns: ns,
              args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${name}`,
              path: bin,
            },
            within,
          )
        await ns.ip('link', 'del', 'eth0')
        const { status, result, stdout } = await call('ADD')
        assert.equal(status, 0, stdout)
        undo.push(() => call('DEL'))
        const { name: link } = result['interfaces'].find((one: { name: string }) => one.name.startsWith('veth'))
        const [v4, v6] = result['ips'].map((one: { address: string }) => one.address.replace(/\/.*/, ''))
        return { name, ns, link, v4, v6 }
      }
      const [one, other] = [nodes[3 + 2 * i], nodes[4 + 2 * i]] as [Node, Node]
      const pods = [await add(`a${i + 1}`, one.ns), await add(`b${i + 1}`, other.ns)] as const
      const { subnets } = (await agent.status()) as Status
      const at = { v4: UNDERLAY.v4(i + 1) as Ip, v6: UNDERLAY.v6(i + 1) as Ip }
      return { node, agent, within, pods, bin, lists, ...at, subnets: { v4: `${subnets.v4}`, v6: `${subnets.v6}` } }
    }),
  )
  write(join(dir, 'manifests'), places)
  const servers = places.flatMap(({ pods }) => pods.map(({ ns }) => startPod(ns.path.replace(/.*\//, ''))))
  running.push(...servers)
  await Promise.all(servers.map((one) => one.ready()))
  return { hub, places: places as unknown as World['places'] }
}

/** What every node has of its own. */
const OWN = [
  '/var/lib/plumb',
  '/var/lib/cni',
  '/run/plumb',
  '/run/cni',
  '/run/flannel',
  '/etc/plumb',
  '/etc/sysctl.d',
  '/etc/modules-load.d',
  '/var/tmp',
]

// Nodes share this machine. Each gets folders of its own, by a mount namespace that a sleeping process keeps.
async function withFiles(node: Node, undo: (() => unknown)[]) {
  const mounts = OWN.map((dir) => {
    const own = join(node.dir, 'files', dir)
    mkdirSync(own, { recursive: true })
    mkdirSync(dir, { recursive: true })
    return `mount --bind ${own} ${dir}`
  })
  const keeper = Bun.spawn(['unshare', '-m', 'sh', '-ec', `${mounts.join('\n')}\necho ready\nexec sleep infinity`], {
    stdout: 'pipe',
  })
  undo.push(() => keeper.kill('SIGKILL'))
  await linesOf(keeper.stdout).next()
  const way = ['nsenter', `--mount=/proc/${keeper.pid}/ns/mnt`, '--']
  const ns: Namespace = { ...node.ns, exec: (argv, options) => node.ns.exec([...way, ...argv], options) }
  return { node, way, ns }
}

// A policy that isolates the second pods and lets all in, and a Service of them.
function write(dir: string, places: readonly Place[]): void {
  const pods = places.flatMap(({ node, pods }) =>
    pods.map(({ name, v4, v6 }) => ({
      kind: 'Pod',
      metadata: { namespace: 'x', name, labels: { role: name.slice(0, 1) } },
      spec: { nodeName: node.name, containers: [] },
      status: { phase: 'Running', podIPs: [{ ip: v4 }, { ip: v6 }] },
    })),
  )
  const slices = (['v4', 'v6'] as const).map((family) => ({
    kind: 'EndpointSlice',
    metadata: { namespace: 'x', name: `web-${family}`, labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: family === 'v4' ? 'IPv4' : 'IPv6',
    ports: [{ name: '', port: SERVICE.port, protocol: 'TCP' }],
    endpoints: places.map(({ node, pods }) => ({
      addresses: [pods[1][family]],
      nodeName: node.name,
      conditions: { ready: true },
    })),
  }))
  const objects = [
    { kind: 'Namespace', metadata: { name: 'x' } },
    ...pods,
    {
      kind: 'NetworkPolicy',
      metadata: { namespace: 'x', name: 'pods' },
      spec: { podSelector: { matchLabels: { role: 'b' } }, ingress: [{}] },
    },
    {
      kind: 'Service',
      metadata: { namespace: 'x', name: 'web' },
      spec: {
        clusterIP: SERVICE.v4,
        clusterIPs: [SERVICE.v4, SERVICE.v6],
        ports: [{ port: SERVICE.port, targetPort: SERVICE.port, protocol: 'TCP' }],
      },
    },
    ...slices,
  ]
  writeFileSync(join(dir, 'all.yaml'), objects.map((one) => JSON.stringify(one)).join('\n---\n'))
}

/** Runs a command of plumb on a node, with `--json`. */
export async function ask<Report>(
  { node, within, bin, lists }: Place,
  ...words: readonly string[]
): Promise<Told<Report>> {
  const at = performance.now()
  const places = ['--socket', join(node.dir, 'agent.sock'), '--policy-socket', join(node.dir, 'policy.sock')]
  const files = ['--subnet-file', join(node.dir, 'subnet.env'), '--conf-dir', lists, '--bin-dir', bin]
  const { status, stdout, stderr } = await within.exec([PLUMB, ...words, '--json', ...places, ...files])
  assert.ok(stdout !== '', `plumb ${words.join(' ')}: ${stderr}`)
  return { status, report: JSON.parse(stdout) as Report, ms: Math.round(performance.now() - at) }
}

/** Waits until no node of the world is other than ready, and says which are when that takes too long. */
export async function isCalm({ places }: World, ms: number): Promise<void> {
  await until(async () => (await redOf(places)).length === 0, ms)
}

/** The nodes whose status is not `ready`, each with its reasons. */
export async function redOf(places: readonly Place[]): Promise<{ readonly name: string; readonly why: string }[]> {
  const all = await Promise.all(places.map(async ({ node, agent }) => [node.name, await agent.status()] as const))
  return all.flatMap(([name, status]) =>
    status?.state === 'ready'
      ? []
      : [{ name, why: [...(status?.reasons ?? ['no agent']), ...(status?.degraded ?? [])].join('; ') }],
  )
}
