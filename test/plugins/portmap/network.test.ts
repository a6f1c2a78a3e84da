// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { inNamespaces } from '../../support/harness.ts'
import { mappings, type Port, portNetwork, works } from '../../support/host-ports.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'

const PORT: Port = { hostPort: 8080, containerPort: 80 }
const SECOND = '192.0.2.10'

describe('portmap: several networks', () => {
  it(
    "two networks of one container: DEL of one keeps the other one's mappings",
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const [a, b] = [
        portNetwork(node),
        portNetwork(node, {
          bridge: { bridge: 'br1', isDefaultGateway: false, isGateway: true },
          subnets: ['10.2.0.0/24'],
        }),
      ]
      await serve(pod, 'pod', 'tcp 80')
      await a.add(pod, [PORT])
      await b.add(pod, [{ hostPort: 8081, containerPort: 80 }], { ifname: 'eth1' })
      await b.del(pod, { ifname: 'eth1' })
      assert.deepEqual(await mappings(node), ['tcp . 8080 10.1.0.2 . 80', 'tcp . 8080 fd00:1::2 . 80'])
      assert.match(await reach(world, WORLD.node4, 8080), /^pod /)
    }),
  )

  it(
    'the same ports for a second network of the container, as podman sends them: the first attachment has them, the second is no error and leaves them alone',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const [a, b] = [
        portNetwork(node),
        portNetwork(node, {
          bridge: { bridge: 'br1', isDefaultGateway: false, isGateway: true },
          subnets: ['10.2.0.0/24', 'fd00:2::/64'],
        }),
      ]
      await serve(pod, 'pod', 'tcp 80')
      await a.add(pod, [PORT])
      const led = ['tcp . 8080 10.1.0.2 . 80', 'tcp . 8080 fd00:1::2 . 80']
      const prevResult = await b.add(pod, [PORT, { hostPort: 8081, containerPort: 80 }], { ifname: 'eth1' })
      const both = [...led, 'tcp . 8081 10.2.0.2 . 80', 'tcp . 8081 fd00:2::2 . 80'].sort()
      assert.deepEqual(await mappings(node), both)
      assert.match(await reach(world, WORLD.node4, 8080), /^pod /)
      works(
        await b.call(
          'CHECK',
          pod,
          { prevResult, runtimeConfig: { portMappings: [PORT, { hostPort: 8081, containerPort: 80 }] } },
          { ifname: 'eth1' },
        ),
      )
      // And it is nobody else's.
      await assert.rejects(b.add(other, [PORT]), /container pod-\d+ has it/)
      await b.del(pod, { ifname: 'eth1' })
      assert.deepEqual(await mappings(node), led)
      await a.del(pod)
      assert.deepEqual(await mappings(node), [])
    }),
  )

  it(
    'the same ports for a second network of the container: they lead on through the second when the first goes, and go with it',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const [a, b] = [
        portNetwork(node),
        portNetwork(node, { bridge: { bridge: 'br1' }, subnets: ['10.2.0.0/24', 'fd00:2::/64'] }),
      ]
      await serve(pod, 'pod', 'tcp 80', 'udp 53')
      const ports = [PORT, { hostPort: 5353, containerPort: 53, protocol: 'udp' }]
      await a.add(pod, ports)
      const prevResult = await b.add(pod, ports, { ifname: 'eth1' })
      await a.del(pod)
      assert.deepEqual(await mappings(node), [
        'tcp . 8080 10.2.0.2 . 80',
        'tcp . 8080 fd00:2::2 . 80',
        'udp . 5353 10.2.0.2 . 53',
        'udp . 5353 fd00:2::2 . 53',
      ])
      for (const address of [WORLD.node4, WORLD.node6]) assert.match(await reach(world, address, 8080), /^pod /)
      assert.match(await reach(world, WORLD.node4, 5353, 'udp'), /^pod /)
      works(await b.call('CHECK', pod, { prevResult, runtimeConfig: { portMappings: ports } }, { ifname: 'eth1' }))
      await assert.rejects(a.add(other, [PORT]), /container pod-\d+ has it/)
      await b.del(pod, { ifname: 'eth1' })
      assert.deepEqual(await mappings(node), [])
      await a.del(other)
      await a.add(other, [PORT])
    }),
  )

  it(
    'the same ports for a second network of a container whose namespace is gone: they lead nowhere when the first goes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const [a, b] = [
        portNetwork(node),
        portNetwork(node, { bridge: { bridge: 'br1', isDefaultGateway: false }, subnets: ['10.2.0.0/24'] }),
      ]
      await a.add(pod, [PORT])
      await b.add(pod, [PORT], { ifname: 'eth1' })
      await node.ip('netns', 'delete', pod.path.replace('/run/netns/', ''))
      await a.del(pod)
      assert.deepEqual(await mappings(node), [])
      await b.del(pod, { ifname: 'eth1' })
    }),
  )

  it(
    'two networks that give the same address: DEL of a pod of one keeps all that the pod of the other has for the same container port',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const [a, b] = [portNetwork(node), portNetwork(node, { bridge: { bridge: 'br1' } })]
      await a.add(pod, [PORT])
      const port = { hostPort: 8081, containerPort: 80 }
      const prevResult = await b.add(other, [port])
      await a.del(pod)
      works(await b.call('CHECK', other, { prevResult, runtimeConfig: { portMappings: [port] } }))
      await b.del(other)
      const { stdout } = await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])
      assert.doesNotMatch(stdout, /10\.1\.0\.2/)
    }),
  )

  it(
    "conditions of one network: its ports ask them, another one's do not; and DEL of either leaves the other",
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      await node.ip('addr', 'add', `${SECOND}/24`, 'dev', 'up0')
      const conditions = {
        conditionsV4: ['ip', 'saddr', '!=', '192.0.2.2'],
        conditionsV6: ['ip6', 'saddr', '!=', '{', '2001:db8::2,', '2001:db8::3', '}'],
      }
      const asking = portNetwork(node, { portmap: conditions })
      const free = portNetwork(node, { bridge: { bridge: 'br1' }, subnets: ['10.2.0.0/24', 'fd00:2::/64'] })
      await serve(pod, 'pod', 'tcp 80')
      await serve(other, 'other', 'tcp 80')
      await asking.add(pod, [PORT, { hostPort: 8082, containerPort: 80, hostIP: WORLD.node4 }])
      await free.add(other, [
        { hostPort: 8081, containerPort: 80 },
        { hostPort: 8082, containerPort: 80, hostIP: SECOND },
      ])
      const refused = async () =>
        assert.deepEqual(
          await Promise.all([
            answers(world, WORLD.node4, 8080),
            answers(world, WORLD.node6, 8080),
            answers(world, WORLD.node4, 8082),
          ]),
          [false, false, false],
        )
      const allowed = async () => {
        for (const address of [WORLD.node4, WORLD.node6]) {
          assert.match(await reach(world, address, 8081), /^other /)
          assert.match(await reach(node, address, 8080), /^pod /)
        }
        assert.match(await reach(world, SECOND, 8082), /^other /)
        assert.match(await reach(node, '127.0.0.1', 8080), /^pod /)
      }
      await allowed()
      await refused()
      await free.del(other)
      assert.match(await reach(node, WORLD.node4, 8082), /^pod /)
      await refused()
      await free.add(other, [
        { hostPort: 8081, containerPort: 80 },
        { hostPort: 8082, containerPort: 80, hostIP: SECOND },
      ])
      await asking.del(pod)
      assert.match(await reach(world, SECOND, 8082), /^other /)
      await free.del(other)
      assert.deepEqual(await mappings(node), [])
      // The network's chain goes with its last attachment.
      works(await asking.call('GC', undefined, { cniVersion: '1.1.0', 'cni.dev/valid-attachments': [] }))
      assert.doesNotMatch((await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout, /chain cond/)
    }),
  )

  it(
    "conditions survive another version's rules being loaded over them",
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const asking = portNetwork(node, { portmap: { conditionsV4: ['ip', 'saddr', '!=', '{', '192.0.2.2', '}'] } })
      const free = portNetwork(node, { bridge: { bridge: 'br1' }, subnets: ['10.2.0.0/24', 'fd00:2::/64'] })
      await serve(pod, 'pod', 'tcp 80')
      await asking.add(pod, [PORT])
      const printed = (await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout
      const [mark] = /ruleset_[0-9a-f]+/.exec(printed) ?? []
      await node.exec(['nft', 'delete', 'set', 'inet', 'plumb', mark ?? ''])
      await free.add(other, [{ hostPort: 8081, containerPort: 80 }])
      assert.match(await reach(node, WORLD.node4, 8080), /^pod /)
      assert.equal(await answers(world, WORLD.node4, 8080), false)
    }),
  )
})
