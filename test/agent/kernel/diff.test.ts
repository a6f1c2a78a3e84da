// lane: quick
// Tests agent/kernel.
import assert from 'node:assert/strict'
import { putOf, sentences } from '../../../agent/kernel/batch.ts'
import { diff, face, type KernelObjects, knownOf, looks, resourceText } from '../../../agent/kernel/diff.ts'
import { bridgeEvent, type Event, ipEvent } from '../../../agent/kernel/events.ts'
import { KernelState, KINDS } from '../../../agent/kernel/memory.ts'
import { isOwnId, settleIds, throughNexthop } from '../../../agent/kernel/nexthops.ts'
import { ownership, within } from '../../../agent/kernel/ownership.ts'
import type { Nexthop } from '../../../lib/state/kinds/nexthop.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type IfName, type Mac, type NetworkName, parse } from '../../../lib/text/values.ts'
import fc from '../../support/properties.ts'

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

describe('diff()', () => {
  const entries = fc.array(fc.record({ key: fc.integer({ min: 0, max: 12 }), mac: fc.integer({ min: 0, max: 2 }) }), {
    maxLength: 14,
  })
  const resources = entries.map((all) => [...new Map(all.map(({ key, mac }) => [key, neigh(key, mac)])).values()])

  it('finds what is to be added, changed and dropped: done, the kernel has what is wanted', () => {
    fc.assert(
      fc.property(resources, resources, (want, have) => {
        const known = knownOf(have.map((resource) => ({ resource })))
        assert.deepEqual(apply(known, diff(want, known)), sorted(want))
      }),
    )
  })
  it('finds the same when it is told of a list that the kernel agrees with, which differs little', () => {
    fc.assert(
      fc.property(resources, resources, fc.nat(14), fc.nat(14), (settled, others, from, count) => {
        const kept = [settled.slice(0, from), settled.slice(from + count)] as const
        const rest = others.filter((one) => !kept.flat().some((other) => face(other).key === face(one).key))
        const want = [...kept[0], ...rest, ...kept[1]]
        const known = knownOf(settled.map((resource) => ({ resource })))
        const found = diff(want, known, settled)
        assert.deepEqual(apply(known, found), sorted(want))
        assert.deepEqual(new Set(found.drop), new Set(diff(want, known).drop))
      }),
    )
  })
  it('drops what left the middle of a long list and comes nowhere else in it, and nothing that does', () => {
    const shared = neigh(5)
    const settled = [neigh(1), shared, neigh(2), { ...shared }, neigh(3)]
    const known = knownOf(settled.map((resource) => ({ resource })))
    const want = settled.filter((_, i) => i !== 1 && i !== 2)
    assert.deepEqual(diff(want, known, settled), { add: [], change: [], drop: [settled[2]] })
  })
  it('counts the first of two with one key', () => {
    assert.deepEqual(diff([neigh(1, 1), neigh(1, 2)], new Map()).add, [neigh(1, 1)])
  })
  it('changes what is odd, however alike it looks', () => {
    const [one] = [neigh(1)]
    assert.deepEqual(diff([one], knownOf([{ resource: one, odd: true }])).change, [{ want: one, have: one }])
  })
})

