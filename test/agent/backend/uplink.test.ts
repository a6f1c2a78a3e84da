// lane: quick
// Tests agent/backend.
import assert from 'node:assert/strict'
import {
  cardOf,
  chooseUplink,
  overlap,
  type PodRoutes,
  type Sight,
  type UplinkPreferences,
} from '../../../agent/backend/uplink.ts'
import type { Pool } from '../../../agent/lease/network-configuration.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import type { IfName } from '../../../lib/text/values.ts'

const NOTHING: UplinkPreferences = { ifaces: [], patterns: [], tunnel: {}, advertise: {} }
const [FOUR, SIX, DUAL] = [{ v4: true }, { v6: true }, { v4: true, v6: true }] as const

/**
 * A node of two links, written as `ip -br` prints them: `eth0 192.0.2.1/24 2001:db8::1/64`; a `~` before an address
 * makes it deprecated, `?` temporary, `*` dynamic.
 */
function sight(links: readonly string[], routes: readonly string[] = [], reach?: object): Sight {
  return {
    links: links.map((text, i) => {
      const [ifname = '', ...addresses] = text.split(' ')
      return {
        ifindex: i + 1,
        ifname,
        mtu: ifname === 'flat0' ? 0 : 1500,
        flags: /^(tun|ppp|wg)/.test(ifname) ? ['POINTOPOINT', 'UP'] : ifname.startsWith('down') ? [] : ['UP'],
        addr_info: addresses.map(row),
        ...(ifname.startsWith('br') ? { linkinfo: { info_kind: 'bridge' } } : {}),
      }
    }),
    routes: routes.map((text) => {
      const [dst = '', , dev = '', ...more] = text.split(' ')
      const after = (word: string) =>
        more.includes(word)
          ? {
              [word === 'via' ? 'gateway' : word]:
                word === 'metric' ? Number(more[more.indexOf(word) + 1]) : more[more.indexOf(word) + 1],
            }
          : {}
      return {
        family: dst === 'default6' || dst.includes(':') ? 6 : 4,
        dst: dst.replace('default6', 'default'),
        dev,
        ...after('via'),
        ...after('metric'),
        ...after('protocol'),
      }
    }),
    ...(reach ? { reach: reach as NonNullable<Sight['reach']> } : {}),
  } as Sight
}

function row(text: string): object {
  const local = text.replace(/^[~?*]/, '').split('/')[0] as string
  const scope = /^(fe80|169\.254)/.test(local) ? 'link' : /^(127|::1)/.test(local) ? 'host' : 'global'
  return {
    family: local.includes(':') ? 'inet6' : 'inet',
    local,
    scope,
    ...(text.startsWith('~') ? { deprecated: true } : {}),
    ...(text.startsWith('?') ? { temporary: true, dynamic: true } : {}),
    ...(text.startsWith('*') ? { dynamic: true } : {}),
  }
}

const TWO = sight(
  [
    'lo 127.0.0.1/8 ::1/128',
    'eth0 192.0.2.1/24 2001:db8::1/64',
    'eth1 198.51.100.1/24 198.51.100.9/24 2001:db8:1::1/64',
  ],
  [
    'default dev eth1 via 198.51.100.254',
    'default6 dev eth1 via 2001:db8:1::fe',
    '192.0.2.0/24 dev eth0',
    '198.51.100.0/24 dev eth1',
  ],
)

