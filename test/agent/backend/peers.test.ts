// lane: quick
// Tests agent/backend.
import assert from 'node:assert/strict'
import type { Facts } from '../../../agent/backend/backend.ts'
import { type Context, eachPeer } from '../../../agent/backend/peers.ts'
import { newlyUnreached, summary } from '../../../agent/backend/unreached.ts'
import type { Uplink } from '../../../agent/backend/uplink.ts'
import { encodeKey, type Lease } from '../../../agent/lease/lease.ts'
import { initialState, statusOf } from '../../../agent/state/condition.ts'
import type { Connection } from '../../../agent/store/etcd/connection.ts'
import { keysBelow } from '../../../agent/store/etcd/keys.ts'
import { View } from '../../../agent/store/etcd/view.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type Mac, parse } from '../../../lib/text/values.ts'

const DEV = parse.ifname('flannel.1')
const UPLINK: Uplink = {
  name: parse.ifname('eth0'),
  index: 2,
  mtu: 1500,
  tunnel: { v4: '192.0.2.1' as Ip },
  advertise: { v4: '192.0.2.1' as Ip },
  routes: [],
}
const FACTS: Facts = {
  nexthops: true,
  instance: parse.network('default'),
  networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr],
}
const CONTEXT: Context<object> = { type: 'vxlan', self: lease(0), uplink: UPLINK, conf: {}, facts: FACTS }

// Its own subnet is far from the peers'.
const FAR: Context<object> = { ...CONTEXT, self: lease(65_535) }
const reachAll = () =>
  eachPeer<object>(
    () =>
      ({ subnet, ip, lease }) =>
        resourcesOf(subnet, ip, lease),
  )

