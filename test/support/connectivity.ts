// Nodes whose runtimes have a network, and `plumb connectivity` between them.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { listFiles } from '../../lib/os/reading.ts'
import { makeNetwork, type Place } from './doctor.ts'
import { until } from './harness.ts'
import { type Agent, type Cluster, fileStore, inCluster } from './nodes.ts'

/** Chains the plugin for host ports, as the network of the chart does. */
const PORTS = [{ type: 'portmap', capabilities: { portMappings: true } }]
/** The program. */
export const PLUMB = join(import.meta.dir, '../../dist/plumb')
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

/** An address outside of the cluster, for each family. */
export const OUTSIDE = ['172.30.0.200', 'fd00:30::200'] as const

const RESULTS = '/run/plumb/connectivity/cache/results'

interface Side {
  readonly node: string
  readonly place: string
  readonly ip: string
  readonly port?: number
}
/** A case as `plumb connectivity --json` has it. */
export interface Case {
  readonly way: string
  readonly test: string
  readonly family: string
  readonly from: Side
  readonly to: Side
  readonly state: 'ok' | 'failed' | 'not made'
  readonly says: string
}
/** What `plumb connectivity --json` prints. */
export interface Told {
  readonly status: number
  readonly cases: readonly Case[]
  readonly notMade: readonly { readonly what: string; readonly why: string }[]
  readonly findings: readonly { readonly code: string; readonly text: string }[]
}
/** A node with its agent. */
export interface Member extends Place {
  readonly agent: Agent
}

/** The words that run the command on the first of these nodes, with a far end on each of the others. */
export function wordsOf([near, ...fars]: readonly Place[], ...more: string[]): string[] {
  const { node, bin, lists } = near as Place
  const far = ({ node, bin, lists }: Place) =>
    `${node.name}=nsenter --net=${node.ns.path} env CNI_PATH=${bin} NETCONFPATH=${lists} ${PLUMB}`
  return [
    PLUMB,
    'connectivity',
    ...fars.flatMap((one) => ['--far', far(one)]),
    ...['--socket', join(node.dir, 'agent.sock'), '--subnet-file', join(node.dir, 'subnet.env')],
    ...['--conf-dir', lists, '--bin-dir', bin],
    ...more,
  ]
}

/** Runs `plumb connectivity --json` on the first of these nodes. */
export async function connectivity(places: readonly Place[], ...more: string[]): Promise<Told> {
  const { status, stdout, stderr } = await (places[0] as Place).node.ns.exec(wordsOf(places, '--json', ...more))
  assert.ok(stdout.startsWith('{\n    "cases"'), `${status}: ${stdout}\n${stderr}`)
  const told = JSON.parse(stdout) as Told
  // Without its agent, this node has the name of the machine.
  const names = new Set(places.map(({ node }) => node.name))
  const named = (side: Side) =>
    side.node === '' || names.has(side.node) ? side : { ...side, node: (places[0] as Place).node.name }
  return { ...told, status, cases: told.cases.map((one) => ({ ...one, from: named(one.from), to: named(one.to) })) }
}

/** Wraps a test: nodes n1 and so on with agents, whose runtimes have the network of the agent. No pod is left. */
export function onNodes(count: number, work: (members: readonly Member[]) => Promise<void>) {
  const options = (cluster: Cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=2']
  return inCluster(count, options, async ({ nodes, hub }, test) => {
    test.timeout(400_000)
    const [four, six] = OUTSIDE
    await hub.ip('address', 'add', `${four}/24`, 'dev', 'hub0')
    await hub.ip('address', 'add', `${six}/64`, 'dev', 'hub0', 'nodad')
    const agents = nodes.map((node) => node.agent())
    await Promise.all(agents.map((agent) => agent.ready(30_000)))
    await until(async () => {
      const all = await Promise.all(agents.map((agent) => agent.status()))
      return all.every(
        (one) => one?.peers.length === count - 1 && one.peers.every(({ probe }) => probe?.state === 'answers'),
      )
    }, 45_000)
    const members = nodes.map(
      (node, i): Member => ({ ...makeNetwork(node, undefined, PORTS), agent: agents[i] as Agent }),
    )
    await work(members)
    for (const member of members) assert.deepEqual(await leftOn(member), [])
    const names = ['/run/netns', '/run/plumb/connectivity', RESULTS].flatMap(listFiles)
    assert.deepEqual(
      names.filter((name) => /^(plumb-connectivity-.*|[\da-f]{8}(\.lock)?|.*eth0)$/.test(name)),
      [],
    )
  })
}

/** Waits until so many test pods are attached, on all nodes together. */
export async function areAttached(count: number): Promise<void> {
  await until(async () => listFiles(RESULTS).length === count, 20_000)
}

/** The links of pods that a node has. */
export async function leftOn({ node }: Place): Promise<string[]> {
  const { stdout } = await node.ns.exec(['ip', '-br', 'link', 'show', 'type', 'veth'])
  return stdout.split('\n').filter((line) => line.startsWith('veth'))
}

/** The failed cases, each as a text. */
export function failures({ cases }: Told): string[] {
  return cases.filter(({ state }) => state === 'failed').map(textOf)
}

/** A case as a text without its addresses. */
export function textOf({ way, test, family, from, to }: Case): string {
  return `${way}: ${test} ${family} ${from.node} → ${to.node}`
}
