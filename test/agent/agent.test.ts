// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Status } from '../../agent/state/status.ts'
import { type Namespace, ping, until } from '../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../support/nodes.ts'

const VXLAN = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const GW = { ...VXLAN, Backend: { Type: 'host-gw' } }

describe('plumb agent', () => {
  for (const [type, conf] of [
    ['vxlan', VXLAN],
    ['host-gw', GW],
  ] as const)
    it(
      `${type}: three nodes reach each other's subnets at full size, both families; ready only after the first full sync; SIGTERM leaves the data path`,
      inCluster(
        3,
        (cluster) => fileStore(cluster, conf),
        async ({ nodes }, test) => {
          test.timeout(60_000)
          const agents = nodes.map((node) => node.agent())
          await Promise.all(agents.map((agent) => agent.ready(30_000)))
          await matrix(nodes)
          assert.deepEqual(await Promise.all(agents.map((agent) => agent.stop())), [0, 0, 0])
          await matrix(nodes)
        },
      ),
    )

  it(
    'a route, neighbour, forwarding entry, nexthop, address, device, table that somebody deletes is back, and is told of; so are firewall rules; what is not ours stays',
    inCluster(
      2,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one, two] = nodes as [Node, Node]
        const [agent] = [one.agent(), two.agent()]
        await agent.ready(30_000)
        await until(async () => (await agent.status())?.peers.length === 1)
        const peer = ((await until(() => subnetEnv(two)))?.['FLANNEL_SUBNET'] ?? '').replace(/\.1\/24$/, '.0')
        await one.ns.ip('route', 'add', '203.0.113.0/24', 'via', UNDERLAY.v4(2))
        const before = await inventory(one)
        for (const argv of [
          ['ip', 'route', 'del', `${peer}/24`],
          ['ip', 'neigh', 'del', peer, 'dev', 'flannel.1'],
          ['sh', '-c', "bridge fdb del $(bridge fdb show dev flannel.1 | head -n 1 | cut -d' ' -f1) dev flannel.1"],
          ['sh', '-c', 'ip nexthop flush proto 112'],
          ['ip', 'addr', 'flush', 'dev', 'flannel.1', 'scope', 'global'],
          ['ip', 'link', 'set', 'flannel.1', 'down'],
          ['ip', 'link', 'del', 'flannel.1'],
          ['nft', 'flush', 'table', 'inet', await table(one)],
          ['nft', 'delete', 'table', 'inet', await table(one)],
        ]) {
          assert.equal((await one.ns.exec(argv)).status, 0, argv.join(' '))
          await until(async () => assert.equal(await inventory(one), before, argv.join(' ')) === undefined, 5000)
        }
        await until(() => ping(one.ns, peer), 10_000)
        const { kinds, repairs } = (await agent.status()) as Status
        for (const kind of ['route', 'neigh', 'tunnel', 'nft'])
          assert.ok((kinds[kind]?.repaired ?? 0) > 0, `${kind} ${JSON.stringify(repairs)}`)
      },
    ),
  )

  it(
    "stopped, a peer gone meanwhile, started: its entries go, the admin's routes stay; the same subnet again, with the store emptied too",
    inCluster(
      3,
      // The admin's route is for no subnet that a node may get.
      (cluster) => fileStore(cluster, { ...VXLAN, SubnetMax: '10.244.99.0' }),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, , three] = cluster.nodes as [Node, Node, Node]
        const agents = cluster.nodes.map((node) => node.agent())
        await Promise.all(agents.map((agent) => agent.ready(30_000)))
        await until(async () => (await agents[0]?.status())?.peers.length === 2)
        const gone = subnetEnv(three)?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0/24') as string
        await one.ns.ip('route', 'add', '10.244.255.0/24', 'via', UNDERLAY.v4(2))
        const had = subnetEnv(one)
        await agents[0]?.stop()
        await agents[2]?.stop()
        assert.equal((await three.ns.exec([PLUMB, 'agent', 'cleanup', ...three.options])).status, 0)
        assert.match(await one.ns.ip('route'), new RegExp(gone.replaceAll('.', '\\.')))
        const again = one.agent()
        await again.ready(30_000)
        assert.doesNotMatch(await one.ns.ip('route'), new RegExp(gone.replaceAll('.', '\\.')))
        assert.match(await one.ns.ip('route'), /10\.244\.255\.0\/24 via/)
        assert.deepEqual(subnetEnv(one), had)
      },
    ),
  )

  it(
    'cleanup removes all that it made, and gives the subnet back',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }) => {
        const [one] = nodes as [Node]
        const before = await all(one)
        const agent = one.agent()
        await agent.ready(30_000)
        assert.notEqual(await all(one), before)
        await agent.stop()
        for (let i = 0; i < 2; i++) {
          const { status, stdout, stderr } = await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])
          assert.equal(status, 0, stdout + stderr)
          assert.equal(await all(one), before)
        }
      },
    ),
  )

  it(
    'the address of a node changes: it keeps its subnet, tells the others, and their entries follow',
    inCluster(
      2,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one, two] = nodes as [Node, Node]
        const agents = [one.agent(), two.agent()]
        for (const agent of agents) await agent.ready(30_000)
        const had = subnetEnv(two)
        await two.ns.ip('addr', 'add', '172.30.0.77/24', 'dev', 'eth0')
        await two.ns.ip('addr', 'del', `${UNDERLAY.v4(2)}/24`, 'dev', 'eth0')
        await two.ns.exec(['ip', 'addr', 'add', '172.30.0.77/24', 'dev', 'eth0'])
        await two.ns.ip('route', 'replace', 'default', 'via', UNDERLAY.v4(254))
        await until(
          async () =>
            /dst 172\.30\.0\.77 self permanent/.test(
              (await one.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.1'])).stdout,
            ),
          5000,
        )
        assert.doesNotMatch(
          (await one.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.1'])).stdout,
          /dst 172\.30\.0\.2 self/,
        )
        assert.deepEqual(subnetEnv(two), had)
        await until(() => ping(one.ns, (had?.['FLANNEL_SUBNET'] ?? '').replace(/\.1\/24$/, '.0')), 5000)
      },
    ),
  )

  it(
    'a network that overlaps a route of the node is refused with both names, and taken with --allow-overlap',
    inCluster(
      1,
      (cluster) => fileStore(cluster, { Network: '172.30.0.0/16' }),
      async ({ nodes }) => {
        const [one] = nodes as [Node]
        const agent = one.agent()
        await until(
          () =>
            /the network 172\.30\.0\.0\/16 overlaps the route 172\.30\.0\.0\/24 on eth0 of this node/.test(agent.log()),
          10_000,
        )
        assert.equal((await agent.status())?.ready, false)
        await agent.stop()
        await one.agent('--allow-overlap').ready(30_000)
      },
    ),
  )

  it(
    'without a configuration it waits, and starts when there is one; a wrong one ends it with one clear line',
    inCluster(
      1,
      (cluster) => ['--store', 'file', '--file-store-dir', join(cluster.dir, 'empty')],
      async ({ nodes, dir }) => {
        const [one] = nodes as [Node]
        const agent = one.agent()
        const seen = await until(async () => {
          const told = await agent.status()
          return told?.reasons.some((why) =>
            /^the network’s configuration is not known yet: There is no network configuration at .*empty\/config$/.test(
              why,
            ),
          )
            ? told
            : undefined
        }, 10_000)
        assert.deepEqual([subnetEnv(one), seen?.ready], [undefined, false])
        await until(() => agent.log().includes('waiting: the network'), 5000)
        assert.equal(
          agent
            .log()
            .match(/waiting: the network’s configuration is not known yet: There is no network configuration at/g)
            ?.length,
          1,
        )
        fileStore({ dir: join(dir, 'x') } as Cluster, VXLAN)
        await one.ns.exec([
          'sh',
          '-c',
          `mkdir -p ${dir}/empty; cp ${dir}/x/store/config ${dir}/empty/config.new; mv ${dir}/empty/config.new ${dir}/empty/config`,
        ])
        await agent.ready(30_000)
        await agent.stop()
        writeFileSync(`${dir}/empty/config`, '{"Network":"10.244.0.0/29"}')
        const wrong = one.agent()
        assert.equal(await wrong.ended, 1, wrong.log())
        assert.match(wrong.log(), /Network/)
      },
    ),
  )
})

