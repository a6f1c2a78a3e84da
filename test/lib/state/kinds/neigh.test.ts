// lane: quick
// Tests lib/state.
import assert from 'node:assert/strict'
import { failures } from '../../../../lib/os/iproute2.ts'
import { handler } from '../../../../lib/state/kinds/index.ts'
import { type Link, link } from '../../../../lib/state/kinds/link.ts'
import { routeOf } from '../../../../lib/state/kinds/route.ts'
import type { Resource } from '../../../../lib/state/resource.ts'

const NEIGH = {
  kind: 'neigh',
  ns: 'host',
  dev: 'flannel.1',
  ip: '10.244.2.0',
  mac: '02:00:00:00:00:02',
  proto: 112,
} as Resource
const TUNNEL = { kind: 'tunnel', ns: 'host', dev: 'flannel.1', mac: '02:00:00:00:00:02', dst: '192.0.2.2' } as Resource
const NEXTHOP = {
  kind: 'nexthop',
  ns: 'host',
  id: 7,
  via: '10.244.2.0',
  dev: 'flannel.1',
  onlink: true,
  proto: 112,
} as Resource
const ROUTE = {
  kind: 'route',
  ns: 'host',
  dev: 'flannel.1',
  dst: '10.244.2.0/24',
  via: ['10.244.2.0'],
  onlink: true,
  proto: 112,
  nhid: 7,
} as unknown as Resource
// What iproute2 6.1 prints of these.
const ROWS = {
  neigh: { dst: '10.244.2.0', lladdr: '02:00:00:00:00:02', state: ['PERMANENT'], protocol: '112' },
  tunnel: { mac: '02:00:00:00:00:02', dst: '192.0.2.2', flags: ['self'], state: 'permanent' },
  nexthop: { id: 7, gateway: '10.244.2.0', dev: 'flannel.1', scope: 'link', protocol: '112', flags: ['onlink'] },
}

describe('neigh, tunnel, nexthop and route of the agent', () => {
  it('are made, changed and dropped by these lines', () => {
    assert.equal(
      lines([NEIGH, TUNNEL, NEXTHOP, ROUTE]),
      `
+ neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent protocol 112
- neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud stale
- neigh delete 10.244.2.0 dev flannel.1
+ fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent
- fdb delete 02:00:00:00:00:02 dev flannel.1 self
+ nexthop add id 7 via 10.244.2.0 dev flannel.1 onlink proto 112
~ nexthop replace id 7 via 10.244.2.0 dev flannel.1 onlink proto 112
- nexthop delete id 7
+ route add 10.244.2.0/24 proto 112 nhid 7
~ route replace 10.244.2.0/24 proto 112 nhid 7
- route delete 10.244.2.0/24 proto 112 nhid 7
`,
    )
  })
  it('are content when what is to go is gone, and with nothing else', () => {
    for (const one of [NEIGH, TUNNEL, NEXTHOP, ROUTE]) {
      const { unless } = handler(one.kind).drop(one).at(-1) ?? {}
      const gone = {
        neigh: 'Cannot find device "flannel.1"',
        tunnel: 'RTNETLINK answers: No such file or directory',
        nexthop: 'Error: Nexthop id does not exist.',
        route: 'RTNETLINK answers: No such process',
      }[one.kind as 'neigh']
      assert.match(failures(`${gone}\nCommand failed -:1\n`).byLine.get(1) as string, unless as RegExp)
      assert.doesNotMatch('Operation not permitted', unless as RegExp)
    }
  })
  it('are read back from what iproute2 prints, and not from what differs', () => {
    for (const [one, other] of [
      [NEIGH, { dst: '10.244.3.0' }],
      [TUNNEL, { dst: '192.0.2.9' }],
      [TUNNEL, { state: 'static' }],
      [TUNNEL, { port: 99 }],
      [NEXTHOP, { gateway: '10.244.9.0' }],
      [NEXTHOP, { protocol: 'boot' }],
      [NEXTHOP, { flags: [] }],
    ] as const) {
      const row = ROWS[one.kind as 'neigh']
      assert.deepEqual(handler(one.kind).read(row, one), one)
      assert.equal(handler(one.kind).read({ ...row, ...other }, one), undefined)
    }
    assert.deepEqual(handler('neigh').read({ ...ROWS.neigh, protocol: undefined }, NEIGH), { ...NEIGH, proto: 0 })
  })
  it('routeOf() reads a route as it was printed: host routes without a length, the metric that IPv6 has by default, the number that was asked for', () => {
    assert.deepEqual(
      routeOf({ dst: '10.244.2.0/24', nhid: 7, gateway: '10.244.2.0', dev: 'flannel.1', flags: ['onlink'] }, 112),
      ROUTE,
    )
    const plain = { kind: 'route', ns: 'host', dev: 'eth0' }
    assert.deepEqual(
      routeOf({ dst: 'fd00::1', gateway: '2001:db8::2', dev: 'eth0', metric: 1024, protocol: '112', flags: [] }),
      { ...plain, dst: 'fd00::1/128', via: ['2001:db8::2'], proto: 112 },
    )
    assert.deepEqual(routeOf({ dst: '10.0.0.1', dev: 'eth0', metric: 5, flags: [] }), {
      ...plain,
      dst: '10.0.0.1/32',
      via: [],
      priority: 5,
    })
  })
})

