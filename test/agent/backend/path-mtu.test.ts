// lane: quick
// Tests agent/backend/path-mtu.ts: the decision, and what it makes of routes.
import assert from 'node:assert/strict'
import { decideMtu, type Kept, type Path, PathMtus, withPathMtus } from '../../../agent/backend/path-mtu.ts'
import hostGw from '../../../agent/backend/types/host-gw.ts'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import { type Both, encodeKey, type Lease } from '../../../agent/lease/lease.ts'
import { handler } from '../../../lib/state/kinds/index.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'
import { lease, uplink } from '../../support/cluster.ts'

const FACTS = { nexthops: true, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }
const data = (n: number) => ({
  v4: { VNI: 1, VtepMAC: `02:00:00:00:00:0${n}` },
  v6: { VNI: 1, VtepMAC: `02:00:00:00:06:0${n}` },
})
const PEERS: readonly Lease[] = [2, 3].map((n) => lease(n, data(n), 'vxlan'))
const KEY = encodeKey((PEERS[0] as Lease).subnets)

describe('decideMtu()', () => {
  const narrow: Path = { largest: 1354, arrived: 0 }
  const CASES: readonly (readonly [string, Kept | undefined, Path | undefined, Kept | undefined])[] = [
    ['nothing known', undefined, undefined, undefined],
    ['a whole path', undefined, { arrived: 10 }, undefined],
    ['losses without a size', undefined, { arrived: 0 }, undefined],
    ['a measured size counts at once', undefined, narrow, { mtu: 1354 }],
    ['another measured size', { mtu: 1300 }, narrow, { mtu: 1354 }],
    ['no answers any more', { mtu: 1354 }, { arrived: 0 }, { mtu: 1354 }],
    ['a peer that is not probed', { mtu: 1354 }, undefined, { mtu: 1354 }],
    ['two packets of full size', { mtu: 1354 }, { arrived: 2 }, { mtu: 1354 }],
    ['three of them', { mtu: 1354 }, { arrived: 3 }, { isAgain: true }],
    ['whole for long', { isAgain: true }, { arrived: 10 }, { isAgain: true }],
    ['narrow again', { isAgain: true }, narrow, { mtu: 1354, isAgain: true }],
    ['nine of them, the second time', { mtu: 1354, isAgain: true }, { arrived: 9 }, { mtu: 1354, isAgain: true }],
    ['ten of them, the second time', { mtu: 1354, isAgain: true }, { arrived: 10 }, { isAgain: true }],
  ]
  for (const [name, before, path, expected] of CASES)
    it(name, () => assert.deepEqual(decideMtu(before, path, 'v4'), expected))
  it('is never below what each link carries: 576 bytes for IPv4, 1280 for IPv6', () => {
    const tiny: Path = { largest: 200, arrived: 0 }
    assert.deepEqual([decideMtu(undefined, tiny, 'v4')?.mtu, decideMtu(undefined, tiny, 'v6')?.mtu], [576, 1280])
  })
})

describe('PathMtus', () => {
  it('tells changes alone, each family by itself, and forgets peers that are gone', () => {
    const mtus = new PathMtus()
    assert.equal(mtus.note(KEY, { v4: { arrived: 5 }, v6: { arrived: 5 } }), false)
    assert.equal(mtus.note(KEY, { v4: { largest: 1354, arrived: 0 }, v6: { arrived: 6 } }), true)
    assert.equal(mtus.note(KEY, { v4: { largest: 1354, arrived: 0 }, v6: { arrived: 7 } }), false)
    assert.deepEqual([...mtus.all], [[KEY, { v4: 1354 }]])
    assert.equal(mtus.note(KEY, { v4: { arrived: 3 } }), true)
    assert.deepEqual([...mtus.all], [])
    mtus.note(KEY, { v4: { largest: 1354, arrived: 0 } })
    mtus.keepOnly(new Set())
    assert.deepEqual([...mtus.all], [])
  })
})

