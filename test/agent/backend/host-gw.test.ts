// lane: netns
// Tests agent/backend/types/host-gw.ts.
import assert from 'node:assert/strict'
import hostGw from '../../../agent/backend/types/host-gw.ts'
import { parse } from '../../../lib/text/values.ts'
import { assertReached, cluster, held, type Member, uplink } from '../../support/cluster.ts'
import { inNamespaces } from '../../support/harness.ts'
import { testBackend } from '../../support/suites/testBackend.ts'

const MTU = { v4: 1500, v6: 1500 }

testBackend(hostGw, true)

describe('host-gw', () => {
  for (const nexthops of [true, false]) {
    const through = nexthops ? 'nhid \\d+ ' : ''
    it(
      `a route per subnet to the node’s address on the uplink, ${nexthops ? 'through nexthop objects' : 'plain'}, with our number`,
      inNamespaces(['lan', 'a', 'b'], async (ns) => {
        const [a, b] = await cluster(ns, { backend: hostGw, nexthops })
        await a.reach([b])
        assert.match(
          await a.ns.ip('route', 'show', '10.244.2.0/24'),
          new RegExp(`^10\\.244\\.2\\.0/24 ${through}via 192\\.0\\.2\\.2 dev eth0 proto 112 $`),
        )
        assert.match(
          await a.ns.ip('-6', 'route', 'show', 'fd00:244:2::/64'),
          new RegExp(`^fd00:244:2::/64 ${through}via 2001:db8::2 dev eth0 proto 112 metric 1024 pref medium$`),
        )
        assert.deepEqual(await a.ns.json('link', 'show', 'type', 'vxlan'), [])
      }),
    )

    it(
      `a wrong gateway is corrected, in place, and a missing route is put back (${nexthops ? 'nexthop objects' : 'plain routes'})`,
      inNamespaces(['lan', 'a', 'b'], async (ns) => {
        const [a, b] = await cluster(ns, { backend: hostGw, nexthops })
        await b.reach([a])
        await a.reach([b])
        const right = await held(a)
        const wrong = nexthops
          ? ['nexthop', 'replace', 'id', await idOf(a), 'via', '192.0.2.99', 'dev', 'eth0', 'proto', '112']
          : 'route replace 10.244.2.0/24 via 192.0.2.99 dev eth0 proto 112'.split(' ')
        for (const line of [wrong, ['route', 'delete', '10.244.2.0/24']]) {
          await a.ns.ip(...line)
          assert.notDeepEqual(await held(a), right)
          a.converger.invalidate()
          const { repaired, failed, changed } = await a.reach([b])
          assert.deepEqual(
            { failed, changed, repaired: Object.values(repaired).flat().length },
            { failed: [], changed: 1, repaired: 1 },
          )
          assert.deepEqual(await held(a), right)
        }
        await assertReached(a, [b], MTU)
      }),
    )
  }

  it(
    'a route that another program put instead of ours stays, and is reported; an agent that takes over replaces it',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: hostGw })
      await b.reach([a])
      await a.reach([b])
      await a.ns.ip(...'route replace 10.244.2.0/24 via 192.0.2.99 dev eth0'.split(' '))
      a.converger.invalidate()
      const { failed, counts } = await a.reach([b])
      assert.deepEqual(failed, [
        'Cannot make route 10.244.2.0/24: another program has a route there (see: ip route show 10.244.2.0/24)',
      ])
      assert.deepEqual(counts['route'], { wanted: 2, programmed: 1 })
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /via 192\.0\.2\.99 dev eth0 $/)
      const taker = a.restarted({ scope: { takeOver: true } })
      assert.deepEqual((await taker.reach([b])).failed, [])
      await assertReached(taker, [b], MTU)
    }),
  )

  it(
    'the uplink is deleted and made again, with another index: its routes are back',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: hostGw })
      await b.reach([a])
      await a.reach([b])
      const before = await held(a)
      await a.ns.ip('link', 'delete', 'eth0')
      a.converger.invalidate()
      assert.deepEqual((await a.reach([b])).failed, ['Cannot make nexthop 192.0.2.2 on eth0: there is no link eth0'])
      await ns.lan.ip(...`link add port1 up type veth peer name eth0 netns ${ns.a.path}`.split(' '))
      await ns.lan.ip('link', 'set', 'port1', 'master', 'lan0')
      await a.ns.ip('link', 'set', 'eth0', 'up')
      await a.ns.ip('address', 'add', '192.0.2.1/24', 'dev', 'eth0')
      await a.ns.ip('address', 'add', '2001:db8::1/64', 'dev', 'eth0', 'nodad')
      const { failed, counts } = await a.reach([b])
      assert.deepEqual({ failed, routes: counts['route'] }, { failed: [], routes: { wanted: 2, programmed: 2 } })
      assert.deepEqual(await held(a), before)
      await assertReached(a, [b], MTU)
    }),
  )

  it(
    'a peer that is not on the link is a problem that says so, and the others are reached',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [first, b, c] = await cluster(ns, { backend: hostGw })
      const a = first.restarted({
        uplink: {
          routes: [{ dst: '192.0.2.3/32' as never, dev: parse.ifname('eth0'), gateway: true }, ...uplink(1).routes],
        },
      })
      assert.deepEqual(
        [...a.want([b, c]).problems.values()],
        [
          '192.0.2.3 is not on the link eth0, there is a router in between; want backend vxlan, or nodes that share a link',
        ],
      )
      for (const one of [a, b]) assert.deepEqual((await one.reach([a, b, c])).failed, [])
      assert.equal(await a.ns.ip('route', 'show', '10.244.3.0/24'), '')
      await assertReached(a, [b], MTU)
    }),
  )
})

async function idOf(a: Member): Promise<string> {
  const found = (await a.ns.json('nexthop', 'show')).find(({ gateway }) => gateway === '192.0.2.2')
  return String(found?.['id'])
}
