// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { inNamespaces } from '../../support/harness.ts'
import { type Port, portNetwork } from '../../support/host-ports.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'

const PORT: Port = { hostPort: 8080, containerPort: 80 }

describe('portmap: packets that are not its own', () => {
  it(
    'traffic to that port on addresses of other machines is untouched: through the node, from the node, from pods',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64', '10.2.0.0/24')
      const [net, second] = [
        portNetwork(node),
        portNetwork(node, { bridge: { bridge: 'br1' }, subnets: ['10.2.0.0/24'] }),
      ]
      await net.add(pod, [
        { hostPort: 8080, containerPort: 80 },
        { hostPort: 8080, containerPort: 80, protocol: 'udp' },
      ])
      await second.add(other, [])
      await serve(pod, 'pod', 'tcp 80', 'udp 80')
      await serve(other, 'other', 'tcp 8080', 'udp 8080')
      await serve(world, 'world', 'tcp 8080', 'udp 8080')
      for (const protocol of ['tcp', 'udp'] as const) {
        assert.equal(await reach(world, '10.2.0.2', 8080, protocol), `other ${WORLD.world4}`)
        assert.equal(await reach(node, WORLD.world4, 8080, protocol), `world ${WORLD.node4}`)
        assert.equal(await reach(pod, '10.2.0.2', 8080, protocol), 'other 10.1.0.2')
        assert.equal(await reach(pod, WORLD.world6, 8080, protocol), 'world fd00:1::2')
        assert.match(await reach(world, WORLD.node4, 8080, protocol), /^pod /)
      }
    }),
  )

  it(
    "no martian comes in: neither to nor from 127.0.0.0/8, though the bridge may carry it for the node's own processes",
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      await net.add(pod, [PORT])
      await serve(pod, 'pod', 'tcp 80')
      await serve(node, 'secret', 'tcp 9999', 'udp 9999')
      assert.match(await reach(node, '127.0.0.1', 8080), /^pod /)
      assert.match(await reach(node, '127.0.0.1', 9999), /^secret /)
      // The pod and the outside do what they can: a route to 127.0.0.0/8 by way of the node.
      for (const ns of [pod, world]) {
        await ns.exec([
          'sh',
          '-c',
          'for one in all eth0 up0; do echo 1 >/proc/sys/net/ipv4/conf/$one/route_localnet; done 2>/dev/null; ip link set lo down; ip addr flush dev lo',
        ])
        await ns.exec(['ip', 'route', 'add', '127.0.0.0/8', 'via', ns === pod ? '10.1.0.1' : WORLD.node4])
      }
      await node.exec([
        'sh',
        '-c',
        'echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter',
      ])
      for (const from of [pod, world])
        for (const [port, protocol] of [
          [9999, 'tcp'],
          [9999, 'udp'],
          [8080, 'tcp'],
        ] as const)
          assert.equal(await answers(from, '127.0.0.1', port, protocol), false, `${from.name} ${port} ${protocol}`)
      // It is our rules that keep them out, not the kernel.
      await node.exec(['nft', 'flush', 'chain', 'inet', 'plumb', 'martians'])
      assert.match(await reach(pod, '127.0.0.1', 9999), /^secret /)
    }),
  )

  it(
    "a packet with others' marks keeps them: kube-proxy's bit and our own bit, on the way to a process of the node",
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      await net.add(pod, [PORT])
      await net.add(other, [])
      await serve(pod, 'pod', 'tcp 80')
      await serve(node, 'node', 'tcp 9999')
      const chains =
        'chain set { type filter hook prerouting priority mangle; meta mark set 0x%s; }\nchain in { type filter hook input priority 0; tcp dport 9999 meta mark 0x%s counter; }'
      for (const mark of ['6000', '4000', '2000', '1']) {
        await node.exec(['nft', '-f', '-'], {
          stdin: `table inet others\ndelete table inet others\ntable inet others {\n${chains.replaceAll('%s', mark)}\n}\n`,
        })
        for (const from of [other, world]) {
          assert.match(await reach(from, WORLD.node4, 9999), /^node /)
          assert.match(await reach(from, WORLD.node4, 8080), /^pod /)
        }
        const { stdout } = await node.exec(['nft', 'list', 'chain', 'inet', 'others', 'in'])
        assert.doesNotMatch(stdout, /counter packets 0 /, mark)
      }
      // And none of ours is left on what was led nowhere.
      await node.exec(['nft', '-f', '-'], {
        stdin:
          'table inet others\ndelete table inet others\ntable inet others {\nchain in { type filter hook input priority 0; tcp dport 9999 meta mark != 0 counter; }\n}\n',
      })
      assert.match(await reach(other, WORLD.node4, 9999), /^node /)
      assert.match((await node.exec(['nft', 'list', 'chain', 'inet', 'others', 'in'])).stdout, /counter packets 0 /)
    }),
  )
})
