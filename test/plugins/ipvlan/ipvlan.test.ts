// lane: netns
// Tests plugins/ipvlan.ts.
import assert from 'node:assert/strict'
import type { Result } from '../../../lib/cni/result.ts'
import ipvlan from '../../../plugins/ipvlan.ts'
import { told } from '../../support/explained-lines.ts'
import { snapshot } from '../../support/harness.ts'
import { lanConf, onLan, refusing } from '../../support/lan.ts'
import { network } from '../../support/network.ts'

const GIVEN = {
  ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }],
  routes: [{ dst: '0.0.0.0/0' }],
  dns: { nameservers: ['10.1.0.53'] },
} as unknown as Result
const conf = (keys: object = {}) => lanConf('ipvlan', { master: 'eth1', ...keys })

describe('ipvlan, as far as no kernel has to make one', () => {
  it("the node makes it in the pod, on its master, in the mode and of the size that was asked for; the result has the master's MAC", () => {
    const { lines, result } = told(
      ipvlan,
      { type: 'ipvlan', master: 'eth1', mode: 'l3s', mtu: 1400, ipam: { type: 'host-local' } },
      GIVEN,
    )
    assert.equal(
      lines,
      `node ip: link add link eth1 name plumb… mtu 1400 netns /run/netns/pod type ipvlan mode l3s
pod file: net/ipv4/conf/plumb…/arp_notify = 1
pod file: net/ipv6/conf/plumb…/ndisc_notify = 1
pod ip: link set dev plumb… alias plumb/net/c1/eth0 name eth0
pod ip: addr replace 10.1.0.2/24 brd + dev eth0
pod ip: link set dev eth0 up
pod ip: route prepend 0.0.0.0/0 via 10.1.0.1 dev eth0`,
    )
    assert.deepEqual(result.interfaces, [
      { name: 'eth0', mac: '02:00:00:00:00:e1', mtu: 1400, sandbox: '/run/netns/pod' },
    ])
    assert.deepEqual(result.dns, { nameservers: ['10.1.0.53'] })
    for (const mode of ['', 'l2', 'l3'])
      assert.match(
        told(ipvlan, { type: 'ipvlan', master: 'eth1', mode }).lines,
        new RegExp(` type ipvlan mode ${mode || 'l2'}$`, 'm'),
      )
  })

  it('behind another plugin: on the one link of that, with its addresses, routes and DNS, unless there is a pool', () => {
    const prevResult = { cniVersion: '1.1.0', interfaces: [{ name: 'eth1' }], ...GIVEN }
    const { lines, result } = told(ipvlan, { type: 'ipvlan', prevResult })
    assert.match(lines, /^node ip: link add link eth1 name plumb… netns \/run\/netns\/pod type ipvlan mode l2$/m)
    assert.deepEqual(result, {
      interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:e1', mtu: 1450, sandbox: '/run/netns/pod' }],
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 }],
      routes: GIVEN.routes,
      dns: GIVEN.dns,
    })
    const pooled = { ips: [{ address: '10.9.0.2/24' }] } as unknown as Result
    assert.deepEqual(told(ipvlan, { type: 'ipvlan', prevResult, ipam: { type: 'host-local' } }, pooled).result.ips, [
      { address: '10.9.0.2/24', interface: 0 },
    ])
  })

  it(
    'a prevResult of two interfaces, or of none, without a master; a wrong mode, mtu or master: refused with what would be right, and nothing changes',
    onLan(['pod'], async ({ node, pod }) => {
      const before = [await snapshot(node), await snapshot(pod)]
      const net = network(node, conf())
      const chained = (...names: string[]) => ({
        master: undefined,
        prevResult: { cniVersion: '1.1.0', interfaces: names.map((name) => ({ name })) },
      })
      await refusing(net, pod, [
        [
          chained('eth1', 'eth2'),
          /^Cannot choose a master: prevResult has 2 interfaces: want "master", or a prevResult with one$/,
        ],
        [chained(), /^Cannot choose a master: prevResult has 0 interfaces/],
        [chained('no/link'), /^Cannot read prevResult\.interfaces: "no\/link": want an interface name/],
        [{ master: undefined }, /^Cannot choose a master: no default route on the node$/],
        [{ mode: 'l4' }, /^Cannot read mode "l4": want one of l2, l3, l3s$/],
        [{ mtu: 1451 }, /^Cannot use mtu 1451: want 0 to 1450, the mtu of its master eth1$/],
        [{ mtu: -1 }, /^Cannot read mtu -1: want a whole number/],
        [{ master: 'eth7' }, /^Cannot find the master "eth7" on the node: there is no such link$/],
      ])
      assert.deepEqual([await snapshot(node), await snapshot(pod)], before)
      assert.equal((await net.fails('STATUS', pod, { conf: { ...net.conf, master: 'eth7' } })).code, 50)
    }),
  )
})
