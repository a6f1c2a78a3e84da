// lane: quick
// Tests agent/backend.
import assert from 'node:assert/strict'
import hostGw from '../../../../agent/backend/types/host-gw.ts'
import { handler } from '../../../../lib/state/kinds/index.ts'
import type { Cidr, Ip } from '../../../../lib/text/ip.ts'
import { parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'

const FACTS = { nexthops: false, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }

describe('host-gw', () => {
  const own = lease(1, {}, 'host-gw')
  const conf = hostGw.conf({ Anything: 1 })

  it('want() gives a route per subnet to the node’s address, no device, no address', () => {
    const { resources, problems } = hostGw.want(
      own,
      [lease(2, {}, 'host-gw'), lease(3, {}, 'host-gw', ['v4'])],
      uplink(1),
      conf,
      FACTS,
    )
    assert.equal(problems.size, 0)
    assert.equal(
      `\n${resources
        .flatMap((one) => handler(one.kind).put(one))
        .map(({ text }) => `${text}\n`)
        .join('')}`,
      `
route add 10.244.2.0/24 proto 112 via 192.0.2.2 dev eth0
route add fd00:244:2::/64 proto 112 via 2001:db8::2 dev eth0
route add 10.244.3.0/24 proto 112 via 192.0.2.3 dev eth0
`,
    )
  })
  it('want() leads routes to one gateway through one nexthop object', () => {
    const second = { ...lease(3, {}, 'host-gw', ['v4']), ips: { v4: '192.0.2.2' as Ip } }
    const { resources } = hostGw.want(own, [lease(2, {}, 'host-gw', ['v4']), second], uplink(1), conf, {
      ...FACTS,
      nexthops: true,
    })
    const ids = resources.flatMap((one) => (one.kind === 'nexthop' ? [one.id] : one.kind === 'route' ? [one.nhid] : []))
    assert.equal(ids.length, 4)
    assert.equal(new Set(ids).size, 1)
  })
  it('a peer behind a router, on another link or out of reach is a problem that names its address and the link', () => {
    for (const routes of [
      [{ dst: '192.0.2.0/24' as Cidr, dev: parse.ifname('eth0'), gateway: true }],
      [{ dst: '192.0.2.0/24' as Cidr, dev: parse.ifname('eth1'), gateway: false }],
      [],
    ]) {
      const { resources, problems } = hostGw.want(
        own,
        [lease(2, {}, 'host-gw', ['v4'])],
        { ...uplink(1), routes },
        conf,
        FACTS,
      )
      assert.deepEqual(resources, [])
      assert.deepEqual(
        [...problems],
        [
          [
            '10.244.2.0-24',
            '192.0.2.2 is not on the link eth0, there is a router in between; want backend vxlan, or nodes that share a link',
          ],
        ],
      )
    }
  })
  it('announce() refuses a public address that is not the link’s', () => {
    assert.throws(
      () =>
        hostGw.announce(
          'node-1',
          { ...uplink(1), advertise: { ...uplink(1).advertise, v4: '203.0.113.9' as Ip } },
          conf,
        ),
      {
        name: 'ValueError',
        message:
          'Cannot use backend host-gw: peers are told 203.0.113.9, which is not the address 192.0.2.1 of eth0; want no public address, or backend vxlan',
      },
    )
    assert.deepEqual(hostGw.announce('node-1', uplink(1), conf), {})
  })
  it('mtu() is the uplink’s', () => assert.equal(hostGw.mtu(conf, 9000, { v4: 1, v6: 1 }), 9000))
})
