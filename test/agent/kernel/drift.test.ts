// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { inside } from '../../../lib/os/netns.ts'
import { txChecksum } from '../../../lib/os/sockets.ts'
import { parse } from '../../../lib/text/values.ts'
import { assertReach, flow, gatewayOf } from '../../support/etcd-networks.ts'
import { type Namespace, until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }

describe('plumb agent and what others do to its links and routes', () => {
  const on =
    (Backend: object = CONF.Backend) =>
    (cluster: Cluster) =>
      fileStore(cluster, { ...CONF, Backend })

  for (const { what, link } of [
    { what: 'another VNI', link: 'id 9 dev eth0 local 172.30.0.1 dstport 8472 nolearning' },
    { what: 'another port', link: 'id 1 dev eth0 local 172.30.0.1 dstport 4789 nolearning' },
    { what: 'another local address', link: 'id 1 dev eth0 local 172.30.0.77 dstport 8472 nolearning' },
    { what: 'a group', link: 'id 1 dev eth0 local 172.30.0.1 dstport 8472 group 239.1.1.1' },
  ])
    it(
      `a flannel.1 with ${what}, there before the agent, is made again`,
      inCluster(2, on(), async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        await one.ns.ip('link', 'add', 'flannel.1', 'type', 'vxlan', ...link.split(' '))
        await one.ns.ip('addr', 'add', '10.99.99.0/32', 'dev', 'flannel.1')
        await one.ns.ip('link', 'set', 'flannel.1', 'up')
        const { index } = await device(one)
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(20_000)
        const now = await device(one)
        assert.notEqual(now.index, index)
        assert.deepEqual(
          [now.id, now.port, now.local, now.learning, now.group],
          [1, 8472, UNDERLAY.v4(1), false, undefined],
        )
        assert.doesNotMatch(await one.ns.ip('addr'), /10\.99\.99\.0/)
        await assertReach(nodes, { v4: 1450 })
      }),
    )

  let Backend: object = CONF.Backend
  it(
    'MTU, learning and MAC that somebody changed, and MTU and learning that the configuration changes, are changed in place: no ping is lost for more than half a second, subnet.env follows',
    inCluster(
      2,
      (cluster) => fileStore(cluster, { ...CONF, Backend }),
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one, two] = nodes as [Node, Node]
        let agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(20_000)
        await assertReach(nodes, { v4: 1450 })
        const before = await device(one)
        const pings = await flow(one.ns, gatewayOf(one).v4 as string, gatewayOf(two).v4 as string)
        await one.ns.ip('link', 'set', 'flannel.1', 'mtu', '1300')
        await until(async () => assert.deepEqual(await device(one), before) === undefined)
        await one.ns.ip('link', 'set', 'flannel.1', 'address', '02:00:00:00:00:42')
        await until(async () => assert.deepEqual(await device(one), before) === undefined)
        await agents[0]?.stop()
        await one.ns.ip('link', 'set', 'flannel.1', 'type', 'vxlan', 'id', '1', 'learning')
        Backend = { Type: 'vxlan', MTU: 1400 }
        agents = [one.agent()]
        await agents[0]?.ready(20_000)
        assert.deepEqual(await device(one), { ...before, mtu: 1350 })
        await until(() => subnetEnv(one)?.['FLANNEL_MTU'] === '1350')
        await agents[0]?.stop()
        Backend = { Type: 'vxlan', MTU: 1400, Learning: true }
        await one.agent().ready(20_000)
        assert.deepEqual(await device(one), { ...before, mtu: 1350, learning: true })
        const { gapMs } = await pings.end()
        assert.ok(gapMs < 500, `${gapMs} ms`)
      },
    ),
  )

  for (const option of ['off', 'auto'] as const)
    it(
      `--tx-checksum-offload=${option}: a megabyte through a NATed service arrives as it was sent${option === 'off' ? '; it stays off when somebody deletes the device' : ''}`,
      inCluster(2, on(), async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one, two] = nodes as [Node, Node]
        for (const agent of nodes.map((node) => node.agent(`--tx-checksum-offload=${option}`)))
          await agent.ready(20_000)
        await assertReach(nodes, { v4: 1450 })
        const service = '10.96.0.10'
        // As kube-proxy has it.
        const { status, stderr } = await one.ns.exec([
          'nft',
          `table ip proxy { chain out { type nat hook output priority -100; ip daddr ${service} tcp dport 80 meta mark set 0x4000 dnat to ${gatewayOf(two).v4}:8080; }; chain post { type nat hook postrouting priority 99; meta mark and 0x4000 == 0x4000 masquerade fully-random; }; }`,
        ])
        assert.equal(status, 0, stderr)
        const offload = ({ ns }: Node) => inside(parse.netns(ns.path), () => txChecksum('flannel.1'))
        for (const again of option === 'off' ? [false, true] : [false]) {
          if (again) {
            const { index } = await device(one)
            await one.ns.ip('link', 'del', 'flannel.1')
            await until(async () => (await device(one)).index !== index, 2000)
            await assertReach(nodes, { v4: 1450 }, 2000)
          }
          if (option === 'off') await until(() => offload(one) === false, 1000)
          assert.equal(await fetched(one.ns, two.ns, gatewayOf(two).v4 as string, service), SENT)
        }
      }),
    )

  it(
    'host-gw: a route that is deleted, and one with our number and a wrong gateway, are right again within a second; one that another program put there stays and is named, until it is gone',
    inCluster(2, on({ Type: 'host-gw' }), async ({ nodes }, test) => {
      test.timeout(60_000)
      const [one, two] = nodes as [Node, Node]
      const agents = nodes.map((node) => node.agent())
      for (const agent of agents) await agent.ready(20_000)
      await assertReach(nodes, { v4: 1500 })
      const to = (gatewayOf(two).v4 as string).replace(/1$/, '0/24')
      const route = () => one.ns.ip('route', 'show', to)
      const before = await route()
      for (const harm of [
        ['route', 'del', to],
        ['route', 'replace', to, 'via', UNDERLAY.v4(99), 'dev', 'eth0', 'proto', '112'],
        [
          'nexthop',
          'replace',
          'id',
          /nhid (\d+)/.exec(before)?.[1] ?? '',
          'via',
          UNDERLAY.v4(99),
          'dev',
          'eth0',
          'proto',
          '112',
        ],
      ]) {
        await one.ns.ip(...harm)
        await until(async () => assert.equal(await route(), before, harm.join(' ')) === undefined, 1000)
      }
      await assertReach(nodes, { v4: 1500 })
      await one.ns.ip('route', 'replace', to, 'via', UNDERLAY.v4(99), 'dev', 'eth0')
      await until(async () =>
        (await agents[0]?.status())?.degraded.some((one) =>
          one.includes(`Cannot make route ${to}: another program has a route there`),
        ),
      )
      assert.match(await route(), /via 172\.30\.0\.99/)
      await one.ns.ip('route', 'del', to)
      await until(async () => assert.equal(await route(), before) === undefined)
      await agents[0]?.ready(5000)
    }),
  )
})

