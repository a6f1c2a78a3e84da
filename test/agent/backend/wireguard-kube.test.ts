// lane: vm
// Tests agent with agent/backend/types/wireguard.ts and agent/store/kube: keys as annotations of Nodes.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach } from '../../support/etcd-networks.ts'
import { until } from '../../support/harness.ts'
import { API, onKube, served } from '../../support/kube-nodes.ts'
import type { Node } from '../../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const ANNOTATION = 'flannel.alpha.coreos.com/'

describe('plumb agent with wireguard and leases in Kubernetes', () => {
  it(
    'nodes find each other’s keys in annotations of both families, also after a rotation',
    onKube(
      2,
      {
        network: {
          Network: '10.244.0.0/16',
          EnableIPv6: true,
          IPv6Network: 'fd44::/48',
          Backend: { Type: 'wireguard' },
        },
        podCidrs: (n) => [`10.244.${n}.0/24`, `fd44:0:0:${n}::/64`],
      },
      () => served(API.v4),
      async (nodes, kube) => {
        const [first] = nodes as [Node]
        const keyOf = async (family: '' | 'v6-') =>
          JSON.parse((await kube.get('n1'))?.metadata.annotations?.[`${ANNOTATION}backend-${family}data`] ?? '{}')[
            'PublicKey'
          ]
        const agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420, v6: 1420 })
        const own = async () =>
          (await first.ns.exec(['wg', 'show', 'flannel-wg', 'public-key'])).stdout.trim() as string
        const before = await own()
        assert.deepEqual([await keyOf(''), await keyOf('v6-')], [before, before])
        await execa(PLUMB, ['wireguard', 'rotate', '--socket', join(first.dir, 'agent.sock')])
        await until(async () => (await own()) !== before, 30_000)
        const made = await own()
        await until(async () => (await keyOf('')) === made && (await keyOf('v6-')) === made, 30_000)
        await assertReach(nodes, { v4: 1420, v6: 1420 })
      },
    ),
  ).timeout(300_000)
})