describe('ipEvent() and bridgeEvent()', () => {
  const MAC = '02:00:00:00:00:02'
  // As iproute2 6.1 prints them with -o.
  for (const [line, text] of Object.entries({
    '10.244.2.0/24 nhid 7 via 10.244.2.0 dev flannel.1 proto 112 onlink ': 'route add 10.244.2.0/24 proto 112 nhid 7',
    '10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 112 onlink mtu 1354 ':
      'route add 10.244.2.0/24 mtu 1354 proto 112 via 10.244.2.0 dev flannel.1 onlink',
    'fd00:244:2::/64 via fd00:244:2:: dev flannel-v6.1 proto 112 metric 1024 onlink mtu 1334 pref medium':
      'route add fd00:244:2::/64 mtu 1334 proto 112 via fd00:244:2:: dev flannel-v6.1 onlink',
    '10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 112 onlink mtu lock 1354 ': '',
    'Deleted 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 112 ':
      'gone route add 10.244.2.0/24 proto 112 via 192.0.2.2 dev eth0',
    'fd00:244:2::/64 nhid 7 via fd00:244:2:: dev flannel-v6.1 proto 112 metric 1024 onlink pref medium':
      'route add fd00:244:2::/64 proto 112 nhid 7',
    'blackhole 10.244.1.0/24 proto 112 metric 4294967295 ':
      'route add blackhole 10.244.1.0/24 metric 4294967295 proto 112',
    'Deleted blackhole fd00:244:1::/64 dev lo proto 112 metric 4294967295 pref medium':
      'gone route add blackhole fd00:244:1::/64 metric 4294967295 proto 112',
    '10.1.2.3 dev pod1 scope link ': 'route add 10.1.2.3/32 dev pod1',
    '10.244.7.0/24 proto 112 \\\tnexthop via 10.0.0.3 dev d0 weight 1 \\\tnexthop via 10.0.0.4 dev d0 weight 1 ': '',
    [`10.244.2.0 dev flannel.1 lladdr ${MAC} PERMANENT proto 112 `]: `neigh replace 10.244.2.0 lladdr ${MAC} dev flannel.1 nud permanent protocol 112`,
    'Deleted 10.244.2.0 dev flannel.1 FAILED proto 112 ': 'gone ',
    [`fd00:244:2:: dev flannel-v6.1 lladdr ${MAC} PERMANENT proto 112 `]: `neigh replace fd00:244:2:: lladdr ${MAC} dev flannel-v6.1 nud permanent protocol 112`,
    'Deleted fd00:244:2:: dev flannel-v6.1 FAILED proto 112 ': 'gone ',
    'fd00:244:2:: via 2001:db8::2 dev eth0 proto 112 metric 1024 pref medium':
      'route add fd00:244:2::/128 proto 112 via 2001:db8::2 dev eth0',
    [`192.0.2.2 dev eth0 lladdr ${MAC} REACHABLE `]: '',
    'id 7 via 10.244.2.0 dev flannel.1 scope link proto 112 onlink ':
      'nexthop add id 7 via 10.244.2.0 dev flannel.1 onlink proto 112',
    'Deleted id 7 via 192.0.2.2 dev eth0 scope link proto 112 ':
      'gone nexthop add id 7 via 192.0.2.2 dev eth0 proto 112',
    'id 8 group 1/2 proto zebra ': '',
    [`4: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN group default \\    link/ether ${MAC} brd ff:ff:ff:ff:ff:ff`]: `up mtu 1450 ${MAC}`,
    [`Deleted 4: flannel.1@NONE: <BROADCAST,MULTICAST> mtu 1450 qdisc noop state DOWN group default \\    link/ether ${MAC} brd ff:ff:ff:ff:ff:ff`]: `gone down mtu 1450 ${MAC}`,
    '4: flannel.1    inet 10.244.1.0/32 scope global flannel.1\\       valid_lft forever preferred_lft forever':
      'addr replace 10.244.1.0/32 dev flannel.1',
    'Deleted 5: flannel-v6.1    inet6 fd00:244:1::/128 scope global nodad \\       valid_lft forever preferred_lft forever':
      'gone addr replace fd00:244:1::/128 nodad dev flannel-v6.1',
    '4: ppp0    inet 10.0.0.1 peer 10.0.0.2/32 scope global ppp0\\       valid_lft forever preferred_lft forever': '',
  })) {
    it(`reads ${line}`, () => assert.equal(told(ipEvent(line)), text))
  }
  for (const [line, text] of Object.entries({
    [`${MAC} dev flannel.1 dst 192.0.2.2 self permanent`]: `fdb replace ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`,
    [`Deleted ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`]: `gone fdb replace ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`,
    [`${MAC} dev flannel.1 dst 192.0.2.2 self `]: '',
    [`${MAC} dev flannel.1 dst 192.0.2.2 port 99 self permanent`]: '',
  })) {
    it(`reads ${line} of bridge`, () => assert.equal(told(bridgeEvent(line)), text))
  }
  it('have nothing to say of what the agent never makes', () => {
    for (const line of [
      '',
      '    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff',
      'Timestamp: Sat Nov 21 12:31:29 2026 125752 usec',
      'local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1 ',
      'prohibit 10.244.1.0/24 proto 112 ',
      'blackhole default proto boot table 7 ',
      '10.244.2.0/24 via 192.0.2.2 dev eth0 table 100 proto 112 ',
      `192.0.2.2 dev flannel.1 lladdr ${MAC} NOARP PERMANENT `,
      `Deleted dev d0 lladdr ${MAC} PERMANENT `,
      'ipv4 dev eth0 rp_filter loose ',
    ])
      assert.equal(ipEvent(line), undefined, line)
    for (const line of ['', `${MAC} dev cni0 master cni0 permanent`, `${MAC} dev cni0 self permanent`])
      assert.equal(bridgeEvent(line), undefined, line)
  })
  it('never throw, whatever a line says', () => {
    const words = fc.constantFrom(
      'Deleted',
      '4:',
      'flannel.1:',
      'id',
      '7',
      'via',
      'dev',
      'inet',
      'inet6',
      'lladdr',
      'PERMANENT',
      'nhid',
      'proto',
      'default',
      '10.0.0.0/8',
      'fd00::/64',
      'dst',
      'self',
      'mtu',
      '<UP>',
      '\\',
      MAC,
    )
    fc.assert(
      fc.property(fc.array(fc.oneof(words, fc.string()), { maxLength: 9 }), (line) => {
        ipEvent(line.join(' '))
        bridgeEvent(line.join(' '))
      }),
    )
  })
})

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

