// The test of the fast path of a running agent, for pods and backends of each kind.
import assert from 'node:assert/strict'
import {
  attach,
  bare,
  everythingOn,
  grows,
  manifest,
  offloaded,
  onFastPath,
  onlyFrom,
  podManifest,
  serviceOf,
  stays,
} from './fast-path.ts'
import { until } from './harness.ts'
import { inCluster, type Node, UNDERLAY } from './nodes.ts'

const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48' }
const VIP = '10.96.0.10'
/** Pods answer on this port what they get. */
const ECHO = 82

/** What the test shows. */
export const TITLE =
  'connections of both families, by a Service and by a host port are offloaded; a policy ends one at once; a shaped pod goes by the rules; without the setting all go on by the rules'

/** The test, as mocha takes it. It wants br_netfilter. */
export function ofAgent(pods: 'bridge' | 'routed', type: 'vxlan' | 'host-gw'): (this: Mocha.Context) => Promise<void> {
  return inCluster(
    6,
    (cluster) => everythingOn(cluster, { ...CONF, Backend: { Type: type } }, pods),
    async ({ nodes, dir }, test) => {
      test.timeout(900_000)
      const [one, two, a, b, c, outside] = nodes as [Node, Node, Node, Node, Node, Node]
      const podsOf = (ips: Readonly<Record<string, readonly string[]>> = {}) => [
        { kind: 'Namespace', metadata: { name: 'x' } },
        ...[a, b].map(({ name }) => podManifest(name, one.name, ips[name])),
        podManifest(c.name, two.name, ips[c.name]),
      ]
      manifest(dir, 'pods.yaml', ...podsOf())
      const agents = [one.agent(), two.agent()] as const
      for (const agent of agents) await agent.ready(120_000)
      const ofA = await attach(one, a, { portMappings: [{ hostPort: ECHO, containerPort: ECHO, protocol: 'tcp' }] })
      const ofB = await attach(one, b, { bandwidth: { egressRate: 1e9, egressBurst: 1e8 } })
      const ofC = await attach(two, c)
      manifest(dir, 'pods.yaml', ...podsOf({ [a.name]: ofA.ips, [b.name]: ofB.ips, [c.name]: ofC.ips }))
      manifest(dir, 'service.yaml', ...serviceOf(VIP, ECHO, ofC.ips[0] as string, two.name))
      await onFastPath(agents[0], { pods: 1, slowPods: 1 })
      await onFastPath(agents[1], { pods: 1, slowPods: 0 })
      const client = await bare(outside)

      for (const ip of [...ofC.ips, VIP]) await ofA.process.flow(ip, ip, true)
      await ofA.process.flow('udp', ofC.ips[0] as string, false)
      for (const node of [one, two])
        await until(async () => {
          const found = await offloaded(node, ofA.ips)
          assert.equal(found.length, 4, `${node.name}: ${found.join('\n')}`)
          return true
        }, 60_000)
      await client.flow('host port', UNDERLAY.v4(1), true)
      await until(async () => (await offloaded(one, [UNDERLAY.v4(6)])).length === 1, 60_000)
      await ofB.process.flow('shaped', ofC.ips[0] as string, true)
      await grows(ofB, 'shaped')
      assert.deepEqual(await offloaded(one, ofB.ips), [])

      manifest(dir, 'policy.yaml', onlyFrom(c.name, b.name))
      await stays(ofA, ofC.ips[0] as string)
      await stays(ofA, 'udp')
      await grows(ofB, 'shaped')
      assert.deepEqual(await offloaded(two, ofA.ips), [])
      assert.ok(((await agents[1].status())?.fastPath?.renewals ?? 0) > 0)
      manifest(dir, 'policy.yaml', { kind: 'Namespace', metadata: { name: 'y' } })
      await grows(ofA, ofC.ips[0] as string)

      await agents[0].stop()
      const off = one.agent('--fast-path=off')
      await off.ready(120_000)
      await until(
        async () => (await one.ns.exec(['nft', 'list', 'table', 'inet', 'plumb_fast_path'])).status !== 0,
        60_000,
      )
      await grows(ofA, VIP)
      assert.deepEqual((await off.status())?.fastPath, { state: 'off' })
      assert.deepEqual(await offloaded(one, ofA.ips), [])
      for (const pod of [ofA, ofB, ofC]) assert.equal((await pod.del()).status, 0)
      client.kill()
    },
  )
}
