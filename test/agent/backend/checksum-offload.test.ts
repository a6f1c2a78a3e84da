// lane: netns
// Tests agent/backend/checksum-offload.ts and lib/os/link-features.ts: the card decides, with real agents.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { linkFeature } from '../../../lib/os/link-features.ts'
import { inside } from '../../../lib/os/netns.ts'
import { txChecksum } from '../../../lib/os/sockets.ts'
import { parse } from '../../../lib/text/values.ts'
import { assertReach } from '../../support/etcd-networks.ts'
import { type Namespace, until } from '../../support/harness.ts'
import { setFeature } from '../../support/link-features.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'

const FEATURE = 'tx-udp_tnl-csum-segmentation'
const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const on = (cluster: Cluster) => fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } })

function offload({ path }: Namespace): boolean | undefined {
  return inside(parse.netns(path), () => txChecksum('flannel.1'))
}

// Until the device has it, and the status tells the reason.
async function has({ ns }: Node, agent: Agent, isOn: boolean, why: string): Promise<void> {
  await until(async () => {
    assert.equal((await agent.status())?.uplink?.checksumOffload?.why, why)
    assert.equal(offload(ns), isOn)
    return true
  }, 10_000)
}

describe('plumb agent and checksum offload of the tunnel', () => {
  it(
    'auto: off when the card cannot cut tunnelled packets, on when it can, again when the card or the uplink changes; put back when somebody else switches it; packets pass',
    inCluster(2, on, async ({ nodes, hub }, test) => {
      test.timeout(90_000)
      const [one, two] = nodes as [Node, Node]
      const [agent, other] = nodes.map((node) => node.agent()) as [Agent, Agent]
      await Promise.all([agent.ready(20_000), other.ready(20_000)])
      await has(one, agent, true, `on: the card eth0 has ${FEATURE}`)
      setFeature(one.ns, 'eth0', FEATURE, false)
      process.kill(agent.pid, 'SIGHUP')
      await has(one, agent, false, `off: the card eth0 lacks ${FEATURE}`)
      await assertReach(nodes, { v4: 1450 })
      inside(parse.netns(one.ns.path), () => txChecksum('flannel.1', true))
      assert.equal(offload(one.ns), true)
      process.kill(agent.pid, 'SIGHUP')
      await until(() => offload(one.ns) === false, 10_000)
      assert.match(agent.log(), /agent: checksum offload of the tunnel is off: the card eth0 lacks/)

      // The other node gets another card, that lacks it.
      await hub.ip('link', 'add', 'port9', 'type', 'veth', 'peer', 'name', 'eth1', 'netns', two.ns.path)
      await hub.ip('link', 'set', 'port9', 'master', 'hub0', 'up')
      setFeature(two.ns, 'eth1', FEATURE, false)
      await two.ns.ip('addr', 'del', `${UNDERLAY.v4(2)}/24`, 'dev', 'eth0')
      await two.ns.ip('link', 'set', 'eth0', 'down')
      await two.ns.ip('link', 'set', 'eth1', 'up')
      await two.ns.ip('addr', 'add', `${UNDERLAY.v4(2)}/24`, 'dev', 'eth1')
      await two.ns.ip('route', 'add', 'default', 'via', UNDERLAY.v4(254))
      await has(two, other, false, `off: the card eth1 lacks ${FEATURE}`)
      await assertReach(nodes, { v4: 1450 }, 10_000)

      setFeature(one.ns, 'eth0', FEATURE, true)
      process.kill(agent.pid, 'SIGHUP')
      await has(one, agent, true, `on: the card eth0 has ${FEATURE}`)
    }),
  )

  it(
    'on, though the card cannot: the device has it, plumb status says why, and plumb doctor finds it',
    inCluster(1, on, async ({ nodes }, test) => {
      test.timeout(60_000)
      const [one] = nodes as [Node]
      setFeature(one.ns, 'eth0', FEATURE, false)
      assert.equal(
        inside(parse.netns(one.ns.path), () => linkFeature('eth0', FEATURE)),
        false,
      )
      assert.equal(
        inside(parse.netns(one.ns.path), () => linkFeature('nolink0', FEATURE)),
        undefined,
      )
      const agent = one.agent('--tx-checksum-offload=on')
      await agent.ready(20_000)
      await has(one, agent, true, 'on, by a setting')
      const socket = ['--socket', `${one.dir}/agent.sock`]
      const { stdout } = await one.ns.exec([PLUMB, 'status', ...socket])
      assert.match(stdout, /^checksums +offload on, by a setting$/m)
      const doctor = await one.ns.exec([PLUMB, 'doctor', ...socket, 'DR56'])
      assert.match(
        doctor.stdout,
        /^warning DR56: A setting switches .* the card eth0 lacks tx-udp_tnl-csum-segmentation/m,
      )
    }),
  )
})
