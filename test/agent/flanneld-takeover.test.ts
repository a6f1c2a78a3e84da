// lane: peers
// Tests agent, beside flanneld and etcd.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { assertReach, type Flow, flow, gatewayOf } from '../support/etcd-networks.ts'
import { besideFlanneld } from '../support/flanneld.ts'
import { until } from '../support/harness.ts'
import type { Node } from '../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const NETWORKS = [
  { type: 'vxlan', mtu: { v4: 1450, v6: 1430 } },
  { type: 'host-gw', mtu: { v4: 1500, v6: 1500 } },
] as const
/** Somebody else's rules. */
const THEIRS = [
  '-t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE',
  '-A FORWARD -s 192.0.2.0/24 -j ACCEPT',
  '-N FLANNELS',
  '-A FORWARD -j FLANNELS',
]
  .map((line) => ['iptables', ...line.split(' ')])
  .concat([
    ['ip6tables', '-t', 'nat', '-A', 'POSTROUTING', '-s', '2001:db8::/32', '-j', 'MASQUERADE'],
    ['ip6tables', '-A', 'FORWARD', '-s', '2001:db8::/32', '-j', 'ACCEPT'],
  ])

const confOf = (type: string) => ({
  Network: '10.5.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd66::/48',
  Backend: { Type: type },
})

describe('plumb instead of a flanneld, and back', () => {
  const network = besideFlanneld()
  const { flannel } = network
  const keys = async () => (await network.leases()).map(({ key }) => key)

  for (const { type, mtu } of NETWORKS)
    it(
      `${type}: a node changes from flanneld to plumb and back: the same subnets, the same devices, and pings of both families from a node of either kind pause for less than a second`,
      network.on(3, confOf(type), async ([one, two, three], cluster) => {
        const theirs = await flannel(one)
        await flannel(two)
        await three.agent().ready(20_000)
        await assertReach(cluster.nodes, mtu)
        const [had, leases, device] = [gatewayOf(one), await keys(), await devices(one)]
        const told = await pausing([two, three], one, async () => {
          await theirs.stop()
          const agent = one.agent('--replace-flannel')
          await agent.ready(20_000)
          assert.deepEqual((await agent.status())?.reasons, [])
          await assertReach(cluster.nodes, mtu)
          assert.deepEqual([gatewayOf(one), await keys(), await devices(one)], [had, leases, device])
          await agent.stop()
        })
        const back = await pausing([two, three], one, async () => {
          // flanneld leaves a host-gw route that is right as it is, and could never remove one that goes through an
          // object.
          if (type === 'host-gw') await one.ns.ip('nexthop', 'flush', 'proto', '112')
          await flannel(one)
          await assertReach(cluster.nodes, mtu)
          assert.deepEqual([gatewayOf(one), await keys(), await devices(one)], [had, leases, device])
          // All its routes are flanneld's again.
          await until(
            async () =>
              assert.equal(
                `${await one.ns.ip('route', 'show', 'proto', '112')}${await one.ns.ip('-6', 'route', 'show', 'proto', '112')}`,
                '',
              ) === undefined,
          )
          await one.ns.ip('nexthop', 'flush', 'proto', '112')
          await assertReach(cluster.nodes, mtu)
        })
        for (const { from, gapMs } of [...told, ...back]) assert.ok(gapMs < 1000, `${from}: ${gapMs} ms`)
        // The device keeps its address, and the lease says the same as before.
        if (type === 'vxlan')
          for (const { from, lost, sent } of told) assert.equal(lost, 0, `${from}: ${lost} of ${sent}`)
      }),
    )

  it(
    "--replace-flannel removes the chains and tables of a real flanneld, of both its engines, and nothing of others'; without it they stay",
    network.on(2, confOf('vxlan'), async ([one, two]) => {
      for (const { ns } of [one, two])
        for (const argv of THEIRS) assert.equal((await ns.exec(argv)).status, 0, argv.join(' '))
      const before = await rules(two)
      await (await flannel(one)).stop()
      await network.configure({ ...confOf('vxlan'), EnableNFTables: true })
      await (await flannel(two)).stop()
      for (const [node, marks] of [
        [one, ['FLANNEL-POSTRTG', 'FLANNEL-FWD']],
        [two, ['table ip flannel-ipv4', 'chain postrtg']],
      ] as const) {
        const plain = node.agent()
        await plain.ready(20_000)
        for (const mark of marks) assert.match(await rules(node), new RegExp(mark))
        await plain.stop()
        const agent = node.agent('--replace-flannel')
        await agent.ready(20_000)
        await until(async () => !/FLANNEL-|flannel-ipv/.test(await rules(node)), 5000)
        await agent.stop()
        assert.equal((await node.ns.exec([PLUMB, 'agent', 'cleanup', ...node.options])).status, 0)
        assert.equal(await rules(node), before)
      }
    }),
  )

  it(
    'without subnet.env, and with a host name for a node name, it is the lease of its address that it takes over',
    network.on(2, confOf('vxlan'), async ([one, two], cluster) => {
      await flannel(two)
      const theirs = await flannel(one)
      const had = gatewayOf(one).v4
      const device = await devices(one)
      await theirs.stop()
      rmSync(join(one.dir, 'subnet.env'))
      await one.agent('--node-name', 'Worker-1.example.com').ready(20_000)
      assert.deepEqual([gatewayOf(one).v4, await devices(one)], [had, device])
      await assertReach(cluster.nodes, NETWORKS[0].mtu)
    }),
  )
})

// Pings from other nodes to this one's pods, and how long they paused.
async function pausing(
  others: readonly Node[],
  to: Node,
  work: () => Promise<void>,
): Promise<{ from: string; gapMs: number; lost: number; sent: number }[]> {
  const flows: { from: string; pings: Flow }[] = []
  for (const from of others)
    for (const family of ['v4', 'v6'] as const)
      flows.push({
        from: `${from.name} ${family}`,
        pings: await flow(from.ns, gatewayOf(from)[family] as string, gatewayOf(to)[family] as string),
      })
  // They end, whatever happens.
  const failed = await work().then(
    () => undefined,
    (cause: Error) => cause,
  )
  const paused = await Promise.all(flows.map(async ({ from, pings }) => ({ from, ...(await pings.end()) })))
  if (failed) throw failed
  return paused
}

async function devices({ ns }: Node): Promise<string[]> {
  return (await ns.json('link')).flatMap(({ ifname, ifindex }) =>
    /^flannel/.test(ifname) ? [`${ifindex} ${ifname}`] : [],
  )
}

async function rules({ ns }: Node): Promise<string> {
  return (await ns.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout
}
