import assert from 'node:assert/strict'
import type { Status } from '../../../agent/state/status.ts'
import { connections } from '../connections.ts'
import { assertReach, flow } from '../etcd-networks.ts'
import { podOn } from '../flows.ts'
import { inNamespaces, type Namespace, until } from '../harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../nodes.ts'

/** A backend in a row of changes: the MTU of its pods on an uplink of 1500, and its device when it has one. */
interface Way {
  readonly type: string
  readonly mtu: number
  readonly device?: string
}
/** The backends that reach other nodes by themselves. */
export const WAYS = {
  vxlan: { type: 'vxlan', mtu: 1450, device: 'flannel.1' },
  'host-gw': { type: 'host-gw', mtu: 1500 },
  ipip: { type: 'ipip', mtu: 1480, device: 'flannel.ipip' },
  wireguard: { type: 'wireguard', mtu: 1420, device: 'flannel-wg' },
  udp: { type: 'udp', mtu: 1472, device: 'flannel0' },
} as const satisfies Readonly<Record<string, Way>>

const HELD = 20
const ALL_MS = 60_000

/** Defines the test of three nodes that change their backend one by one, along a row of backends that ends as it begins. */
export function testBackendChange(chain: readonly Way[]): void {
  const [begin, ...changes] = chain as [Way, ...Way[]]
  it(
    `${chain.map(({ type }) => type).join(' → ')}, node by node by SIGHUP: peers of the other backend are named, have no route, and nodes that do not change lose no packet; at the end of each change all connections go on and nothing of the former backend is left`,
    inCluster(
      3,
      (one) => fileStore(one, configurationOf(begin)),
      async (cluster, test) => {
        test.timeout(800_000)
        const agents = cluster.nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(ALL_MS)
        await inNamespaces(['a', 'b', 'c'], async (spaces) => {
          const pods: { ns: Namespace; address: string }[] = []
          for (const [i, ns] of Object.values(spaces).entries())
            pods.push({ ns, address: await podOn(cluster.nodes[i] as Node, ns) })
          await assertReach(cluster.nodes, { v4: begin.mtu })
          const held = await Promise.all(
            pods.map(({ ns }, i) => {
              const { ns: to, address } = pods[(i + 1) % pods.length] as (typeof pods)[number]
              return connections(ns, to, address, HELD)
            }),
          )
          const first = await Promise.all(cluster.nodes.map(traces))
          const types = agents.map(() => begin.type)
          for (const to of changes) {
            fileStore(cluster, configurationOf(to))
            for (const [i, agent] of agents.entries()) {
              // The two others have one backend, except while the second node changes.
              const [one, two] = [(i + 1) % 3, (i + 2) % 3] as const
              const beside = types[one] === types[two] ? await between(pods[one], pods[two]) : undefined
              process.kill(agent.pid, 'SIGHUP')
              types[i] = to.type
              await assertNamed(cluster, agents, types)
              await beside?.()
            }
            for (const one of held) await one.exchange(ALL_MS, 4000)
            await assertReach(cluster.nodes, { v4: to.mtu })
            for (const node of cluster.nodes) {
              assert.equal(subnetEnv(node)?.['FLANNEL_MTU'], `${to.mtu}`)
              assertOnly(to, await traces(node))
            }
            for (const agent of agents) await until(async () => (await agent.status())?.state === 'ready', ALL_MS)
          }
          for (const [i, node] of cluster.nodes.entries()) assert.deepEqual(await traces(node), first[i])
          for (const one of held) await one.end()
        }).call(test)
      },
    ),
  )
}

function configurationOf({ type }: Way): object {
  return { Network: '10.244.0.0/16', Backend: { Type: type } }
}

// Sends packets between two pods until it is called, and throws when one was lost.
async function between(
  one: { ns: Namespace; address: string } | undefined,
  two: { ns: Namespace; address: string } | undefined,
): Promise<() => Promise<void>> {
  assert.ok(one && two)
  const running = await flow(one.ns, one.address, two.address)
  return async () => {
    const { sent, lost } = await running.end()
    assert.ok(sent > 0)
    assert.equal(lost, 0, `${lost} of ${sent} packets between ${one.ns.name} and ${two.ns.name} lost`)
  }
}