const PLUMB = join(import.meta.dir, '../../dist/plumb')

// From each node's own tunnel address to each other's: at the size that a pod may send.
async function matrix(nodes: readonly Node[]): Promise<void> {
  for (const from of nodes)
    for (const to of nodes) {
      if (from === to) continue
      const env = subnetEnv(to) as Record<string, string>
      const mtu = Number(env['FLANNEL_MTU'])
      for (const [subnet = '', header] of [
        [env['FLANNEL_SUBNET'], 28],
        [env['FLANNEL_IPV6_SUBNET'], 48],
      ] as const) {
        await gateway(to, subnet)
        const target = subnet.split('/')[0] as string
        await until(
          async () =>
            (
              await from.ns.exec([
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
                String(mtu - header),
                target,
              ])
            ).status === 0,
          5000,
        ).catch(() => assert.fail(`${from.name} does not reach ${target} with ${mtu} bytes`))
      }
    }
}

// Somebody who answers: the first address of the subnet, as a bridge would have it.
async function gateway(node: Node, subnet: string): Promise<void> {
  await node.ns.exec([
    'ip',
    'addr',
    'add',
    `${subnet.split('/')[0]}/${subnet.includes(':') ? 128 : 32}`,
    'dev',
    'lo',
    ...(subnet.includes(':') ? ['nodad'] : []),
  ])
}

async function table({ ns }: Node): Promise<string> {
  return /table inet (plumb_agent\w*)/.exec((await ns.exec(['nft', 'list', 'tables'])).stdout)?.[1] ?? 'none'
}

async function inventory({ ns }: Node): Promise<string> {
  const parts = await Promise.all(
    [
      'ip route',
      'ip -6 route show proto 112',
      'ip nexthop',
      'ip neigh show nud permanent',
      'bridge fdb show dev flannel.1',
      'ip -br addr show dev flannel.1 scope global',
      'nft list ruleset',
    ].map(async (line) => (await ns.exec(line.split(' '))).stdout.split('\n').sort().join('\n')),
  )
  return parts.join('\n---\n')
}

async function all({ ns, dir }: Node): Promise<string> {
  const seen = await inventory({ ns, dir } as Node)
  const files = (await ns.exec(['find', dir, '-type', 'f', '-not', '-name', '*.lock'])).stdout
  return `${seen}\n${(await (ns as Namespace).exec(['ip', '-br', 'link'])).stdout}\n${files}`
}