describe('chooseUplink()', () => {
  const chosen = (name: string, seen: Sight, wish: Partial<UplinkPreferences>, on: object, want: string) =>
    it(`${name}`, () => {
      const { uplink } = chooseUplink(seen, { ...NOTHING, ...wish }, on)
      const told =
        JSON.stringify(uplink.tunnel) === JSON.stringify(uplink.advertise)
          ? []
          : ['as', ...Object.values(uplink.advertise)]
      assert.equal([uplink.name, ...Object.values(uplink.tunnel), ...told].join(' '), want)
    })
  chosen('nothing asked: the link of the default route', TWO, {}, FOUR, 'eth1 198.51.100.1')
  chosen('nothing asked, IPv6 alone: of the IPv6 default route', TWO, {}, SIX, 'eth1 2001:db8:1::1')
  chosen('both families: an address of each', TWO, {}, DUAL, 'eth1 198.51.100.1 2001:db8:1::1')
  chosen(
    'two default routes: the lower metric',
    sight(
      ['a 10.0.0.1/8', 'b 10.0.0.2/8'],
      ['default dev a via 10.0.0.9 metric 200', 'default dev b via 10.0.0.9 metric 100'],
    ),
    {},
    FOUR,
    'b 10.0.0.2',
  )
  chosen('a link by name', TWO, { ifaces: ['eth0'] }, FOUR, 'eth0 192.0.2.1')
  chosen(
    'a link by its address, the first of several that is there',
    TWO,
    { ifaces: ['eth7', '192.0.2.1', 'eth1'] },
    FOUR,
    'eth0 192.0.2.1',
  )
  chosen('a pattern of an address before one of a name', TWO, { patterns: ['^192'] }, FOUR, 'eth0 192.0.2.1')
  chosen('a link by one of its addresses: that address', TWO, { ifaces: ['198.51.100.9'] }, FOUR, 'eth1 198.51.100.9')
  chosen(
    'a pattern of an address: the address that it matches, and never a loopback’s',
    TWO,
    { patterns: ['[19]$', '\\.9$'] },
    FOUR,
    'eth0 192.0.2.1',
  )
  chosen(
    'a pattern of the second address of a link: that address',
    TWO,
    { patterns: ['\\.9$'] },
    FOUR,
    'eth1 198.51.100.9',
  )
  chosen('a pattern of a name', TWO, { patterns: ['^nothing', 'th1$'] }, FOUR, 'eth1 198.51.100.1')
  chosen(
    'by what it can reach, with the source of that route',
    sight(['eth0 192.0.2.1/24 192.0.2.7/24'], [], { dst: '192.0.2.9', dev: 'eth0', prefsrc: '192.0.2.7' }),
    { canReach: '192.0.2.9' as Ip },
    FOUR,
    'eth0 192.0.2.7',
  )
  chosen(
    'a public address that a link has: that link, and that address',
    TWO,
    { advertise: { v4: '198.51.100.9' as Ip } },
    FOUR,
    'eth1 198.51.100.9',
  )
  chosen(
    'a public address that only a NAT has: told to peers, and tunnels begin at the own one',
    TWO,
    { advertise: { v4: '203.0.113.5' as Ip } },
    FOUR,
    'eth1 198.51.100.1 as 203.0.113.5',
  )
  chosen(
    'a tunnel address: its link, whatever the default route',
    TWO,
    { tunnel: { v4: '192.0.2.1' as Ip }, advertise: { v4: '203.0.113.5' as Ip } },
    FOUR,
    'eth0 192.0.2.1 as 203.0.113.5',
  )
  chosen(
    'a lasting IPv6 address before a temporary one, a deprecated one never',
    sight(
      ['eth0 192.0.2.1/24 fe80::1/64 ~2001:db8::d/64 ?2001:db8::7/64 *2001:db8::5/64'],
      ['default6 dev eth0 via fe80::9'],
    ),
    {},
    SIX,
    'eth0 2001:db8::5',
  )
  chosen(
    'a link-local address, when there is no other',
    sight(['eth0 169.254.1.1/16'], ['default dev eth0 via 169.254.0.1']),
    {},
    FOUR,
    'eth0 169.254.1.1',
  )

  const VPN = sight(
    ['eth0 192.0.2.1/24', 'eth1 198.51.100.1/24', 'tun0 10.8.0.2/24'],
    [
      'default dev tun0 via 10.8.0.1',
      'default dev eth1 via 198.51.100.254 metric 10',
      'default dev eth0 via 192.0.2.254 metric 100',
    ],
  )
  const BEFORE = { name: 'eth0' as IfName, index: 1, tunnel: { v4: '192.0.2.1' as Ip } }
  for (const [what, before, seen, want] of [
    ['a default route over a point-to-point link is passed over', undefined, VPN, 'eth1 198.51.100.1'],
    ['the link chosen before stays while it is up and has its address', BEFORE, VPN, 'eth0 192.0.2.1'],
    [
      'one that has another address by now does not',
      { ...BEFORE, tunnel: { v4: '192.0.2.9' as Ip } },
      VPN,
      'eth1 198.51.100.1',
    ],
    ['one that was made anew does not', { ...BEFORE, index: 7 }, VPN, 'eth1 198.51.100.1'],
    [
      'one that lost its default route to a point-to-point link stays',
      BEFORE,
      sight(['eth0 192.0.2.1/24', 'tun0 10.8.0.2/24'], ['default dev tun0 via 10.8.0.1']),
      'eth0 192.0.2.1',
    ],
    [
      'one without a default route leaves it to one that has one',
      BEFORE,
      sight(['eth0 192.0.2.1/24', 'eth1 198.51.100.1/24'], ['default dev eth1 via 198.51.100.254']),
      'eth1 198.51.100.1',
    ],
    [
      'one that is down does not',
      { ...BEFORE, name: 'down0' as IfName },
      sight(['down0 192.0.2.1/24', 'eth1 198.51.100.1/24'], ['default dev eth1 via 198.51.100.254']),
      'eth1 198.51.100.1',
    ],
  ] as const)
    it(`${what}`, () => {
      const { uplink } = chooseUplink(seen, NOTHING, FOUR, before)
      assert.equal(`${uplink.name} ${uplink.tunnel.v4}`, want)
    })
  it('a point-to-point link that is asked for is chosen', () =>
    assert.equal(chooseUplink(VPN, { ...NOTHING, ifaces: ['tun0'] }, FOUR, BEFORE).uplink.name, 'tun0'))

  const refused = (name: string, seen: Sight, wish: Partial<UplinkPreferences>, on: object, said: RegExp) =>
    it(`refuses ${name}`, () => assert.throws(() => chooseUplink(seen, { ...NOTHING, ...wish }, on), said))
  refused(
    'a node without a default route, naming the fix',
    sight(['eth0 192.0.2.1/24']),
    {},
    FOUR,
    /there is no IPv4 default route; name the link with --iface \(there are eth0 \(192\.0\.2\.1\)\)/,
  )
  refused(
    'a default route over a VPN alone, naming the fix',
    sight(['eth0 192.0.2.1/24', 'tun0 10.8.0.2/24'], ['default dev tun0 via 10.8.0.1']),
    {},
    FOUR,
    /leads over tun0, a point-to-point link, which is never chosen unasked; name the link with --iface/,
  )
  refused(
    'default routes of two families over two links',
    sight(['a 10.0.0.1/8', 'b fd00::1/64'], ['default dev a via 10.0.0.9', 'default6 dev b via fd00::9']),
    {},
    DUAL,
    /IPv4 default route leads over a, the IPv6 one over b/,
  )
  refused(
    'what is not there, naming what is',
    TWO,
    { ifaces: ['eth7'], patterns: ['^wl'] },
    FOUR,
    /by --iface eth7, --iface-regex \^wl: there are eth0/,
  )
  refused(
    'a link without an address of a family',
    sight(['eth0 192.0.2.1/24'], ['default dev eth0 via 192.0.2.9']),
    { ifaces: ['eth0'] },
    DUAL,
    /eth0 as uplink: it has no usable IPv6 address/,
  )
  refused(
    'a tunnel address that no link has',
    TWO,
    { tunnel: { v4: '203.0.113.5' as Ip } },
    FOUR,
    /Cannot begin tunnels at 203\.0\.113\.5: no link has that address/,
  )
  refused('a link of MTU 0', sight(['flat0 192.0.2.1/24']), { ifaces: ['flat0'] }, FOUR, /its MTU is 0/)
})

