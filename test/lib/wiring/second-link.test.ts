// lane: netns
// needs: reference
// Tests lib/wiring.
import assert from 'node:assert/strict'
import { references } from '../../../scripts/peers.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { bridgeConf, type Conf, type Network, network } from '../../support/network.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'

type Nodes = Record<'node' | 'pod' | 'world', Namespace>
const SUBNETS = [
  ['10.1.0.0/24', 'fd00:1::/64'],
  ['10.2.0.0/24', 'fd00:2::/64'],
] as const
/** A second network's attachment, by its plugin. */
const PLUGINS: Record<string, (nth: 0 | 1) => Conf> = {
  bridge: (nth) => bridgeConf({ isDefaultGateway: true, bridge: `br${nth}` }, ...SUBNETS[nth]),
  ptp(nth) {
    const conf = bridgeConf({ type: 'ptp', bridge: undefined }, ...SUBNETS[nth])
    return { ...conf, ipam: { ...conf.ipam, routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] } }
  },
}
const NET1 = { ifname: 'net1' }

describe('a second link in one namespace', () => {
  for (const [type, confOf] of Object.entries(PLUGINS)) {
    it(
      `${type}: has default routes of its own beside the first's; the latest counts for IPv4, both for IPv6; CHECK passes for both`,
      inNamespaces(['node', 'pod', 'world'], async (all) => {
        const { pod } = all
        const { one, two, first, second } = await attached(all, confOf)
        assert.deepEqual(await defaults(pod, '-4'), ['10.2.0.1 net1', '10.1.0.1 eth0'])
        assert.deepEqual((await defaults(pod, '-6')).sort(), ['fd00:1::1 eth0', 'fd00:2::1 net1'])
        await one.check(pod, first)
        await two.check(pod, second, NET1)
        assert.ok((await ping(pod, WORLD.world4)) && (await ping(pod, WORLD.world6)))
      }),
    )

    for (const gone of ['first', 'second'] as const) {
      it(
        `${type}: when the ${gone} goes, the other's default routes serve, and its CHECK passes`,
        inNamespaces(['node', 'pod', 'world'], async (all) => {
          const { pod, world } = all
          const { one, two, first, second } = await attached(all, confOf)
          if (gone === 'first') await one.del(pod)
          else await two.del(pod, NET1)
          const [n, link] = gone === 'first' ? [2, 'net1'] : [1, 'eth0']
          assert.deepEqual(
            [await defaults(pod, '-4'), await defaults(pod, '-6')],
            [[`10.${n}.0.1 ${link}`], [`fd00:${n}::1 ${link}`]],
          )
          for (const [address, of] of [
            [WORLD.world4, `10.${n}.0.2`],
            [WORLD.world6, `fd00:${n}::2`],
          ] as const)
            assert.ok((await until(() => ping(pod, address))) && (await until(() => ping(world, of))), address)
          if (gone === 'first') await two.check(pod, second, NET1)
          else await one.check(pod, first)
        }),
      )
    }
  }

  it(
    'bridge: in one subnet on one bridge, too, each link goes on when the other goes',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, ...SUBNETS[0])
      const net = network(node, PLUGINS['bridge']?.(0) as Conf)
      const results = { eth0: await net.add(pod), net1: await net.add(pod, NET1) }
      for (const [ifname, result] of Object.entries(results)) await net.check(pod, result, { ifname })
      assert.deepEqual(await defaults(pod, '-4'), ['10.1.0.1 net1', '10.1.0.1 eth0'])
      await net.del(pod)
      await net.check(pod, results.net1, NET1)
      for (const address of [WORLD.world4, WORLD.world6]) assert.ok(await until(() => ping(pod, address)), address)
    }),
  )

  it(
    'bridge: CHECK finds each of several routes that one link has to one place',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const routes = [
        { dst: '10.4.0.0/16', mtu: 1400 },
        { dst: '10.4.0.0/16', mtu: 1300, priority: 9 },
      ]
      const { ipam, ...rest } = bridgeConf({ isGateway: true })
      const net = network(node, { ...rest, ipam: { ...ipam, routes } })
      const result = await net.add(pod)
      await net.check(pod, result)
      await pod.ip('route', 'delete', '10.4.0.0/16', 'metric', '9')
      assert.match(
        (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
        /route 10\.4\.0\.0\/16 in the pod is missing$/,
      )
    }),
  )

  it(
    'bridge: the routes are those that the reference plugin makes',
    inNamespaces(['node', 'pod', 'theirs', 'peer'], async ({ node, pod, theirs, peer }, test) => {
      const [reference] = references()
      if (!reference) return skip(test, 'no reference plugins (package containernetworking-plugins)')
      for (const [nth, ifname] of ['eth0', 'net1'].entries()) {
        const conf = () => ({ ...PLUGINS['bridge']?.(nth as 0 | 1), cniVersion: '1.0.0' }) as Conf
        await network(node, conf()).add(pod, { ifname })
        const { status, stdout } = await plugin(
          'bridge',
          {
            command: 'ADD',
            conf: conf(),
            netns: peer,
            ifname,
            path: reference.path,
            file: `${reference.path}/bridge`,
            containerId: 'theirs',
          },
          theirs,
        )
        assert.equal(status, 0, stdout)
      }
      for (const family of ['-4', '-6'] as const)
        assert.deepEqual(await routes(pod, family), await routes(peer, family))
    }),
  )
})

/** A pod on two networks, eth0 and net1, and the world behind the node. */
async function attached(
  { node, pod, world }: Nodes,
  confOf: (nth: 0 | 1) => Conf,
): Promise<{ one: Network; two: Network; first: Row; second: Row }> {
  await wireWorld(node, world, ...SUBNETS.flat())
  const [one, two] = [network(node, confOf(0)), network(node, confOf(1))]
  const first = await one.add(pod)
  return { one, two, first, second: await two.add(pod, NET1) }
}

/** `gateway link` of each default route, in the order that counts. */
async function defaults(pod: Namespace, family: '-4' | '-6'): Promise<string[]> {
  return (await pod.json(family, 'route', 'show', 'default')).flatMap((row) =>
    (row['nexthops'] ?? [row]).map((hop: Row) => `${hop['gateway']} ${hop['dev']}`),
  )
}

/** The main table without link-local routes. */
async function routes(pod: Namespace, family: '-4' | '-6'): Promise<string[]> {
  return (await pod.ip(family, 'route', 'show')).split('\n').filter((line) => !line.startsWith('fe80'))
}