describe('settleIds()', () => {
  // Two gateways whose ids collide, found by trying.
  const instance = parse.network('default')
  const [first, second] = collision()

  it('moves one of two gateways with the same id, the same one in whatever order they come, and its routes with it', () => {
    assert.equal(first[0].id, second[0].id)
    const settled = settleIds([...first, ...second])
    const ids = settled.flatMap((one) =>
      one.kind === 'nexthop' ? [`${one.via} ${one.id}`] : one.kind === 'route' ? [`${one.via[0]} ${one.nhid}`] : [],
    )
    assert.equal(new Set(ids).size, 2, ids.join(', '))
    assert.deepEqual(
      new Set(settleIds([...second, ...first, ...second]).map((one) => JSON.stringify(one))),
      new Set(settled.map((one) => JSON.stringify(one))),
    )
    for (const one of settled) if (one.kind === 'nexthop') assert.ok(isOwnId(instance, one))
  })
  it('gives back the very list that came when nothing collides', () => {
    const list = [...first, ...first]
    assert.equal(settleIds(list), list)
  })

  function collision(): [[Nexthop, Route], [Nexthop, Route]] {
    const seen = new Map<number, string>()
    for (let i = 0; ; i++) {
      const via = `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`
      const [{ id }] = throughNexthop(route(via), instance)
      const other = seen.get(id)
      if (other !== undefined) return [throughNexthop(route(other), instance), throughNexthop(route(via), instance)]
      seen.set(id, via)
    }
  }
})

describe('sentences()', () => {
  it('tell of each kind and reason once, by the first and the number of the others', () => {
    const steps = [2, 3, 4].map((n) => putOf(neigh(n)))
    const failed = new Map(steps.map((step) => [step, 'No buffer space available']))
    failed.set(putOf(route('10.244.2.0')), 'File exists')
    assert.deepEqual(sentences(failed), [
      'Cannot make neighbour 10.244.2.0 on flannel.1 and 2 more: No buffer space available',
      'Cannot make route 10.244.2.0/24: another program has a route there (see: ip route show 10.244.2.0/24)',
    ])
  })
})

function apply(known: KernelObjects, { add, change, drop }: ReturnType<typeof diff>): string[] {
  const now = new Map(known)
  for (const one of drop) assert.ok(now.delete(face(one).key))
  for (const one of [...add, ...change.map(({ want }) => want)]) now.set(face(one).key, face(one))
  return [...now.values()].map(looks).sort()
}

function sorted(want: readonly Resource[]): string[] {
  return want.map(resourceText).sort()
}

function told(event: Event | undefined): string | undefined {
  return event && `${event.gone ? 'gone ' : ''}${event.text}`
}

describe('KernelState', () => {
  const DEV = 'flannel.1' as IfName
  const link: Resource = {
    kind: 'link',
    ns: 'host',
    name: DEV,
    type: 'vxlan',
    mtu: 1450,
    up: true,
    mac: '02:00:00:00:00:09' as Mac,
  }
  const tunnel: Resource = {
    kind: 'tunnel',
    ns: 'host',
    dev: DEV,
    mac: '02:00:00:00:00:02' as Mac,
    dst: '192.0.2.2' as Ip,
  }
  const told = (mtu: number, flags = 'UP,') =>
    ipEvent(
      `3: flannel.1: <BROADCAST,${flags}MULTICAST> mtu ${mtu} qdisc noqueue state UNKNOWN \\    link/ether 02:00:00:00:00:09 brd ff:ff:ff:ff:ff:ff`,
    ) as Event
  const deleted = bridgeEvent('Deleted 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent') as Event

  const empty = async () => ({ status: 0, stdout: '', stderr: '' })

  // The agent has just made its link and a peer's tunnel entry, and has listed everything before.
  async function made(): Promise<KernelState> {
    const state = new KernelState({ instance: 'default' as NetworkName, links: [DEV], networks: [] })
    await state.look(empty, KINDS)
    for (const one of [link, tunnel]) state.of(one.kind).set(face(one).key, face(one))
    state.uses(link)
    state.making(DEV)
    return state
  }

  it('an entry that another program deletes before the own link is confirmed is work as soon as the link is confirmed', async () => {
    const state = await made()
    const later = state.note(deleted)
    assert.ok(later !== undefined && later > 0 && later <= 2000, `${later} ms`)
    assert.equal(state.note(told(1450)), 0)
    const looked = await state.look(empty, KINDS)
    assert.deepEqual([...looked], ['tunnel'])
    assert.deepEqual([...state.takeDrift()], [face(tunnel).key])
  })
  it('a link that another program changes before it is confirmed is work after the time limit', async () => {
    const state = await made()
    const later = state.note(told(1300))
    assert.ok(later !== undefined && later > 0 && later <= 2000, `${later} ms`)
  })
  it('the steps in which the own link is made are no work once it is confirmed', async () => {
    const state = await made()
    state.note(told(1450, ''))
    assert.equal(state.note(told(1450)), undefined)
    assert.equal(state.note(told(1450)), undefined)
    assert.deepEqual([...(await state.look(empty, KINDS))], [])
  })
})
