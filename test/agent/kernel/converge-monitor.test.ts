// lane: netns
// Tests agent/kernel.
import assert from 'node:assert/strict'
import hostGw from '../../../agent/backend/types/host-gw.ts'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import { answers, assertReached, cluster, held, type Member } from '../../support/cluster.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { listening } from '../../support/listening.ts'

const MTU = { v4: 1450, v6: 1430 }

describe('Converger and the monitors', () => {
  it(
    'what a step does itself is no news: peers that come, change their MAC, and go',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, { backend: vxlan })
      await listening(a, [], async ({ news, caughtUp }) => {
        for (const peers of [[b], [b, c], [c], [], [b, c]]) {
          await a.reach(peers)
          await caughtUp()
          assert.deepEqual(news(), [])
        }
        await a.converger.step([])
        await caughtUp()
        assert.deepEqual(news(), [])
      })
    }),
  )

  it(
    'what others do elsewhere is no news: pods that come, routes of other programs, neighbours that are learned',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      await a.reach([b])
      await listening(a, [b], async ({ news, caughtUp }) => {
        await assertReached(a, [b], MTU)
        for (const line of [
          'link add name pod1 up type bridge',
          'address add 10.244.1.99/32 dev pod1',
          'route add 10.244.1.200/32 dev pod1',
          'route add 198.51.100.0/24 via 192.0.2.3',
          'route add 198.51.100.0/24 via 10.244.2.0 dev flannel.1 onlink metric 7',
          'neigh add 192.0.2.200 lladdr 02:00:00:00:00:01 dev eth0 nud permanent',
          'nexthop add id 7 via 192.0.2.3 dev eth0',
          'nexthop delete id 7',
          'link delete pod1',
        ])
          await a.ns.ip(...line.split(' '))
        await a.ns.exec(['ping', '-n', '-q', '-c', '1', '-w', '1', '10.244.1.200'])
        await caughtUp()
        assert.deepEqual(news(), [])
      })
    }),
  )

  for (const [what, argv, kind] of [
    ['route', 'ip route delete 10.244.2.0/24', 'route'],
    ['IPv6 route', 'ip -6 route delete fd00:244:2::/64', 'route'],
    ['neighbour', 'ip neigh delete 10.244.2.0 dev flannel.1', 'neigh'],
    ['IPv6 neighbour', 'ip neigh delete fd00:244:2:: dev flannel-v6.1', 'neigh'],
    ['FDB entry', 'bridge fdb delete MAC dev flannel.1 self', 'tunnel'],
    ['address', 'ip address delete 10.244.1.0/32 dev flannel.1', 'addr'],
    ['nexthop', 'ip nexthop delete id ID', 'nexthop'],
    ['link', 'ip link delete flannel.1', 'link'],
    ['IPv6 link', 'ip link delete flannel-v6.1', 'link'],
    ['route, replaced', 'ip route replace 10.244.2.0/24 via 192.0.2.9 dev eth0 proto 112', 'route'],
    ['neighbour, changed', 'ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent', 'neigh'],
    ['FDB entry, changed', 'bridge fdb replace MAC dev flannel.1 dst 192.0.2.9 self permanent', 'tunnel'],
    ['FDB entry, added', 'bridge fdb add 02:00:00:00:00:01 dev flannel.1 dst 192.0.2.9 self permanent', 'tunnel'],
    ['FDB entry, no longer permanent', 'bridge fdb replace MAC dev flannel.1 dst 192.0.2.2 self static', 'tunnel'],
    [
      'FDB entry, to another port',
      'bridge fdb replace MAC dev flannel.1 dst 192.0.2.2 port 99 self permanent',
      'tunnel',
    ],
    ['address, another inside the network', 'ip address add 10.244.99.1/32 dev flannel.1', 'addr'],
    ['route, another inside the network', 'ip route add 10.244.98.0/24 via 10.244.98.0 dev flannel.1 onlink', 'route'],
    ['nexthop, changed', 'ip nexthop replace id ID via 10.244.9.0 dev flannel.1 onlink proto 112', 'nexthop'],
    ['MTU', 'ip link set flannel.1 mtu 1300', 'link'],
    ['MAC', 'ip link set flannel.1 address 02:00:00:00:00:01', 'link'],
    ['link, down', 'ip link set flannel.1 down', 'link'],
  ] as const) {
    it(
      `${what}: changed by hand is news, the next step puts it right, says what it was, and that is no news; ${kind === 'link' ? 'packets pass again, with the same MAC' : 'nothing foreign is touched'}`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const [a, b, c] = await cluster(ns, { backend: vxlan })
        for (const one of [a, b, c]) await one.reach([a, b, c])
        const foreign = await foreignThings(a)
        const right = await held(a)
        await listening(a, [b, c], async ({ news, something, caughtUp }) => {
          const [gateway] = (await a.ns.json('nexthop', 'show')).filter(({ gateway }) => gateway === '10.244.2.0')
          const mac = (b.lease.data as { v4: { VtepMAC: string } }).v4.VtepMAC
          const { status, stderr } = await a.ns.exec(
            argv.replace('MAC', mac).replace('ID', String(gateway?.['id'])).split(' '),
          )
          assert.equal(status, 0, stderr)
          assert.notDeepEqual(await held(a), right)
          await something()
          await caughtUp()
          const { repaired, failed } = await a.reach([b, c])
          assert.deepEqual(failed, [])
          assert.ok((repaired[kind] ?? []).length > 0, JSON.stringify(repaired))
          assert.deepEqual(await held(a), right)
          await caughtUp()
          // A device that is changed step by step, or made again, tells of each; one more look finds all in order.
          if (kind === 'link') assert.equal((await a.reach([b, c])).changed, 0)
          const before = news().length
          await caughtUp()
          assert.equal(news().length, before)
          assert.equal((await a.reach([b, c])).changed, 0)
        })
        assert.deepEqual(await foreignThings(a), foreign)
        await assertReached(a, [b, c], MTU)
      }),
    )
  }

  it(
    'the uplink of host-gw goes down and up: its routes are gone, that is news, and they are back',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: hostGw })
      await b.reach([a])
      await a.reach([b])
      const right = await held(a)
      await listening(a, [b], async ({ news, something, caughtUp }) => {
        await a.ns.ip('link', 'set', 'eth0', 'down')
        await something()
        assert.notDeepEqual(await held(a), right)
        assert.notDeepEqual((await a.reach([b])).failed, [])
        await caughtUp()
        const before = news().length
        await a.ns.ip('link', 'set', 'eth0', 'up')
        await a.ns.ip('address', 'replace', '2001:db8::1/64', 'dev', 'eth0', 'nodad')
        await something(before)
        await until(async () => (await a.reach([b])).failed.length === 0)
        assert.deepEqual(await held(a), right)
        assert.ok(await answers(a, b))
      })
    }),
  )

  it(
    'the uplink of vxlan is deleted, and its devices with it, and made again with another index: that is news, and packets pass',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      await a.reach([b])
      const right = await held(a)
      await listening(a, [b], async ({ news, something, caughtUp }) => {
        await a.ns.ip('link', 'delete', 'eth0')
        await something()
        await caughtUp()
        assert.deepEqual((await a.reach([b])).failed, ['Cannot make link flannel.1 and 1 more: there is no link eth0'])
        assert.deepEqual(await held(a), [])
        const before = news().length
        await ns.lan.ip(...`link add port1 up type veth peer name eth0 netns ${ns.a.path}`.split(' '))
        await ns.lan.ip('link', 'set', 'port1', 'master', 'lan0')
        await a.ns.ip('link', 'set', 'eth0', 'up')
        await a.ns.ip('address', 'add', '192.0.2.1/24', 'dev', 'eth0')
        await a.ns.ip('address', 'add', '2001:db8::1/64', 'dev', 'eth0', 'nodad')
        await something(before)
        await until(async () => (await a.reach([b])).failed.length === 0)
        assert.deepEqual(await held(a), right)
        await assertReached(a, [b], MTU)
      })
    }),
  )

  it(
    'a route that stood in the way is gone: that is news, and ours is made',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, { backend: vxlan })
      await a.ns.ip(...'route add 10.244.2.0/24 via 192.0.2.9'.split(' '))
      await listening(a, [b, c], async ({ news, something, caughtUp }) => {
        const { failed } = await a.reach([b, c])
        await caughtUp()
        assert.deepEqual(failed, [
          'Cannot make route 10.244.2.0/24: another program has a route there (see: ip route show 10.244.2.0/24)',
        ])
        await caughtUp()
        assert.deepEqual(news(), [])
        await a.ns.ip('route', 'delete', '10.244.2.0/24')
        await something()
        assert.deepEqual((await a.reach([b, c])).failed, [])
        assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /dev flannel\.1 proto 112/)
      })
    }),
  )
})

/** Things of an admin's that look much like ours, made on the first call. */
async function foreignThings({ ns }: Member): Promise<string> {
  const lines = [
    'route replace 203.0.113.0/24 via 192.0.2.3 proto static',
    'route replace 203.0.114.0/24 via 192.0.2.3 proto 112',
    'route replace 10.244.77.0/24 via 192.0.2.3 proto static',
    'nexthop replace id 42 via 192.0.2.3 dev eth0 proto 112',
    'neigh replace 192.0.2.201 lladdr 02:00:00:00:00:02 dev eth0 nud permanent protocol 112',
  ]
  for (const line of lines) await ns.ip(...line.split(' '))
  const asks = [
    'route show 203.0.113.0/24',
    'route show 203.0.114.0/24',
    'route show 10.244.77.0/24',
    'nexthop show id 42',
    'neigh show dev eth0 nud permanent',
  ]
  return (await Promise.all(asks.map((ask) => ns.ip(...ask.split(' '))))).join('\n')
}
