// lane: netns
// Tests agent/backend/types/vxlan.ts.
import assert from 'node:assert/strict'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import { inside } from '../../../lib/os/netns.ts'
import { txChecksum } from '../../../lib/os/sockets.ts'
import { parse } from '../../../lib/text/values.ts'
import {
  answers,
  assertReached,
  behindGateway,
  cluster,
  held,
  type Member,
  members,
  NETWORKS,
  pinging,
  uplink,
} from '../../support/cluster.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { testBackend } from '../../support/suites/testBackend.ts'

const MTU = { v4: 1450, v6: 1430 }

testBackend(vxlan, true)

describe('vxlan', () => {
  it(
    'the device, its address, neighbours, FDB entries and routes are flannel’s, except our number where an object can carry one',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan, nexthops: false })
      await a.reach([b])
      const [{ v4, v6 }] = [b.lease.data as Record<'v4' | 'v6', { VtepMAC: string }>]
      for (const [dev, own, local, mtu] of [
        ['flannel.1', '10.244.1.0/32', 'local 192.0.2.1', 1450],
        ['flannel-v6.1', 'fd00:244:1::/128', 'local 2001:db8::1', 1430],
      ] as const) {
        const shown = await a.ns.ip('-d', 'link', 'show', dev)
        assert.match(shown, new RegExp(`<BROADCAST,MULTICAST,UP,LOWER_UP> mtu ${mtu} `))
        assert.match(
          shown,
          new RegExp(
            `vxlan id 1 ${local} dev eth0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum noudp6zerocsumtx noudp6zerocsumrx addrgenmode`,
          ),
        )
        assert.match(await a.ns.ip('address', 'show', 'dev', dev, 'scope', 'global'), new RegExp(`inet6? ${own} `))
        assert.equal((await a.ns.exec(['cat', `/proc/sys/net/ipv6/conf/${dev}/accept_ra`])).stdout, '0\n')
      }
      assert.equal(await a.ns.ip('route', 'show', 'dev', 'flannel.1'), '10.244.2.0/24 via 10.244.2.0 proto 112 onlink ')
      assert.match(
        await a.ns.ip('-6', 'route', 'show', 'dev', 'flannel-v6.1', 'fd00:244:2::/64'),
        /^fd00:244:2::\/64 via fd00:244:2:: proto 112 metric 1024 onlink pref medium$/,
      )
      assert.equal(
        await a.ns.ip('neigh', 'show', 'dev', 'flannel.1'),
        `10.244.2.0 lladdr ${v4.VtepMAC} PERMANENT proto 112 `,
      )
      assert.equal(
        await a.ns.ip('neigh', 'show', 'dev', 'flannel-v6.1', 'nud', 'permanent'),
        `fd00:244:2:: lladdr ${v6.VtepMAC} PERMANENT proto 112 `,
      )
      assert.equal(await fdb(a.ns), `${v4.VtepMAC} dst 192.0.2.2 self permanent\n`)
      assert.equal(await fdb(a.ns, 'flannel-v6.1'), `${v6.VtepMAC} dst 2001:db8::2 self permanent\n`)
    }),
  )

  it(
    'the VTEP MAC of a peer changes: neighbour and FDB entry follow, the old FDB entry is gone, packets pass',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await a.reach([b])
      const renamed = reannounced(b, { v4: { VNI: 1, VtepMAC: '02:00:00:00:00:99' } })
      await renamed.reach([a])
      assert.match(await b.ns.ip('link', 'show', 'flannel.1'), /02:00:00:00:00:99/)
      assert.equal(await answers(a, b), false)
      await a.reach([renamed])
      assert.equal(await fdb(a.ns), '02:00:00:00:00:99 dst 192.0.2.2 self permanent\n')
      assert.match(
        await a.ns.ip('neigh', 'show', 'dev', 'flannel.1'),
        /10\.244\.2\.0 lladdr 02:00:00:00:00:99 PERMANENT/,
      )
      await assertReached(a, [renamed], MTU)
    }),
  )

  it(
    'the address of a peer changes: its FDB entry follows',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await a.reach([b])
      await b.ns.ip('address', 'add', '192.0.2.77/24', 'dev', 'eth0')
      const moved = b.restarted({
        uplink: {
          tunnel: { v4: '192.0.2.77' as never, v6: b.uplink.tunnel.v6 as never },
          advertise: { v4: '192.0.2.77' as never, v6: b.uplink.tunnel.v6 as never },
        },
      })
      const there = { ...moved, lease: { ...b.lease, ips: moved.uplink.advertise } }
      await moved.reach([a])
      await a.reach([there])
      assert.match(await fdb(a.ns), /^\S+ dst 192\.0\.2\.77 self permanent\n$/)
      await assertReached(a, [there], MTU)
    }),
  )

  it(
    'a VNI of eight digits: the devices have names that fit, and packets of full size pass',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const all = await cluster(ns, { backend: vxlan, options: { VNI: 16_777_215 } })
      const [a, b] = all
      for (const one of [a, b]) assert.deepEqual((await one.reach([a, b])).failed, [])
      assert.match(await ns.a.ip('-d', 'link', 'show', 'fl.16777215'), /vxlan id 16777215 local 192\.0\.2\.1 /)
      assert.match(await ns.a.ip('-d', 'link', 'show', 'fl6.16777215'), /vxlan id 16777215 local 2001:db8::1 /)
      await assertReached(a, [b], MTU)
      await assertReached(b, [a], MTU)
    }),
  )

  for (const [what, options] of Object.entries({ Port: { Port: 4789 }, GBP: { GBP: true } })) {
    it(
      `an incompatible device (${what}) is made again with everything on it, in one step, and packets pass`,
      inNamespaces(['lan', 'a', 'b'], async (ns) => {
        const [a, b] = await cluster(ns, { backend: vxlan })
        await a.reach([b])
        const before = (await a.ns.json('link', 'show', 'flannel.1'))[0]
        const [other, peer] = [a.restarted({ options }), b.restarted({ options })]
        await peer.reach([a])
        assert.deepEqual((await other.reach([b])).failed, [])
        const after = (await a.ns.json('link', 'show', 'flannel.1'))[0]
        assert.notEqual(after?.['ifindex'], before?.['ifindex'])
        assert.equal(after?.['address'], before?.['address'])
        await assertReached(other, [peer], MTU)
        assert.equal((await a.restarted({ options }).reach([b])).changed, 0)
      }),
    )
  }

  it(
    'an incompatible device that flannel left (VNI of another, local address) is made again',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await a.ns.ip(
        ...'link add flannel.1 type vxlan id 7 dev eth0 local 192.0.2.200 dstport 8472 nolearning'.split(' '),
      )
      await b.reach([a])
      assert.deepEqual((await a.reach([b])).failed, [])
      assert.match(await a.ns.ip('-d', 'link', 'show', 'flannel.1'), /vxlan id 1 local 192\.0\.2\.1 /)
      await assertReached(a, [b], MTU)
    }),
  )

  it(
    'MTU and learning are changed in place, and the peers stay',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      await a.reach([b])
      const entries = async () => (await held(a)).filter((line) => !/^flannel\S+ \d/.test(line))
      const [before, peers] = [(await a.ns.json('link', 'show', 'flannel.1'))[0], await entries()]
      const changed = await a.restarted({ options: { MTU: 1400, Learning: true } }).reach([b])
      assert.deepEqual({ changed: changed.changed, failed: changed.failed }, { changed: 2, failed: [] })
      const after = (await a.ns.json('link', 'show', 'flannel.1'))[0]
      assert.deepEqual(
        [after?.['ifindex'], after?.['mtu'], after?.['linkinfo']['info_data']['learning']],
        [before?.['ifindex'], 1350, true],
      )
      assert.deepEqual(await entries(), peers)
      await assertReached(a, [b], { v4: 1350, v6: 1330 })
    }),
  )

  it(
    'DirectRouting: a route to a peer on the same link, a tunnel to another; it switches with the underlay without losing a packet, and the old entries go',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [first, b, c] = await cluster(ns, { backend: vxlan, options: { DirectRouting: true } })
      const all = [first, b, c]
      // Behind a router, by the routes of node a.
      const routes = [
        { dst: '192.0.2.3/32' as never, dev: parse.ifname('eth0'), gateway: true },
        { dst: '2001:db8::3/128' as never, dev: parse.ifname('eth0'), gateway: true },
        ...uplink(1).routes,
      ]
      const a = first.restarted({ uplink: { routes } })
      for (const one of [a, b, c]) assert.deepEqual((await one.reach(all)).failed, [])
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /nhid \d+ via 192\.0\.2\.2 dev eth0 proto 112 $/)
      assert.match(
        await a.ns.ip('route', 'show', '10.244.3.0/24'),
        /nhid \d+ via 10\.244\.3\.0 dev flannel\.1 proto 112 onlink $/,
      )
      assert.match(await fdb(a.ns), /^\S+ dst 192\.0\.2\.3 self permanent\n$/)
      await assertReached(a, [b, c], MTU)
      const lost = await pinging(a, c, async () => {
        for (let i = 0; i < 5; i++) {
          await first.reach(all)
          assert.match(await a.ns.ip('route', 'show', '10.244.3.0/24'), /via 192\.0\.2\.3 dev eth0/)
          assert.equal(await fdb(a.ns), '')
          assert.equal(await a.ns.ip('neigh', 'show', 'dev', 'flannel.1', 'nud', 'permanent'), '')
          a.converger.invalidate()
          await a.reach(all)
          assert.match(await a.ns.ip('route', 'show', '10.244.3.0/24'), /dev flannel\.1/)
          first.converger.invalidate()
        }
      })
      assert.equal(lost, 0)
    }),
  )

  it(
    'DirectRouting: a node with a /32 address and rp_filter, whose peers see it on their link, gets packets by the tunnel and answers by it',
    inNamespaces(['lan', 'a', 'c'], async (ns) => {
      const wiring = { backend: vxlan, families: ['v4'], options: { DirectRouting: true } } as const
      const [a, plain] = await cluster(ns, wiring)
      const c = await behindGateway(plain, ns.lan)
      for (const one of [a, c]) assert.deepEqual((await one.reach([a, c])).failed, [])
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /dev flannel\.1 /)
      await assertReached(a, [c], { v4: 1450 })
      await assertReached(c, [a], { v4: 1450 })
      // By its own routes alone, as flannel decides, node a would send what node c drops.
      const { OnLink: _, ...silent } = c.lease.data.v4 as { OnLink: unknown }
      await a.reach([a, { ...c, lease: { ...c.lease, data: { v4: silent } } }])
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /dev eth0 /)
      assert.equal(await answers(a, c), false)
    }),
  )

  it(
    'two networks with two VNIs and two instances live side by side: each has its own device, neither removes the other’s, the wrong device leads nowhere',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      const [otherA, otherB] = members([ns.a, ns.b], {
        backend: vxlan,
        prefix: 245,
        instance: 'other',
        options: { VNI: 2 },
      }) as [Member, Member]
      for (const [one, peer] of [
        [a, b],
        [b, a],
        [otherA, otherB],
        [otherB, otherA],
      ] as const)
        assert.deepEqual((await one.reach([peer])).failed, [])
      const both = await held(a)
      // Each as if it had just been started.
      assert.equal((await a.restarted().reach([b])).changed, 0)
      assert.equal((await otherA.restarted().reach([otherB])).changed, 0)
      await assertReached(a, [b], MTU)
      const works = async (dev: string, to: string) =>
        (await ns.a.exec(['ping', '-n', '-q', '-c', '1', '-w', '1', '-I', dev, to])).status === 0
      assert.deepEqual(
        [
          await works('flannel.1', '10.244.2.0'),
          await works('flannel.2', '10.245.2.0'),
          await works('flannel.2', '10.244.2.0'),
          await works('flannel.1', '10.245.2.0'),
        ],
        [true, true, false, false],
      )
      await otherA.converger.step([])
      assert.deepEqual(
        await held(a),
        both.filter((line) => !/245|flannel(-v6)?\.2/.test(line) && !macs(otherB).some((mac) => line.includes(mac))),
      )
    }),
  )

  it(
    'TxChecksumOffload false is set on every device that is made, also after somebody deleted it, and put back when somebody changed it',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [plain, b] = await cluster(ns, { backend: vxlan })
      await plain.reach([b])
      const offload = (to?: boolean) => inside(parse.netns(ns.a.path), () => txChecksum('flannel.1', to))
      assert.equal(offload(), true)
      const a = plain.restarted({ options: { TxChecksumOffload: false } })
      assert.deepEqual((await a.reach([b])).failed, [])
      assert.equal(offload(), false)
      await ns.a.ip('link', 'delete', 'flannel.1')
      a.converger.invalidate()
      await a.reach([b])
      assert.equal(offload(), false)
      offload(true)
      a.converger.invalidate('link')
      assert.equal((await a.reach([b])).changed, 1)
      assert.equal(offload(), false)
      await b.reach([a])
      await assertReached(a, [b], MTU)
    }),
  )
})

// The same node, with something else in its lease.
function reannounced(one: Member, data: object): Member {
  const lease = { ...one.lease, data: { ...one.lease.data, ...data } }
  const again = one.restarted()
  return {
    ...again,
    lease,
    reach: (peers) =>
      again.converger.step(
        vxlan.want(
          lease,
          peers.map((peer) => peer.lease),
          one.uplink,
          vxlan.conf({}),
          { nexthops: true, instance: parse.network('default'), networks: NETWORKS },
        ).resources,
      ),
  }
}

function macs({ lease: { data } }: Member): string[] {
  return Object.values(data as Record<string, { VtepMAC: string }>).map(({ VtepMAC }) => VtepMAC)
}

async function fdb(ns: Namespace, dev = 'flannel.1'): Promise<string> {
  return (await ns.exec(['bridge', 'fdb', 'show', 'dev', dev])).stdout.replace(/ \n/g, '\n')
}
