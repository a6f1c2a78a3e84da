// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, snapshot } from '../../support/harness.ts'
import { mappings, type Port, portNetwork, works } from '../../support/host-ports.ts'
import { noted, ports } from '../../support/journal.ts'
import { settled } from '../../support/network.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'

const PORT: Port = { hostPort: 8080, containerPort: 80 }
const SECOND = '192.0.2.10'
const SECOND6 = '2001:db8::10'

describe('portmap: ports', () => {
  it(
    'hostIP: only on that address; 0.0.0.0 is all of IPv4, :: all of IPv6, also addresses that come later; none is both',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      await net.add(pod, [
        { hostPort: 8001, containerPort: 80, hostIP: WORLD.node4 },
        { hostPort: 8001, containerPort: 81, hostIP: SECOND },
        { hostPort: 8002, containerPort: 80, hostIP: WORLD.node6 },
        { hostPort: 8003, containerPort: 80, hostIP: '0.0.0.0' },
        { hostPort: 8004, containerPort: 80, hostIP: '::' },
        { hostPort: 8005, containerPort: 80, hostIP: '' },
      ])
      await node.ip('addr', 'add', `${SECOND}/24`, 'dev', 'up0')
      await node.ip('addr', 'add', `${SECOND6}/64`, 'dev', 'up0', 'nodad')
      await serve(pod, 'pod', 'tcp 80')
      await serve(pod, 'second', 'tcp 81')
      const good = [
        '192.0.2.1 8001 pod',
        '192.0.2.10 8001 second',
        '2001:db8::1 8002 pod',
        '192.0.2.10 8003 pod',
        '2001:db8::10 8004 pod',
        '192.0.2.10 8005 pod',
        '2001:db8::10 8005 pod',
      ]
      for (const [address = '', port, name] of good.map((one) => one.split(' ')))
        assert.match(await reach(world, address, Number(port)), new RegExp(`^${name} `), `${address} ${port}`)
      const bad = ['2001:db8::1 8001', '2001:db8::10 8002', '192.0.2.1 8002', '2001:db8::1 8003', '192.0.2.1 8004']
      assert.deepEqual(
        await Promise.all(
          bad.map((one) => one.split(' ')).map(([address = '', port]) => answers(world, address, Number(port))),
        ),
        bad.map(() => false),
      )
    }),
  )

  it(
    'range: so many ports from there on, one to one; the next one is not mapped, and DEL takes them all away',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      await net.add(pod, [{ hostPort: 9000, containerPort: 80, range: 3 }])
      for (const i of [0, 1, 2, 3]) await serve(pod, `server${i}`, `tcp ${80 + i}`)
      for (const i of [0, 1, 2]) assert.match(await reach(world, WORLD.node4, 9000 + i), new RegExp(`^server${i} `))
      assert.equal(await answers(world, WORLD.node4, 9003), false)
      await net.del(pod)
      assert.deepEqual(await mappings(node), [])
      assert.deepEqual(ports(), [])
    }),
  )

  for (const [keys, outside, neighbour] of [
    [{}, [WORLD.world4, WORLD.world6], ['10.1.0.1', 'fd00:1::1']],
    [{ snat: false }, [WORLD.world4, WORLD.world6], ['10.1.0.3', 'fd00:1::3']],
    [{ masqAll: true }, ['10.1.0.1', 'fd00:1::1'], ['10.1.0.1', 'fd00:1::1']],
    // As the reference: nothing is masqueraded without snat.
    [{ masqAll: true, snat: false }, [WORLD.world4, WORLD.world6], ['10.1.0.3', 'fd00:1::3']],
  ] as const) {
    it(
      `${JSON.stringify(keys)}: whom the server sees of a client outside, and of a neighbour`,
      inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
        test.timeout(60_000)
        await wireWorld(node, world)
        // Without snat a neighbour's answer comes back through the node only where bridged frames meet the rules.
        await node.exec([
          'sh',
          '-c',
          'for one in iptables ip6tables; do echo 1 >/proc/sys/net/bridge/bridge-nf-call-$one; done',
        ])
        const net = portNetwork(node, { portmap: keys })
        await net.add(pod, [PORT])
        await net.add(other, [])
        await serve(pod, 'pod', 'tcp 80')
        const seen = async (from: Namespace) =>
          [await reach(from, WORLD.node4, 8080), await reach(from, WORLD.node6, 8080)].map(
            (answer) => answer.split(' ')[1],
          )
        assert.deepEqual([await seen(world), await seen(other)], [outside, neighbour])
        // What comes to the pod without the mapping keeps its source in any case.
        assert.equal(await reach(other, '10.1.0.2', 80), 'pod 10.1.0.3')
      }),
    )
  }

  it(
    'a second ADD leaves one rule set and one element of each, untouched; one with other ports takes the place of the first',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      const result = await net.add(pod, [PORT])
      const before = await settled(() => snapshot(node))
      const again = (ports: readonly Port[]) =>
        net.call('ADD', pod, { prevResult: result, runtimeConfig: { portMappings: ports } })
      assert.deepEqual(works(await again([PORT])).result, result)
      assert.equal(await snapshot(node), before)
      works(await again([{ hostPort: 8081, containerPort: 80 }]))
      assert.deepEqual(await mappings(node), ['tcp . 8081 10.1.0.2 . 80', 'tcp . 8081 fd00:1::2 . 80'])
      works(await again([]))
      assert.deepEqual([await mappings(node), noted('portmap'), ports()], [[], [], []])
    }),
  )
})
