// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

describe('plumb agent', () => {
  it(
    'with --ip-blackhole-route what is for no pod of the node ends there, a bridge of the subnet counts before it, and it is put back, and gone without the option',
    inCluster(
      1,
      (cluster) => fileStore(cluster, NETWORK),
      async ({ nodes }) => {
        const [one] = nodes as [Node]
        const blackholes = async () =>
          (
            await Promise.all([
              one.ns.ip('route', 'show', 'type', 'blackhole'),
              one.ns.ip('-6', 'route', 'show', 'type', 'blackhole'),
            ])
          ).map((text) => text.trim().replace(/ pref medium$/, ''))
        const agent = one.agent('--ip-blackhole-route')
        await agent.ready(30_000)
        const env = subnetEnv(one) as Record<string, string>
        const [v4 = '', v6 = ''] = [env['FLANNEL_SUBNET'], env['FLANNEL_IPV6_SUBNET']].map((subnet) =>
          subnet?.replace('.1/', '.0/').replace('::1/', '::/'),
        )
        const wanted = [
          `blackhole ${v4} proto 112 metric 4294967295`,
          `blackhole ${v6} dev lo proto 112 metric 4294967295`,
        ]
        assert.deepEqual(await blackholes(), wanted)
        const nobody = v4.replace('.0/24', '.99')
        assert.equal((await one.ns.exec(['ip', 'route', 'get', nobody])).status, 2)
        await one.ns.ip('link', 'add', 'name', 'cni0', 'up', 'type', 'bridge')
        await one.ns.ip('addr', 'add', env['FLANNEL_SUBNET'] as string, 'dev', 'cni0')
        assert.match(await one.ns.ip('route', 'get', nobody), / dev cni0 /)
        for (const [i, family] of ['-4', '-6'].entries()) {
          await one.ns.ip(family, 'route', 'del', ...(wanted[i] as string).split(' '))
          await until(async () => assert.deepEqual(await blackholes(), wanted) === undefined, 5000)
        }
        await until(async () => assert.equal((await agent.status())?.kinds['route']?.repaired, 2) === undefined, 5000)
        await agent.stop()
        await one.agent().ready(30_000)
        assert.deepEqual(await blackholes(), ['', ''])
      },
    ),
  )
})
