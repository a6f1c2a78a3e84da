// lane: quick
// Tests agent/kernel/ownership.ts.
import assert from 'node:assert/strict'
import { throughNexthop } from '../../../agent/kernel/nexthops.ts'
import { ownership, within } from '../../../agent/kernel/ownership.ts'
import type { Nexthop } from '../../../lib/state/kinds/nexthop.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'

const neigh = (n: number, mac = n) =>
  ({
    kind: 'neigh',
    ns: 'host',
    dev: 'flannel.1',
    ip: `10.244.${n}.0`,
    mac: `02:00:00:00:00:${mac.toString(16).padStart(2, '0')}`,
    proto: 112,
  }) as Resource

const route = (via: string, dev = 'flannel.1') =>
  ({
    kind: 'route',
    ns: 'host',
    dst: '10.244.2.0/24' as Cidr,
    via: [via as Ip] as const,
    dev: dev as IfName,
    onlink: true,
    proto: 112,
  }) as const satisfies Route

describe('ownership()', () => {
  const owns = ownership({
    instance: parse.network('one'),
    links: [parse.ifname('flannel.1')],
    networks: ['10.244.0.0/16', 'fd00:244::/32'] as Cidr[],
  })
  const [nexthop] = throughNexthop(route('192.0.2.2', 'eth0'), parse.network('one')) as [Nexthop, Route]

  for (const [what, own, found] of [
    ['a route of ours in the network, wherever it leads', true, route('192.0.2.2', 'eth7')],
    ['a route of ours outside the network', false, { ...route('192.0.2.2', 'eth0'), dst: '10.245.0.0/24' }],
    [
      'a route of ours outside the network through a nexthop of ours',
      true,
      { ...route('192.0.2.2', 'eth0'), dst: '10.245.0.0/24', nhid: nexthop.id },
    ],
    [
      'a route without number on our device in the network: flannel’s',
      true,
      { ...route('10.244.2.0'), proto: undefined },
    ],
    [
      'a route without number on our device outside the network',
      false,
      { ...route('10.244.2.0'), proto: undefined, dst: '203.0.113.0/24' },
    ],
    ['a static route on our device', false, { ...route('10.244.2.0'), proto: 4 }],
    ['a route without number on another device', false, { ...route('192.0.2.2', 'eth0'), proto: undefined }],
    ['a neighbour on our device, flannel’s too', true, { ...neigh(2), proto: 0 }],
    ['a neighbour on another device', false, { ...neigh(2), dev: 'eth0' }],
    ['somebody’s neighbour outside the network on our device', false, { ...neigh(2), ip: '203.0.113.1', proto: 0 }],
    [
      'an FDB entry on our device',
      true,
      { kind: 'tunnel', dev: 'flannel.1', mac: '02:00:00:00:00:02', dst: '192.0.2.2' },
    ],
    [
      'where packets without an entry go',
      false,
      { kind: 'tunnel', dev: 'flannel.1', mac: '00:00:00:00:00:00', dst: '192.0.2.2' },
    ],
    ['a group', false, { kind: 'tunnel', dev: 'flannel.1', mac: '33:33:00:00:00:01', dst: '192.0.2.2' }],
    ['an address in the network on our device', true, { kind: 'addr', dev: 'flannel.1', cidr: '10.244.9.0/32' }],
    [
      'an address outside the network on our device',
      false,
      { kind: 'addr', dev: 'flannel.1', cidr: '198.51.100.1/32' },
    ],
    ['a link with our alias', true, { kind: 'link', name: 'flannel.9', alias: 'plumb-agent/one' }],
    ['a link with another agent’s alias', false, { kind: 'link', name: 'flannel.9', alias: 'plumb-agent/one2' }],
    ['a nexthop of ours', true, nexthop],
    ['a nexthop of another agent', false, { ...nexthop, id: nexthop.id - 1 }],
    ['a nexthop of another program', false, { ...nexthop, proto: 0 }],
  ] as const) {
    it(`${own ? 'claims' : 'leaves alone'} ${what}`, () =>
      assert.equal(owns({ ns: 'host', ...found } as Resource), own))
  }
  it('within() agrees with the arithmetic of addresses', () => {
    const isIn = within(['10.244.0.0/16', '192.0.2.128/25', 'fd00:244::/32'] as Cidr[])
    const inside = [
      '10.244.0.0',
      '10.244.255.255/32',
      '10.244.7.0/24',
      '192.0.2.128',
      '192.0.2.255',
      'fd00:244::',
      'fd00:244:ffff::/64',
    ]
    const outside = ['10.243.255.255', '10.245.0.0/16', '192.0.2.127', '192.0.3.0', 'fd00:245::', 'fd00:243:ffff::/64']
    assert.deepEqual(
      [inside, outside].map((all) => all.filter((one) => isIn(one as Ip))),
      [inside, []],
    )
  })
})