describe('overlap()', () => {
  const pool: Pool = {
    network: '10.244.0.0/16' as Cidr,
    length: 24,
    min: '10.244.1.0' as Ip,
    max: '10.244.255.0' as Ip,
  }
  const fresh: PodRoutes = { links: ['flannel.1'], subnets: {}, byCommands: false }
  const served: PodRoutes = { ...fresh, subnets: { v4: '10.244.1.0/24' as Cidr } }
  const moved: PodRoutes = { ...fresh, subnets: { v4: '10.96.1.0/24' as Cidr } }
  const of = (route: string, pods: PodRoutes) => overlap(sight(['eth0', 'br0'], [route]), pool, pods)

  for (const [what, route, found] of [
    ['a network that holds it', '10.0.0.0/8 dev eth0', '10.0.0.0/8 on eth0'],
    ['the same by a router', '10.0.0.0/8 dev eth0 via 192.0.2.9', '10.0.0.0/8 on eth0'],
    ['a part of it that is no subnet of a node', '10.244.128.0/17 dev eth0', '10.244.128.0/17 on eth0'],
    ['the same by a router', '10.244.128.0/17 dev eth0 via 192.0.2.9', '10.244.128.0/17 on eth0'],
    ['a subnet on a link of the node', '10.244.7.0/24 dev eth0', '10.244.7.0/24 on eth0'],
    ['one address on a link of the node', '10.244.7.9 dev eth0', '10.244.7.9 on eth0'],
    ['a network that holds the own subnet', '10.244.0.0/23 dev eth0', '10.244.0.0/23 on eth0'],
  ] as const)
    for (const [who, pods] of Object.entries({ fresh, served, moved }))
      it(`a network meets ${what}: ${route}, on a ${who} node`, () => assert.equal(of(route, pods), found))

  for (const [what, route] of [
    ['the default route', 'default dev eth0 via 10.0.0.1'],
    ['a bridge', '10.244.1.0/24 dev br0'],
    ['the device of the backend', '10.244.2.0/24 dev flannel.1'],
    ['a route of an agent', '10.244.2.0/24 dev eth0 via 192.0.2.2 protocol 112'],
    ['other networks', '10.1.0.0/24 dev eth0'],
    ['the other family', 'fd00::/8 dev eth0'],
  ] as const)
    for (const [who, pods] of Object.entries({ fresh, served, moved }))
      it(`${what} is no overlap: ${route}, on a ${who} node`, () => assert.equal(of(route, pods), undefined))

  const byCommands = { ...served, byCommands: true }
  for (const [what, route, own, found] of [
    ['pods of this node', '10.244.1.7 dev veth1', served, '10.244.1.7 on veth1'],
    [
      'a subnet by another node, as flannel makes it',
      '10.244.7.0/24 dev eth0 via 192.0.2.7',
      served,
      '10.244.7.0/24 on eth0',
    ],
    ['a device of another backend of flannel', '10.244.0.0/16 dev flannel-wg', served, '10.244.0.0/16 on flannel-wg'],
    ['a subnet, as commands make it', '10.244.7.0/24 dev tun0', byCommands, '10.244.7.0/24 on tun0'],
  ] as const) {
    it(`${what} are no overlap on a node that has served pods in that network: ${route}`, () =>
      assert.equal(of(route, own), undefined))
    it(`${what} are one on every other node: ${route}`, () =>
      assert.deepEqual([of(route, fresh), of(route, moved)], [found, found]))
  }
})

