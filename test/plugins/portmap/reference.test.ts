// lane: netns
// needs: reference
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { references } from '../../../scripts/peers.ts'
import { inNamespaces, type Namespace, plugin, type Row, snapshot } from '../../support/harness.ts'
import { type Port, portNetwork, works } from '../../support/host-ports.ts'
import { containerId, settled } from '../../support/network.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { reach, serve } from '../../support/servers.ts'
import { skip } from '../../support/skip.ts'

const PORTS: readonly Port[] = [
  { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
  { hostPort: 5353, containerPort: 53, protocol: 'udp' },
]

describe('portmap: what the reference portmap made', () => {
  it('a reference portmap is installed', function () {
    if (references().length === 0)
      skip(this, 'no reference plugins: neither the package containernetworking-plugins nor a built release')
  })

  for (const { version, path } of references()) {
    // The key backend came with 1.6.
    for (const backend of version < '1.5' ? ['iptables'] : ['iptables', 'nftables']) {
      for (const told of ['with mappings', 'without runtimeConfig and prevResult'] as const) {
        it(
          `DEL ${told} removes what portmap ${version} made with ${backend}: for this attachment, and for no other`,
          inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
            const theirs = portNetwork(node, { portmap: { backend }, dir: path })
            await theirs.add(other, [{ hostPort: 8081, containerPort: 80, protocol: 'tcp' }])
            const prevResult = await theirs.add(pod, [])
            const before = await settled(() => rules(node))
            works(await theirs.call('ADD', pod, { prevResult, runtimeConfig: { portMappings: PORTS } }))
            await serve(pod, 'pod', 'tcp 80')
            await serve(other, 'other', 'tcp 80')
            assert.match(await reach(node, '10.1.0.1', 8080), /^pod /)
            assert.notEqual(await rules(node), before)
            const conf = {
              ...theirs.conf,
              ...(told === 'with mappings' && { prevResult, runtimeConfig: { portMappings: PORTS } }),
            }
            works(await plugin('portmap', { command: 'DEL', conf, containerId: containerId(pod), netns: pod }, node))
            assert.equal(await rules(node), before)
            assert.match(await reach(node, '10.1.0.1', 8081), /^other /)
          }),
        )
      }
    }

    if (version >= '1.5')
      it(
        `DEL with prevResult leaves what portmap ${version} made with nftables for another network of the container, whose rules have the same comment`,
        inNamespaces(['node', 'pod'], async ({ node, pod }) => {
          const [a, b] = [
            portNetwork(node, { portmap: { backend: 'nftables' }, dir: path }),
            portNetwork(node, {
              portmap: { backend: 'nftables' },
              bridge: { bridge: 'br1', isDefaultGateway: false, isGateway: true },
              subnets: ['10.2.0.0/24', 'fd00:2::/64'],
              dir: path,
            }),
          ]
          await a.add(pod, [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }])
          const before = await theirTables(node)
          const prevResult: Row = await b.add(pod, [{ hostPort: 8081, containerPort: 80, protocol: 'tcp' }], {
            ifname: 'eth1',
          })
          works(
            await plugin(
              'portmap',
              {
                command: 'DEL',
                conf: { ...b.conf, prevResult },
                containerId: containerId(pod),
                ifname: 'eth1',
                netns: pod,
              },
              node,
            ),
          )
          assert.equal(await theirTables(node), before)
        }),
      )

    it(
      `beside pods of portmap ${version} ours work, and theirs go on: each port leads where it should, and clients keep their address`,
      inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }, test) => {
        test.timeout(60_000)
        await wireWorld(node, world)
        const theirs = portNetwork(node, { dir: path })
        await theirs.add(other, [{ hostPort: 8081, containerPort: 80, protocol: 'tcp' }])
        const prevResult = await theirs.add(pod, [])
        const ours = {
          command: 'ADD',
          conf: { ...theirs.conf, prevResult, runtimeConfig: { portMappings: PORTS } },
          containerId: containerId(pod),
          netns: pod,
        }
        works(await plugin('portmap', ours, node))
        await serve(pod, 'pod', 'tcp 80')
        await serve(other, 'other', 'tcp 80')
        for (const address of [WORLD.node4, WORLD.node6]) {
          const world46 = address === WORLD.node4 ? WORLD.world4 : WORLD.world6
          assert.equal(await reach(world, address, 8080), `pod ${world46}`)
          assert.equal(await reach(world, address, 8081), `other ${world46}`)
        }
        for (const [from, port, name] of [
          [pod, 8080, 'pod'],
          [other, 8080, 'pod'],
          [node, 8080, 'pod'],
          [node, 8081, 'other'],
        ] as const)
          assert.match(await reach(from, from === node ? '127.0.0.1' : WORLD.node4, port), new RegExp(`^${name} `))
      }),
    )
  }
})

/** Links and rules of both kinds, without what counts packets. */
async function rules(node: Namespace): Promise<string> {
  return `${await snapshot(node)}\n${(await node.exec(['sh', '-c', 'iptables-save; ip6tables-save; iptables-legacy-save; ip6tables-legacy-save'])).stdout.replace(/^#.*$|\[\d+:\d+\]/gm, '')}`
}

async function theirTables(node: Namespace): Promise<string> {
  return (await node.exec(['sh', '-c', 'for one in ip ip6; do nft list table $one cni_hostport; done'])).stdout
}
