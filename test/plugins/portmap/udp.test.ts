// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { portNetwork, works } from '../../support/host-ports.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { reach, serve, talk } from '../../support/servers.ts'

describe('portmap: UDP', () => {
  it(
    'UDP: a client that never stops is answered by the holder of the port: a process of the node, a container, the node again, a second container',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node, { bridge: { ipMasq: true } })
      const [mine, theirs] = [await net.add(pod, []), await net.add(other, [])]
      await serve(node, 'node', 'udp 5353')
      await serve(pod, 'pod', 'udp 53')
      await serve(other, 'other', 'udp 53')
      await serve(world, 'world', 'udp 5353')
      const talkers = [talk(world, WORLD.node4, 5353), talk(world, WORLD.node6, 5353)]
      // On its way through the node to another machine's port of that number: none of ours.
      const passing = talk(pod, WORLD.world4, 5353)
      const all = (name: string) => until(() => [...talkers].every((talker) => talker.last() === name), 8000)
      await all('node')
      await until(() => passing.last() === 'world')
      const before = await flows(node, WORLD.world4)
      assert.equal(before.length, 1)
      const ports = [{ hostPort: 5353, containerPort: 53, protocol: 'UDP' }]
      works(await net.call('ADD', pod, { prevResult: mine, runtimeConfig: { portMappings: ports } }))
      await all('pod')
      works(await net.call('DEL', pod))
      await all('node')
      works(await net.call('ADD', other, { prevResult: theirs, runtimeConfig: { portMappings: ports } }))
      await all('other')
      assert.deepEqual(await flows(node, WORLD.world4), before)
    }),
  )

  it(
    'UDP: servers that take as long to answer as their client takes to ask again lose it all the same',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node, { bridge: { ipMasq: true } })
      const results = [await net.add(pod, []), await net.add(other, [])]
      await serve(node, 'node', 'udp 5353 18')
      await serve(pod, 'pod', 'udp 5353 18')
      await serve(other, 'other', 'udp 5353 18')
      const talkers = [talk(world, WORLD.node4, 5353), talk(world, WORLD.node6, 5353), talk(node, '127.0.0.1', 5353)]
      const all = (name: string) => until(() => talkers.every((talker) => talker.last() === name), 8000)
      await all('node')
      const ports = [{ hostPort: 5353, containerPort: 5353, protocol: 'udp' }]
      for (let round = 0; round < 3; round++)
        for (const [i, one] of [pod, other].entries()) {
          works(await net.call('ADD', one, { prevResult: results[i], runtimeConfig: { portMappings: ports } }))
          await all(one.name)
          works(await net.call('DEL', one))
          if (i === round % 2) await all('node')
        }
    }),
  )

  it(
    'UDP: reached from 127.0.0.1, the pod itself and its neighbour, and nobody there is said so',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = portNetwork(node)
      await net.add(pod, [
        { hostPort: 5353, containerPort: 53, protocol: 'udp' },
        { hostPort: 5354, containerPort: 54, protocol: 'udp' },
      ])
      await net.add(other, [])
      await serve(pod, 'pod', 'udp 53')
      for (const [from, address] of [
        [world, WORLD.node4],
        [world, WORLD.node6],
        [node, '127.0.0.1'],
        [pod, WORLD.node4],
        [other, WORLD.node4],
        [other, WORLD.node6],
      ] as const)
        assert.match(await reach(from, address, 5353, 'udp'), /^pod /)
      // ICMP finds its way back through the mapping: the client hears at once that nobody listens there.
      const { stderr } = await world.exec([
        'timeout',
        '5',
        'bash',
        '-c',
        `exec 3<>/dev/udp/${WORLD.node4}/5354; echo x >&3; read -r answer <&3`,
      ])
      assert.match(stderr, /Connection refused/)
    }),
  )
})

async function flows(node: Namespace, address: string): Promise<string[]> {
  // An answer of the first container's that was under way at its DEL is a connection of its own.
  const { stdout } = await node.exec(['conntrack', '-L', '-p', 'udp', '--orig-dst', address, '--orig-port-dst', '5353'])
  return stdout.split('\n').flatMap((line) => /src=\S+ dst=\S+ sport=\d+ dport=\d+/.exec(line)?.[0] ?? [])
}
