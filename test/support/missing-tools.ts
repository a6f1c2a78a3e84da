import { type Finished, until } from './harness.ts'
import { type Agent, fileStore, inCluster, type Node, subnetEnv } from './nodes.ts'
import type { TOOLS } from './tool-shims.ts'

/** A network of both families over VXLAN. */
export const VXLAN = {
  Network: '10.244.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  Backend: { Type: 'vxlan' },
}
/** The end of a script in a tool's place that lets it work; monitors are let alone. */
export const PASS = 'case "$*" in *monitor*) exec "$real" "$@";; esac\n"$real" "$@" < "$input"'
/** What somebody does by hand that the agent needs this tool to put right. */
export const DRIFT: Readonly<Record<(typeof TOOLS)[number], (node: Node, peer: string) => Promise<Finished>>> = {
  ip: ({ ns }, peer) => ns.exec(['ip', 'route', 'del', `${peer}/24`]),
  bridge: ({ ns }) =>
    ns.exec([
      'sh',
      '-c',
      "bridge fdb del $(bridge fdb show dev flannel.1 | grep -m 1 dst | cut -d' ' -f1) dev flannel.1",
    ]),
  nft: async (node) => node.ns.exec(['nft', 'delete', 'table', 'inet', await tableOf(node)]),
}
const TOOLS_OF = Object.keys(DRIFT) as (keyof typeof DRIFT)[]

/** Wraps a test: for each tool a node to do without it, all at once, and the address of a peer. */
export function withEach(ms: number, work: (tool: keyof typeof DRIFT, node: Node, peer: string) => Promise<void>) {
  return inCluster(
    4,
    (cluster) => fileStore(cluster, VXLAN),
    async ({ nodes }, test) => {
      test.timeout(ms)
      const peer = await started(nodes[3] as Node)
      await Promise.all(TOOLS_OF.map((tool, i) => work(tool, nodes[i] as Node, peer)))
    },
  )
}

/** Starts a node's agent; the address of its tunnel. */
async function started(node: Node): Promise<string> {
  await node.agent().ready(30_000)
  return subnetEnv(node)?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0') as string
}

/** Waits until an agent is ready, and has made all that leads to the other nodes. */
export async function complete(agent: Agent): Promise<void> {
  await agent.ready(30_000)
  await until(async () => (await agent.status())?.kinds['route']?.programmed === 6, 15_000)
}

async function tableOf({ ns }: Node): Promise<string> {
  return /table inet (plumb_agent\w*)/.exec((await ns.exec(['nft', 'list', 'tables'])).stdout)?.[1] ?? 'none'
}

/** What an agent has made on a node, as text. */
export async function inventory({ ns }: Node): Promise<string> {
  const asked = [
    'ip route show proto 112',
    'ip -6 route show proto 112',
    'ip neigh show nud permanent',
    'bridge fdb show dev flannel.1',
    'nft list tables',
  ]
  return (
    await Promise.all(asked.map(async (line) => (await ns.exec(line.split(' '))).stdout.split('\n').sort().join('\n')))
  ).join('\n---\n')
}
