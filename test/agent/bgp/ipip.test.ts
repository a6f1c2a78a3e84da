// lane: vm
// Tests agent/bgp and agent/parts/bgp.ts with agent/backend/types/ipip.ts.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdOf, endBird, established } from '../../support/bgp.ts'
import { podOn } from '../../support/flows.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'

const FAR = '172.31.0.3'
const address = (n: number) => (n === 3 ? FAR : UNDERLAY.v4(n))

describe('BGP with ipip: routes to nodes by BIRD', () => {
  it(
    'programs bird with CrossSubnet, each node with a store of its own: direct on the link, by the tunnel behind a router',
    inNamespaces(['pod1', 'pod2', 'pod3'], async (spaces, test) => {
      test.timeout(600_000)
      const at = (i: number) => [spaces.pod1, spaces.pod2, spaces.pod3][i] as Namespace
      await inCluster(
        3,
        () => ['--status-address=off', '--probe-interval=0'],
        async ({ hub, nodes }) => {
          await moveBehindRouter(hub, nodes[2] as Node)
          const agents = nodes.map((node) => node.agent(...own(node)))
          try {
            const pods: string[] = []
            for (const [i, node] of nodes.entries()) {
              await agents[i]?.ready(60_000)
              pods.push(await podOn(node, at(i)))
            }
            assert.deepEqual(pods, ['10.244.1.2', '10.244.2.2', '10.244.3.2'])
            for (const agent of agents) assert.equal((await established(agent, undefined, 60_000)).sessions.length, 2)
            const [first, , third] = nodes as [Node, Node, Node]
            const routes = async ({ ns }: Node) => {
              const text = await ns.ip('route', 'show', 'root', '10.244.0.0/16', 'proto', 'bird')
              return text.trim().split(/ *\n/).sort()
            }
            const near = `10.244.2.0/24 via ${UNDERLAY.v4(2)} dev eth0 metric 32`
            const far = `10.244.3.0/24 via ${FAR} dev flannel.ipip metric 32 onlink`
            await until(async () => (await routes(first)).join() === [near, far].join(), 30_000).catch(async () =>
              assert.fail(`${(await routes(first)).join('\n')}\n${await birdOf(first, 'show', 'route', 'all')}`),
            )
            await until(
              async () =>
                (await routes(third)).join() ===
                [1, 2].map((n) => `10.244.${n}.0/24 via ${UNDERLAY.v4(n)} dev flannel.ipip metric 32 onlink`).join(),
              30_000,
            )
            for (const node of nodes) {
              const byAgent = await node.ns.ip('route', 'show', 'proto', '112')
              assert.match(byAgent, new RegExp(`^blackhole 10\\.244\\.${node.n}\\.0/24 metric \\d+ ?$`))
            }
            const reached = async () => {
              for (const [i, from] of nodes.entries())
                for (const [k, ip] of pods.entries())
                  if (k !== i) {
                    // The largest packet that passes the tunnel in one piece.
                    const argv = ['ping', '-n', '-q', '-c', '1', '-w', '5', '-M', 'do', '-s', '1452', ip]
                    const { status, stdout } = await at(i).exec(argv)
                    assert.equal(status, 0, `${from.name} to ${ip}: ${stdout}`)
                  }
            }
            await reached()
            // The routes of a deleted device come back with the next scan of BIRD.
            await first.ns.ip('link', 'delete', 'flannel.ipip')
            await until(async () => (await routes(first)).join() === [near, far].join(), 30_000)
            await reached()
            // The session ends, and with it the route.
            await agents[1]?.stop()
            await endBird(nodes[1] as Node)
            await birdOf(first, 'disable', '"peer_v4_172_30_0_2"')
            await until(async () => (await routes(first)).join() === far, 30_000)
          } catch (cause) {
            const logs = agents.map((agent) => agent.log().slice(-1500)).join('\n---\n')
            throw new Error(`${(cause as Error).message}\n${logs}`, { cause })
          } finally {
            await Promise.all(nodes.map(endBird))
          }
        },
      ).call(test)
    }),
  )
})

// The options of a node that knows its own subnet alone, and its peers by BGP.
function own({ n, dir }: Node): string[] {
  const [store, file] = [join(dir, 'store'), join(dir, 'bgp.yaml')]
  mkdirSync(store)
  const subnet = `10.244.${n}.0`
  const network = { Network: '10.244.0.0/16', SubnetMin: subnet, SubnetMax: subnet }
  const backend = { Type: 'ipip', ipipMode: 'CrossSubnet' }
  writeFileSync(join(store, 'config'), JSON.stringify({ ...network, Backend: backend }))
  const peers = [1, 2, 3]
    .filter((one) => one !== n)
    .map((one) => {
      const isFar = (one === 3) !== (n === 3)
      return { address: address(one), asn: 64_512, subnets: true, ...(isFar && { multihop: 2 }) }
    })
  writeFileSync(file, JSON.stringify({ programs: 'bird', peers }))
  return ['--store', 'file', '--file-store-dir', store, `--bgp-config=${file}`]
}

// The third node has a network of its own. The hub is the router between the two.
async function moveBehindRouter(hub: Namespace, { ns }: Node): Promise<void> {
  await hub.ip('addr', 'add', `${UNDERLAY.v4(254)}/24`, 'dev', 'hub0')
  await hub.ip('link', 'set', 'port3', 'nomaster')
  await hub.ip('addr', 'add', '172.31.0.254/24', 'dev', 'port3')
  await ns.ip('addr', 'flush', 'dev', 'eth0')
  await ns.ip('addr', 'add', `${FAR}/24`, 'dev', 'eth0')
  await ns.ip('route', 'add', 'default', 'via', '172.31.0.254')
}
