// lane: netns
// Tests plugins/vlan.ts.
import assert from 'node:assert/strict'
import type { Result } from '../../../lib/cni/result.ts'
import vlan from '../../../plugins/vlan.ts'
import { told } from '../../support/explained-lines.ts'
import { snapshot } from '../../support/harness.ts'
import { lanConf, onLan, refusing } from '../../support/lan.ts'
import { network } from '../../support/network.ts'

const GIVEN = { ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }] } as unknown as Result
const conf = (keys: object = {}) => lanConf('vlan', { master: 'eth1', vlanId: 5, ...keys })

describe('vlan, as far as no kernel has to make one', () => {
  it("of the mtu that was asked for, or its master's; the result has that and the master's MAC", () => {
    const { lines, result } = told(vlan, { type: 'vlan', master: 'eth1', vlanId: 100, mtu: 1400 }, GIVEN)
    assert.match(lines, /^node ip: link add link eth1 name plumb… mtu 1400 netns \/run\/netns\/pod type vlan id 100$/m)
    assert.deepEqual(result.interfaces, [
      { name: 'eth0', mac: '02:00:00:00:00:e1', mtu: 1400, sandbox: '/run/netns/pod' },
    ])
    const plain = told(vlan, { type: 'vlan', master: 'eth1' }, GIVEN)
    assert.match(plain.lines, /^node ip: link add link eth1 name plumb… netns \/run\/netns\/pod type vlan id 0$/m)
    assert.deepEqual(plain.result.interfaces, [
      { name: 'eth0', mac: '02:00:00:00:00:e1', mtu: 1450, sandbox: '/run/netns/pod' },
    ])
  })

  it('linkInContainer: the tool is told in the pod; without ipam a link without addresses', () => {
    assert.equal(
      told(vlan, { type: 'vlan', master: 'eth1', vlanId: 5, linkInContainer: true }).lines,
      `pod ip: link add link eth1 name plumb… type vlan id 5
pod ip: link set dev plumb… alias plumb/net/c1/eth0 name eth0
pod ip: link set dev eth0 up`,
    )
  })

  it(
    "an mtu above the master's or below zero, VLAN 4095 and -1, no master or an unknown one: refused with what would be right, and nothing changes",
    onLan(['pod'], async ({ node, pod }) => {
      const before = [await snapshot(node), await snapshot(pod)]
      const net = network(node, conf())
      await refusing(net, pod, [
        [{ mtu: 1451 }, /^Cannot use mtu 1451: want 0 to 1450, the mtu of its master eth1$/],
        [{ mtu: -1 }, /^Cannot read mtu -1: want a whole number/],
        [{ vlanId: 4095 }, /^Cannot read vlanId 4095: want a whole number, 0 to 4094$/],
        [{ vlanId: -1 }, /^Cannot read vlanId -1: want a whole number, 0 to 4094$/],
        [{ master: undefined }, /^Cannot read master: it is missing: want the link whose VLAN it is, such as eth0$/],
        [{ master: 'eth7' }, /^Cannot find the master "eth7" on the node: there is no such link$/],
        [{ master: 'eth1', linkInContainer: true }, /^Cannot find the master "eth1" in \S+: there is no such link$/],
      ])
      assert.deepEqual([await snapshot(node), await snapshot(pod)], before)
      assert.equal((await net.fails('STATUS', pod, { conf: { ...net.conf, master: 'eth7' } })).code, 50)
    }),
  )
})