async function device({ ns }: Node): Promise<{
  index: number
  mtu: number
  mac: string
  id: number
  port: number
  local: string
  learning: boolean
  group: string | undefined
}> {
  const row = (await ns.json('link')).find(({ ifname }) => ifname === 'flannel.1')
  const { id, port, local, learning, group } = row?.['linkinfo'].info_data ?? {}
  return { index: row?.['ifindex'], mtu: row?.['mtu'], mac: row?.['address'], id, port, local, learning, group }
}

const SENT = Bun.hash.xxHash64(Buffer.alloc(1_000_000, 'plumb ')).toString(16)

// A megabyte, by way of the service.
async function fetched(from: Namespace, to: Namespace, address: string, service: string): Promise<string> {
  const server = to.exec([
    process.execPath,
    '-e',
    `const server = Bun.serve({ hostname: '${address}', port: 8080, fetch: () => { setTimeout(() => process.exit(0), 1500); return new Response(Buffer.alloc(1_000_000, 'plumb ')) } }); setTimeout(() => process.exit(1), 15_000)`,
  ])
  const client = `for (let i = 0; ; i++) try { const got = await (await fetch('http://${service}/', { signal: AbortSignal.timeout(5000) })).arrayBuffer(); process.stdout.write(Bun.hash.xxHash64(got).toString(16)); process.exit(0) } catch (cause) { if (i > 50) throw cause; await Bun.sleep(50) }`
  const { status, stdout, stderr } = await from.exec([process.execPath, '-e', client])
  assert.equal(status, 0, stderr)
  await server
  return stdout
}