describe('withPathMtus()', () => {
  const self = lease(1, data(1), 'vxlan')
  const wanted = vxlan.want(self, PEERS, uplink(1), vxlan.conf({}), FACTS)
  const lines = (resources: readonly (typeof wanted.resources)[number][]) =>
    resources.filter((one) => one.kind === 'route').map((one) => handler('route').put(one)[0]?.text)
  const found = (mtus: Both<number>) => new Map([[KEY, mtus]])

  it('gives the routes to a peer their MTU, with a gateway instead of the nexthop object, and touches nothing else', () => {
    const { resources, mtus, ownersOf } = withPathMtus(wanted, PEERS, found({ v4: 1354 }), 1430)
    const [before, after] = [lines(wanted.resources), lines(resources)]
    assert.match(before[0] ?? '', /^route add 10\.244\.2\.0\/24 proto 112 nhid \d+$/)
    assert.equal(after[0], 'route add 10.244.2.0/24 mtu 1354 proto 112 via 10.244.2.0 dev flannel.1 onlink')
    assert.deepEqual(after.slice(1), before.slice(1))
    assert.deepEqual(
      resources.filter((one) => one.kind !== 'route'),
      wanted.resources.filter((one) => one.kind !== 'route'),
    )
    assert.deepEqual([...mtus], [[KEY, { v4: 1354 }]])
    const keys = resources.filter((one) => one.kind === 'route').map((one) => handler('route').key(one))
    assert.equal(ownersOf(new Set(keys)).get(keys[0] as string), KEY)
  })
  it('does both families, each with its own size', () => {
    const { resources, mtus } = withPathMtus(wanted, PEERS, found({ v4: 1354, v6: 1334 }), 1430)
    assert.match(lines(resources)[1] ?? '', /^route add fd00:244:2::\/64 mtu 1334 proto 112 via /)
    assert.deepEqual([...mtus], [[KEY, { v4: 1354, v6: 1334 }]])
  })
  it('leaves everything as it is without a narrow path, and for a size that pods do not exceed', () => {
    for (const mtus of [new Map(), found({ v4: 1430 }), found({ v4: 1500 })]) {
      const same = withPathMtus(wanted, PEERS, mtus, 1430)
      assert.equal(same.resources, wanted.resources)
      assert.equal(same.mtus.size, 0)
    }
  })
  it('gives a peer a closer route where one route leads to all of them, and never one through a route that drops', () => {
    const route = { kind: 'route', ns: 'host', dst: '10.244.0.0/16' as Cidr, via: [] as Ip[], proto: 112 } as const
    const [lo, dev] = ['lo' as IfName, 'flannel-wg' as IfName]
    const drops: Route = { ...route, dev: lo, priority: 4294967295, unreachable: true }
    const leads: Route = { ...route, dev, exclusive: true }
    const ofWireguard = { resources: [drops, leads], problems: new Map(), ownersOf: () => new Map() }
    const { resources, mtus, ownersOf } = withPathMtus(ofWireguard, PEERS, found({ v4: 1354, v6: 1334 }), 1420)
    assert.deepEqual(lines(resources).slice(2), ['route add 10.244.2.0/24 mtu 1354 proto 112 dev flannel-wg'])
    // There is no route for IPv6.
    assert.deepEqual([...mtus], [[KEY, { v4: 1354 }]])
    const key = handler('route').key(resources[2] as Route)
    assert.deepEqual([...ownersOf(new Set([key]))], [[key, KEY]])
    assert.deepEqual([...ownersOf(new Set())], [])
  })
  it('does so for host-gw', () => {
    const peers = PEERS.map((one) => ({ ...one, backend: 'host-gw', data: {} }))
    const direct = hostGw.want({ ...self, data: {} }, peers, uplink(1), {}, FACTS)
    const { resources } = withPathMtus(direct, peers, found({ v4: 1400 }), 1500)
    assert.equal(lines(resources)[0], 'route add 10.244.2.0/24 mtu 1400 proto 112 via 192.0.2.2 dev eth0')
  })
})
