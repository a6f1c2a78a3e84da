// lane: vm
// Tests agent/backend/path-mtu.ts with WireGuard, and lib/os/link-features.ts with a card of PCI.
import assert from 'node:assert/strict'
import { linkFeature } from '../../../lib/os/link-features.ts'
import { inside } from '../../../lib/os/netns.ts'
import { parse } from '../../../lib/text/values.ts'
import { until } from '../../support/harness.ts'
import { type Agent, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } }

describe('plumb agent with wireguard and a narrow path', () => {
  it(
    'the peer gets a route of its own with the size that arrives, beside the one that leads to all peers, and loses it when the path is whole again',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, CONF), '--probe-interval=1'],
      async ({ hub, nodes }, test) => {
        test.timeout(300_000)
        const [one] = nodes as [Node]
        // A bridge with netfilter would cut the tunnel's packets.
        await hub.exec(['sh', '-c', 'for one in /proc/sys/net/bridge/bridge-nf-call-ip*; do echo 0 >$one; done'])
        const [agent, other] = nodes.map((node) => node.agent()) as [Agent, Agent]
        for (const each of [agent, other]) await each.ready(60_000)
        const peer = async () => (await agent.status())?.peers[0]
        await until(async () => (await peer())?.probe?.state === 'answers', 60_000)
        const subnet = (await peer())?.subnets.v4 as string
        const routes = () => one.ns.ip('route', 'show', 'proto', '112', 'dev', 'flannel-wg')
        const wide = await routes()
        assert.match(wide, /^10\.244\.0\.0\/16 /)
        await hub.ip('link', 'set', 'port2', 'mtu', '1400')
        // A bridge lets 4 bytes more pass. WireGuard over IPv4 takes 60 bytes, and pads to 16.
        await until(async () => assert.deepEqual((await peer())?.routeMtu, { v4: 1344 }) === undefined, 120_000)
        const all = (await routes()).trim().split('\n')
        assert.deepEqual(
          all.map((line) => line.trim().replace(/ scope link/, '')),
          [wide.trim().replace(/ scope link/, ''), `${subnet} mtu 1344`],
        )
        await hub.ip('link', 'set', 'port2', 'mtu', '1500')
        await until(async () => assert.equal(await routes(), wide) === undefined, 120_000)
        assert.equal((await peer())?.routeMtu, undefined)
      },
    ),
  )
})

describe('linkFeature()', () => {
  it('reads the features of a card by its driver: this one joins what it receives, and cannot cut tunnelled packets', () => {
    const has = (feature: string) => inside(parse.netns('/machine-netns'), () => linkFeature('eth0', feature))
    assert.deepEqual([has('rx-gro'), has('tx-udp_tnl-csum-segmentation'), has('no-such')], [true, false, false])
  })
})