describe('eachPeer()', () => {
  it('a lease among many that says something else is looked at alone, and nothing is collected for it; a renewed one is not even looked at', () => {
    let looks = 0
    const want = eachPeer<object>(() => (peer) => {
      looks++
      return resourcesOf(peer.subnet, peer.ip, peer.lease)
    })
    const peers = Array.from({ length: 3000 }, (_, i) => lease(i + 1))
    const first = want(peers, CONTEXT)
    const collect = Bun.gc
    let collections = 0
    Bun.gc = ((force) => {
      collections++
      return collect(force)
    }) as typeof Bun.gc
    try {
      looks = 0
      const renewed = want(peers.with(1500, { ...lease(1501), expires: 7 }), CONTEXT)
      assert.deepEqual([looks, renewed.resources === first.resources], [0, true])
      const other = want(peers.with(1500, lease(1501, 'aa')), CONTEXT)
      assert.equal(looks, 1)
      assert.equal(other.resources.filter((one, i) => one !== first.resources[i]).length, 4)
      assert.equal(want(peers.toSpliced(1500, 1), CONTEXT).resources.length, first.resources.length - 4)
      assert.deepEqual([looks, collections], [1, 0])
    } finally {
      Bun.gc = collect
    }
  })
  it('after any changes gives what it gives to somebody who sees them for the first time', () => {
    const reach = () =>
      eachPeer<object>(
        () =>
          ({ subnet, ip, lease }) =>
            lease.data.v4 === 'bad' ? 'it announces nothing' : resourcesOf(subnet, ip, lease),
      )
    const want = reach()
    let peers: Lease[] = []
    let seed = 1
    const random = (most: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % most
    }
    for (let i = 0; i < 400; i++) {
      const at = random(peers.length + 1)
      const n = random(30) + 1
      const one = random(8) === 0 ? { ...lease(n), data: { v4: 'bad' } } : lease(n, ['', 'aa', 'bb'][random(3)])
      peers =
        random(3) === 0
          ? peers.toSpliced(at, 1)
          : random(2) === 0 && at < peers.length
            ? peers.with(at, { ...one, subnets: (peers[at] as Lease).subnets })
            : peers.some(({ subnets }) => subnets.v4 === one.subnets.v4)
              ? peers
              : peers.toSpliced(at, 0, one)
      const [now, fresh] = [want(peers, CONTEXT), reach()(peers, CONTEXT)]
      assert.deepEqual(now.resources, fresh.resources)
      assert.deepEqual(sorted(now.problems), sorted(fresh.problems))
    }
  })
  it('refuses a subnet that is outside the networks, holds an address of this node or its own, covers the underlay, or overlaps this node’s', () => {
    const uplink = { ...UPLINK, routes: [{ dst: '192.0.2.0/24' as Cidr, dev: UPLINK.name, gateway: false }] }
    const want = (subnet: string, ip: string, networks: readonly string[]) => {
      const peer = { ...lease(1), subnets: { v4: subnet as Cidr }, ips: { v4: ip as Ip } }
      const { problems, resources } = reachAll()([peer], {
        ...CONTEXT,
        uplink,
        facts: { ...FACTS, networks: networks as Cidr[] },
      })
      assert.equal(resources.length === 0, problems.size === 1)
      return [...problems.values()][0]
    }
    const [pods, all] = [['10.0.0.0/8'], ['0.0.0.0/0']]
    assert.equal(want('10.3.3.0/24', '192.0.2.3', pods), undefined)
    assert.equal(want('11.3.3.0/24', '192.0.2.3', [...pods, '11.3.0.0/16']), undefined)
    assert.equal(want('8.0.0.0/5', '192.0.2.3', pods), "its subnet 8.0.0.0/5 overlaps 10.0.0.0/24, this node's own")
    assert.equal(
      want('10.0.0.128/25', '192.0.2.3', pods),
      "its subnet 10.0.0.128/25 overlaps 10.0.0.0/24, this node's own",
    )
    assert.equal(
      want('11.0.0.0/24', '192.0.2.3', pods),
      'its subnet 11.0.0.0/24 is outside the network 10.0.0.0/8; want a subnet of it, or "PeerNetworks" of net-conf.json to name its network',
    )
    assert.equal(
      want('192.0.2.0/30', '198.51.100.3', all),
      "its subnet 192.0.2.0/30 holds 192.0.2.1, this node's address on eth0",
    )
    assert.equal(
      want('192.0.2.128/25', '192.0.2.129', all),
      'its subnet 192.0.2.128/25 holds 192.0.2.129, the address that it announces',
    )
    assert.match(want('10.3.3.0/24', '192.0.2.1', pods) ?? '', /this node's own address/)
    const elsewhere = { ...uplink, tunnel: { v4: '203.0.113.9' as Ip }, advertise: { v4: '203.0.113.9' as Ip } }
    const { problems } = reachAll()([{ ...lease(1), subnets: { v4: '192.0.0.0/16' as Cidr } }], {
      ...CONTEXT,
      uplink: elsewhere,
    })
    assert.deepEqual([...problems.values()], ['its subnet 192.0.0.0/16 covers 192.0.2.0/24, the network of eth0'])
  })
  it('of two leases that overlap the older stays, whatever comes later; a node with two of its own keeps both', () => {
    const [older, younger] = [lease(257), { ...lease(9), subnets: { v4: '10.1.0.0/16' as Cidr } }]
    const want = reachAll()
    const routesOf = (peers: readonly Lease[]) =>
      want(peers, CONTEXT).resources.flatMap((one) => (one.kind === 'route' ? [one.dst as string] : []))
    const problemsOf = (peers: readonly Lease[]) => [...want(peers, CONTEXT).problems.values()]
    assert.deepEqual(routesOf([older, lease(2)]), ['10.1.1.0/24', '10.0.2.0/24'])
    assert.deepEqual(routesOf([older, lease(2), younger]), ['10.1.1.0/24', '10.0.2.0/24'])
    assert.deepEqual(problemsOf([older, lease(2), younger]), [
      'it overlaps the older lease 10.1.1.0/24 of node "node-257"',
    ])
    assert.deepEqual(routesOf([lease(2), younger]), ['10.0.2.0/24', '10.1.0.0/16'])
    assert.deepEqual(routesOf([younger, older]), ['10.1.0.0/16'])
    // A node that was given IPv6 has a lease of both families beside the one of IPv4, until that ends.
    const dual = { ...older, subnets: { ...older.subnets, v6: 'fd00::/64' as Cidr } }
    assert.deepEqual(problemsOf([older, dual]), [])
    // What is refused for its place keeps nobody else's.
    assert.deepEqual(problemsOf([{ ...younger, subnets: { v4: '0.0.0.0/1' as Cidr } }, older]).length, 1)
  })
  it('after any changes refuses the same overlaps as somebody who sees the leases for the first time', () => {
    const want = reachAll()
    let peers: Lease[] = []
    let seed = 7
    const random = (most: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % most
    }
    for (let i = 0; i < 400; i++) {
      const n = random(20) + 1
      const one = {
        ...lease(n),
        subnets: { v4: `10.0.${n & (random(4) === 0 ? 0x1c : 0xff)}.0/${random(4) === 0 ? 22 : 24}` as Cidr },
      }
      const isThere = peers.some(({ subnets }) => subnets.v4 === one.subnets.v4)
      peers = random(3) === 0 ? peers.toSpliced(random(peers.length + 1), 1) : isThere ? peers : [...peers, one]
      const [now, fresh] = [want(peers, FAR), reachAll()(peers, FAR)]
      assert.deepEqual(now.resources, fresh.resources)
      assert.deepEqual(sorted(now.problems), sorted(fresh.problems))
    }
  })
  it('knows whose a resource is, by its key', () => {
    const { ownersOf } = eachPeer<object>(
      () =>
        ({ subnet, ip, lease }) =>
          resourcesOf(subnet, ip, lease),
    )([lease(1), lease(2)], CONTEXT)
    assert.deepEqual(
      [...ownersOf(new Set(['route host 10.0.2.0/24 table 254 metric any', 'link host flannel.1']))],
      [['route host 10.0.2.0/24 table 254 metric any', '10.0.2.0-24']],
    )
  })
})

describe('what the agent tells of ten thousand peers', () => {
  it('that all cannot be reached takes little time, and is one sentence per reason', () => {
    const leases = Array.from({ length: 10_000 }, (_, i) => lease(i + 1))
    const unreached = new Map(
      leases.map(({ subnets }) => [encodeKey(subnets), 'it uses backend "host-gw", this node "vxlan"']),
    )
    const store = { state: () => ({ name: 'etcd', connected: true }) } as never
    const started = process.cpuUsage()
    const lost = summary(newlyUnreached(unreached, new Map()), leases)
    const status = statusOf(
      { node: 'n', version: '', store, failures: { all: () => [] }, backend: { type: 'vxlan' }, conf: {} },
      { ...initialState(), snapshot: { leases, unreadable: [] }, unreached, lost },
    )
    const { user, system } = process.cpuUsage(started)
    assert.deepEqual(status.degraded, [
      'Cannot reach 10.0.1.0/24 of node "node-1" and 9999 more: it uses backend "host-gw", this node "vxlan"',
    ])
    assert.equal(status.peers.filter(({ problem }) => problem !== undefined).length, 10_000)
    // It was 13 s.
    assert.ok(user + system < 1_000_000, `${(user + system) / 1000} ms`)
  })
  it('the zone of this node is that of its own lease', () => {
    const store = { state: () => ({ name: 'kube', connected: true }) } as never
    const self = { node: 'n', version: '', store, failures: { all: () => [] }, backend: { type: 'vxlan' }, conf: {} }
    const leases = [1, 2].map((n) => ({ ...lease(n), zone: `z${n}` }))
    const own = leases[1] as Lease
    const known = { ...initialState(), snapshot: { leases, unreadable: [] } }
    const { zone, peers } = statusOf(self, { ...known, lease: own })
    assert.deepEqual([zone, peers.map((peer) => peer.zone)], ['z2', ['z1']])
    assert.equal(statusOf(self, known).zone, undefined)
  })
  it('reasons that are all different are not all told', () => {
    const leases = Array.from({ length: 100 }, (_, i) => lease(i + 1))
    const lost = summary(
      new Map(leases.map(({ subnets, ips }) => [encodeKey(subnets), `${ips.v4} is not on the link eth0`])),
      leases,
    )
    assert.deepEqual([lost.length, lost.at(-1)], [6, 'Cannot reach 95 more peers, for other reasons'])
  })
})

const leaseAt = (key: string) => ({
  key: Buffer.from(`/net/subnets/${key}`),
  value: Buffer.from('{"PublicIP":"192.0.2.3"}'),
  createRevision: 1n,
  modRevision: 1n,
  lease: 7n,
})

describe('View', () => {
  it('a page without keys that says that more follow is no end of the list: the known leases stay', async () => {
    const view = new View(keysBelow('/net'))
    const pages = [
      { kvs: [leaseAt('10.244.3.0-24'), leaseAt('10.244.4.0-24')], more: false },
      { kvs: [leaseAt('10.244.3.0-24')], more: true },
      { kvs: [], more: true },
    ]
    const range = async () => ({ header: { revision: 9n }, ...pages.shift() })
    const etcd = { call: (ask: (to: unknown) => unknown) => ask({ kv: { range } }) } as unknown as Connection
    const { signal } = new AbortController()
    await view.read(etcd, signal)
    await assert.rejects(view.read(etcd, signal), /^StoreError: etcd: it answered with a page without keys/)
    assert.equal(view.snapshot().leases.length, 2)
  })

  it('tells nobody of a lease that was renewed, and everybody of one that says something else, has another owner, or is made again', () => {
    const view = new View(keysBelow('/net'))
    let [rings, revision] = [0, 1n]
    view.subscribe(() => rings++, new AbortController().signal)
    const put = (at: string, value: string, createRevision = 1n) => {
      rings = 0
      revision++
      view.apply(
        [
          {
            type: 0,
            kv: {
              key: Buffer.from(`/net/${at}`),
              value: Buffer.from(value),
              createRevision,
              modRevision: revision,
              lease: 7n,
            },
          },
        ] as never,
        revision,
      )
      return rings
    }
    const value =
      '{"PublicIP":"192.0.2.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:03"}}'
    const at = 'subnets/10.244.3.0-24'
    assert.equal(put(at, value), 1)
    assert.equal(put('plumb/nodes/n3', '10.244.3.0-24'), 1)
    assert.deepEqual(
      [put(at, value), put('plumb/nodes/n3', '10.244.3.0-24'), put(at, value.replace(/,"Pub/, ' , "Pub'))],
      [0, 0, 0],
    )
    assert.equal(put(at, value.replace('.3"', '.4"')), 1)
    assert.equal(put(at, 'x'), 1)
    assert.equal(put(at, 'x'), 0)
    assert.equal(put(at, value), 1)
    assert.equal(put('plumb/nodes/n4', '10.244.3.0-24'), 1)
    assert.equal(put(at, value, 20n), 1)
    assert.deepEqual(
      view.snapshot().leases.map(({ node }) => node),
      [undefined],
    )
  })
})

function lease(n: number, change = '02'): Lease {
  const hex = (part: number) => part.toString(16).padStart(2, '0')
  const [high, low] = [n >> 8, n & 255]
  return {
    node: `node-${n}`,
    subnets: { v4: `10.${high}.${low}.0/24` as Cidr },
    ips: { v4: `198.51.${high}.${low}` as Ip },
    backend: 'vxlan',
    data: { v4: `${change || '02'}:00:00:00:${hex(high)}:${hex(low)}` },
  }
}

function resourcesOf(subnet: Cidr, ip: Ip, { data }: Lease): Resource[] {
  const [mac, via] = [data.v4 as Mac, subnet.slice(0, subnet.indexOf('/')) as Ip]
  const id = 1 + Bun.hash.xxHash32(subnet)
  return [
    { kind: 'neigh', ns: 'host', dev: DEV, ip: via, mac, proto: 112 },
    { kind: 'tunnel', ns: 'host', dev: DEV, mac, dst: ip },
    { kind: 'nexthop', ns: 'host', id, via, dev: DEV, proto: 112 },
    { kind: 'route', ns: 'host', dev: DEV, dst: subnet, via: [via], proto: 112, nhid: id },
  ]
}

function sorted(problems: ReadonlyMap<string, string>): string[][] {
  return [...problems].map((one) => [...one]).sort(([a = ''], [b = '']) => (a < b ? -1 : 1))
}