// Waits until each node has its backend, names the peers of another one, and has routes to those of its own alone.
async function assertNamed({ nodes }: Cluster, agents: readonly Agent[], types: readonly string[]): Promise<void> {
  for (const [i, node] of nodes.entries()) {
    const [agent, own] = [agents[i] as Agent, types[i] as string]
    const others = nodes.map(({ name }, at) => ({ name, type: types[at] as string })).filter((_, at) => at !== i)
    const wanted = others.map(({ name, type }) => [name, type === own ? undefined : reasonOf(type, own)])
    await until(async () => {
      const status = (await agent.status()) as Status
      const problems = new Map(status.peers.map((peer) => [peer.node, peer.problem]))
      assert.deepEqual(
        [status.backend, status.ready, wanted.map(([name]) => problems.get(name))],
        [own, true, wanted.map(([, problem]) => problem)],
      )
      for (const { name, type } of others) {
        const there = nodes.find((one) => one.name === name) as Node
        const subnet = (subnetEnv(there)?.['FLANNEL_SUBNET'] ?? '').replace('.1/', '.0/')
        const isRouted = (await routed(node, own, subnet)) !== ''
        assert.equal(isRouted, type === own, `${node.name} ${isRouted ? 'has' : 'lacks'} a way to ${name}`)
      }
      return true
    }, ALL_MS)
    for (const [, problem] of wanted) if (problem) assert.ok(agent.log().includes(problem), agent.log())
  }
}

function reasonOf(theirs: string, own: string): string {
  const what = theirs === 'udp' ? 'it announces no backend, as udp does' : `it uses backend "${theirs}"`
  return `${what}, this node ${own}`
}

// What leads a node's packets to a subnet: a route of its own, or with WireGuard a peer. Empty when nothing does.
async function routed({ ns }: Node, type: string, subnet: string): Promise<string> {
  if (type !== 'wireguard') return ns.ip('route', 'show', 'proto', '112', 'exact', subnet)
  const { stdout } = await ns.exec(['wg', 'show', 'flannel-wg', 'allowed-ips'])
  return stdout.split('\n').find((line) => line.endsWith(`\t${subnet}`)) ?? ''
}

/** Throws when a line names a device of another backend, or an entry that this backend does not have. */
function assertOnly({ type, device }: Way, lines: readonly string[]): void {
  const others = Object.values(WAYS).flatMap((way) => ('device' in way && way.device !== device ? [way.device] : []))
  const left = lines.filter((line) => others.some((one) => line.includes(one)))
  if (type !== 'wireguard') left.push(...lines.filter((line) => /unreachable|allowed ips/.test(line)))
  if (type !== 'vxlan') left.push(...lines.filter((line) => /lladdr| dst /.test(line)))
  // The rules about strangers are of devices that take packets from anybody.
  if (type === 'host-gw' || type === 'wireguard') left.push(...lines.filter((line) => /plumb_tunnels/.test(line)))
  if (type !== 'udp') left.push(...lines.filter((line) => /"port"/.test(line)))
  assert.deepEqual(left, [])
}

// The links, addresses, routes, nexthops, rules, entries, ports and tables of a node, without what differs from one
// device to the next of the same name.
async function traces({ ns }: Node): Promise<string[]> {
  const lines = [
    'ip -o -d link | sed "s/link.*//; s/ state .*//"',
    'ip -4 -o addr',
    'ip -4 route show table all | grep -v "table local"',
    'ip nexthop',
    'ip rule',
    'ip neigh show nud permanent',
    'bridge fdb | grep dst',
    'nft list tables',
    'ip -j fou show',
    'ip -o link show type wireguard | grep -q . && wg show all | grep -E "allowed ips|public key|listening"',
  ]
  const texts = await Promise.all(lines.map(async (line) => (await ns.exec(['sh', '-c', line])).stdout.split('\n')))
  return texts
    .flatMap((rows) => rows.map((row) => row.replace(/^\d+: /, '').trimEnd()).sort())
    .filter((row) => row !== '' && row !== '[]')
}