describe('a VXLAN link', () => {
  const want = {
    kind: 'link',
    ns: 'host',
    name: 'flannel.1',
    type: 'vxlan',
    mac: '02:00:00:00:00:01',
    mtu: 1450,
    alias: 'plumb-agent/x',
    up: true,
    vxlan: { id: 1, dev: 'eth0', local: '192.0.2.1', port: 8472, learning: false },
  } as unknown as Link & { vxlan: object }
  const row = {
    ifindex: 4,
    ifname: 'flannel.1',
    flags: ['BROADCAST', 'MULTICAST', 'UP', 'LOWER_UP'],
    mtu: 1450,
    link_type: 'ether',
    address: '02:00:00:00:00:01',
    promiscuity: 0,
    ifalias: 'plumb-agent/x',
    linkinfo: {
      info_kind: 'vxlan',
      info_data: { id: 1, local: '192.0.2.1', link: 'eth0', port: 8472, learning: false, udp_csum: true },
    },
    addr_info: [],
  }
  const seen = (more: object = {}, data: object = {}) =>
    link.read(
      { ...row, ...more, linkinfo: { info_kind: 'vxlan', info_data: { ...row.linkinfo.info_data, ...data } } },
      want,
    ) as Link
  const change = (have: Link, wanted: Link = want) => (link.change?.(wanted, have) ?? []).map(({ text }) => text)

  it('is read back as it was made, over IPv4 and IPv6', () => {
    assert.deepEqual(seen(), want)
    assert.deepEqual(seen({}, { local: undefined, local6: '2001:db8::1', gbp: true, learning: true }).vxlan, {
      ...want.vxlan,
      local: '2001:db8::1',
      gbp: true,
      learning: true,
    })
  })
  it('that is as it should be is not touched', () => assert.deepEqual(change(seen()), []))
  it('is changed in place where the kernel can: alias, MAC, MTU, state, learning', () => {
    assert.deepEqual(
      change(seen({ ifalias: undefined, address: '02:00:00:00:00:09', mtu: 1400, flags: [] }, { learning: true })),
      [
        'link set dev flannel.1 alias plumb-agent/x address 02:00:00:00:00:01 mtu 1450 up',
        'link set dev flannel.1 type vxlan id 1 nolearning',
      ],
    )
    assert.deepEqual(change(seen(), { ...want, up: false }), ['link set dev flannel.1 down'])
  })
  for (const [what, data] of Object.entries({
    id: { id: 2 },
    device: { link: 'eth1' },
    'local address': { local: '192.0.2.9' },
    port: { port: 4789 },
    GBP: { gbp: true },
    group: { group: '239.1.1.1' },
    'external mode': { id: undefined, external: true },
    'l2miss of old flannels': { l2miss: true },
  })) {
    it(`is made again when it differs in what the kernel cannot change: ${what}`, () => {
      const [first, second] = change(seen({}, data))
      assert.equal(first, 'link delete dev flannel.1')
      assert.match(second as string, /^link add name flannel\.1 /)
    })
  }
})

function lines(resources: readonly Resource[]): string {
  const all = resources.flatMap((one) => {
    const { put, change, drop } = handler(one.kind)
    return [
      ...put(one).map(({ text }) => `+ ${text}`),
      ...(change?.(one, one) ?? []).map(({ text }) => `~ ${text}`),
      ...drop(one).map(({ text }) => `- ${text}`),
    ]
  })
  return `\n${all.join('\n')}\n`
}
