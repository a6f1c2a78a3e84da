// lane: vmlong
// Tests agent with agent/backend/types/wireguard.ts, behind a NAT.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } }
const INSIDE = { router: '192.168.50.1', node: '192.168.50.2' } as const
/** The longest time without packets. */
const BACK_MS = 30_000

describe('plumb agent with wireguard behind a NAT', () => {
  it(
    'the router forgets a connection and gives the next one another port: packets pass again within 30 s, whichever node sends first',
    inCluster(
      3,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [outer, inner, router] = nodes as [Node, Node, Node]
        await putBehind(inner, router)
        // Probes would send packets, too.
        const quiet = ['--probe-interval', '0']
        const agents = [outer.agent(...quiet), inner.agent(...quiet, '--public-ip', UNDERLAY.v4(3))]
        for (const agent of agents) await agent.ready(120_000)
        for (const [from, to] of [
          [outer, inner],
          [inner, outer],
        ] as const) {
          await until(() => passes(from, to), 2 * BACK_MS)
          const before = await endpointAt(outer)
          const flushed = await router.ns.exec(['conntrack', '-F'])
          assert.equal(flushed.status, 0, flushed.stderr)
          const since = Date.now()
          await until(() => passes(from, to), 2 * BACK_MS)
          const took = Date.now() - since
          assert.ok(took <= BACK_MS, `packets from ${from.name} passed after ${took} ms`)
          assert.ok(await passes(to, from))
          const after = await endpointAt(outer)
          assert.match(after, /^172\.30\.0\.3:\d+$/)
          assert.notEqual(after, before)
        }
      },
    ),
  )
})

// Takes a node off the hub. A router that masquerades, with random ports, is its only way out.
async function putBehind({ ns }: Node, router: Node): Promise<void> {
  await ns.ip('link', 'delete', 'eth0')
  await router.ns.ip('link', 'add', 'in0', 'up', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns.path)
  await router.ns.ip('addr', 'add', `${INSIDE.router}/24`, 'dev', 'in0')
  await ns.ip('link', 'set', 'eth0', 'up')
  await ns.ip('addr', 'add', `${INSIDE.node}/24`, 'dev', 'eth0')
  await ns.ip('route', 'add', 'default', 'via', INSIDE.router)
  const chain =
    '{ type nat hook postrouting priority srcnat; oifname eth0 ip saddr 192.168.50.0/24 masquerade fully-random; }'
  const { status, stderr } = await router.ns.exec(['nft', `table ip router { chain out ${chain}; }`])
  assert.equal(status, 0, stderr)
}

// Where the node outside sends its packets for the one inside.
async function endpointAt({ ns }: Node): Promise<string> {
  return (await ns.exec(['wg', 'show', 'flannel-wg', 'endpoints'])).stdout.trim().split('\t')[1] ?? ''
}

async function passes(from: Node, to: Node): Promise<boolean> {
  const address = (subnetEnv(to)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0')
  return (await from.ns.exec(['ping', '-n', '-q', '-c', '1', '-W', '1', address])).status === 0
}