describe('cardOf()', () => {
  // `bond0.5` is a VLAN of the bond of two cards, `br9` a bridge with a card and the end of a pod.
  const links = [
    { ifname: 'eth0', master: 'bond0' },
    { ifname: 'eth1', master: 'bond0' },
    { ifname: 'bond0', linkinfo: { info_kind: 'bond' } },
    { ifname: 'bond0.5', link: 'bond0', linkinfo: { info_kind: 'vlan' } },
    { ifname: 'eth2', master: 'br9' },
    { ifname: 'veth1', link: 'eth3', master: 'br9', linkinfo: { info_kind: 'veth' } },
    { ifname: 'br9', linkinfo: { info_kind: 'bridge' } },
    { ifname: 'away', link: 'eth0', link_netnsid: 0, linkinfo: { info_kind: 'macvlan' } },
    { ifname: 'vlan7', link: 'vlan8', linkinfo: { info_kind: 'vlan' } },
    { ifname: 'vlan8', link: 'vlan7', linkinfo: { info_kind: 'vlan' } },
  ] as unknown as Sight['links']
  const HAVE: Readonly<Record<string, boolean>> = { eth0: true, eth1: false, eth2: true, bond0: true, 'bond0.5': true }
  for (const [name, card, has] of [
    ['eth0', 'eth0', true],
    ['bond0', 'eth1', false],
    ['bond0.5', 'eth1', false],
    ['br9', 'veth1', undefined],
    ['veth1', 'veth1', undefined],
    ['away', 'away', undefined],
    ['gone', 'gone', undefined],
    ['vlan7', 'vlan8', undefined],
  ] as const)
    it(`of ${name} is ${card}: ${has}`, () =>
      assert.deepEqual(
        cardOf(links, name, (one) => HAVE[one]),
        { name: card, hasTunnelChecksums: has },
      ))
})
