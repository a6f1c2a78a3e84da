// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { inNamespaces, type Namespace, type Row } from '../../support/harness.ts'
import { portNetwork, works } from '../../support/host-ports.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'
import { skip } from '../../support/skip.ts'

const NAMES = ['node', 'pod', 'other', 'world'] as const
const PORT = { hostPort: 8080, containerPort: 80 }

describe('portmap: who reaches a host port', () => {
  for (const bridgeNf of [0, 1]) {
    for (const hairpinMode of [false, true]) {
      for (const backend of hairpinMode ? ['iptables', 'nftables'] : [undefined]) {
        const setting = `with bridge-nf-call-iptables ${bridgeNf}, hairpinMode ${hairpinMode}, backend ${backend}`
        const begin = async (
          test: Mocha.Context,
          { node, pod, other, world }: Readonly<Record<(typeof NAMES)[number], Namespace>>,
        ) => {
          test.timeout(60_000)
          await wireWorld(node, world)
          await setBridgeNf(test, node, bridgeNf)
          const net = portNetwork(node, { bridge: { hairpinMode, ipMasq: true }, portmap: { backend } })
          await net.add(pod, [PORT])
          await net.add(other, [])
          await serve(pod, 'pod', 'tcp 80')
        }
        it(
          `TCP over IPv4, ${setting}: the outside, the node's addresses, 127.0.0.1, the pod itself and its neighbour`,
          inNamespaces(NAMES, async (namespaces, test) => {
            const { node, pod, other, world } = namespaces
            await begin(test, namespaces)
            assert.equal(await reach(world, WORLD.node4, 8080), `pod ${WORLD.world4}`)
            for (const [from, address] of [
              [node, WORLD.node4],
              [node, '10.1.0.1'],
              [node, '127.0.0.1'],
              [node, '127.0.0.53'],
              [pod, WORLD.node4],
              [pod, '10.1.0.1'],
              [other, WORLD.node4],
              [other, '10.1.0.1'],
            ] as const)
              assert.match(await reach(from, address, 8080), /^pod /)
          }),
        )

        it(
          `TCP over IPv6, ${setting}: the same but localhost`,
          inNamespaces(NAMES, async (namespaces, test) => {
            const { node, pod, other, world } = namespaces
            await begin(test, namespaces)
            assert.equal(await reach(world, WORLD.node6, 8080), `pod ${WORLD.world6}`)
            for (const [from, address] of [
              [node, WORLD.node6],
              [node, 'fd00:1::1'],
              [pod, WORLD.node6],
              [pod, 'fd00:1::1'],
              [other, WORLD.node6],
              [other, 'fd00:1::1'],
            ] as const)
              assert.match(await reach(from, address, 8080), /^pod /)
            // Linux lets nothing from ::1 leave the node: as with the reference, it is nobody's.
            assert.equal(await answers(node, '::1', 8080), false)
          }),
        )
      }
    }
  }

  it(
    'after a ptp that names no interfaces, or none of the address: the same result in every version, and 127.0.0.1 works',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      await node.exec([
        'sh',
        '-ec',
        `echo 1 >/proc/sys/net/ipv4/ip_forward; ip link add host0 type veth peer name eth0 netns ${pod.path}; ip addr add 10.7.0.1/32 dev host0; ip link set host0 up; ip route add 10.7.0.2/32 dev host0`,
      ])
      await pod.exec([
        'sh',
        '-ec',
        'ip addr add 10.7.0.2/32 dev eth0; ip link set eth0 up; ip route add 10.7.0.1 dev eth0; ip route add default via 10.7.0.1',
      ])
      await serve(pod, 'pod', 'tcp 80')
      const net = portNetwork(node)
      const results: Record<string, Row> = {
        '0.3.1': { ips: [{ version: '4', address: '10.7.0.2/32', gateway: '10.7.0.1' }] },
        '0.2.0': { ip4: { ip: '10.7.0.2/32', gateway: '10.7.0.1' } },
        // An index that leads nowhere counts as none, as upstream.
        '1.0.0': { ips: [{ address: '10.7.0.2/32', gateway: '10.7.0.1', interface: 5 }] },
        '1.1.0': {
          interfaces: [{ name: 'host0' }, { name: 'eth0', sandbox: pod.path }],
          ips: [{ address: '10.7.0.2/32', interface: 1 }],
        },
      }
      for (const [cniVersion, prevResult] of Object.entries(results)) {
        const { result } = works(
          await net.call('ADD', pod, { cniVersion, prevResult, runtimeConfig: { portMappings: [PORT] } }),
        )
        const { dns, ...rest } = result
        assert.deepEqual(rest, { cniVersion, ...prevResult })
        for (const [from, address] of [
          [world, WORLD.node4],
          [node, '127.0.0.1'],
          [pod, WORLD.node4],
        ] as const)
          assert.match(await reach(from, address, 8080), /^pod /)
        works(await net.call('DEL', pod, { cniVersion }))
        await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv4/conf/host0/route_localnet'])
      }
    }),
  )
})

async function setBridgeNf(test: Mocha.Context, node: Namespace, value: number): Promise<void> {
  if (!existsSync('/proc/sys/net/bridge')) skip(test, 'this kernel has no br_netfilter, or it is not loaded')
  await node.exec([
    'sh',
    '-c',
    `for one in iptables ip6tables; do echo ${value} >/proc/sys/net/bridge/bridge-nf-call-$one; done`,
  ])
}
