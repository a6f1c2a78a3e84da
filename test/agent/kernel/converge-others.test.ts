// lane: netns
// Tests agent/kernel.
import assert from 'node:assert/strict'
import hostGw from '../../../agent/backend/types/host-gw.ts'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import type { Nexthop } from '../../../lib/state/kinds/nexthop.ts'
import { answers, assertReached, cluster, held, type Member, members, pinging } from '../../support/cluster.ts'
import { inNamespaces } from '../../support/harness.ts'

describe('Converger, beside others', () => {
  it(
    'two host-gw agents of one node, told apart by instance alone, share gateways and never remove each other’s routes and nexthops',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, { backend: hostGw })
      const [otherA, otherB, otherC] = members([ns.a, ns.b, ns.c], {
        backend: hostGw,
        prefix: 245,
        instance: 'other',
      }) as [Member, Member, Member]
      await a.reach([b, c])
      const alone = await held(a)
      assert.deepEqual((await otherA.reach([otherB, otherC])).failed, [])
      const both = await held(a)
      assert.equal(both.length, 2 * alone.length)
      assert.equal((await a.restarted().reach([b, c])).changed, 0)
      assert.equal((await otherA.restarted().reach([otherB, otherC])).changed, 0)
      await otherA.restarted().reach([otherB])
      assert.equal((await held(a)).length, both.length - 4)
      await otherA.restarted().converger.step([])
      assert.deepEqual(await held(a), alone)
    }),
  )

  it(
    'a link of our name that is not ours to touch is left alone: one of another type, one of another agent, until that runs no more; the sentence says why, and the other family works',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      // As an agent of that name does as long as it runs.
      const another = Bun.listen({ unix: '\0plumb-agent/another', socket: { data() {} } })
      for (const [lines, why] of [
        [
          ['link add name flannel.1 type bridge', 'address add 10.244.1.0/32 dev flannel.1'],
          'a link of that name is there already, of type bridge',
        ],
        [
          [
            'link delete flannel.1',
            'link add name flannel.1 type vxlan id 5 dev eth0 dstport 8472',
            'link set flannel.1 alias plumb-agent/another',
          ],
          'it belongs to another agent, plumb-agent/another',
        ],
      ] as const) {
        for (const line of lines) await a.ns.ip(...line.split(' '))
        const before = await a.ns.ip('-d', 'address', 'show', 'dev', 'flannel.1')
        const { failed, counts } = await a.restarted().reach([b])
        assert.deepEqual(failed, [`Cannot make link flannel.1: ${why}`])
        assert.deepEqual(
          [counts['link'], counts['route'], counts['tunnel']],
          [
            { wanted: 2, programmed: 1 },
            { wanted: 2, programmed: 1 },
            { wanted: 2, programmed: 1 },
          ],
        )
        assert.equal(await a.ns.ip('-d', 'address', 'show', 'dev', 'flannel.1'), before)
        assert.ok(await answers(a, b, 'v6'))
      }
      another.stop(true)
      assert.deepEqual((await a.restarted().reach([b])).failed, [])
      assert.ok(await answers(a, b))
    }),
  )

  it(
    'the device of flannel, with what stands on it, is taken over without losing a packet; what flannel forgot goes',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan, families: ['v4'] })
      const mac = (one: Member) => (one.lease.data as { v4: { VtepMAC: string } }).v4.VtepMAC
      // As flanneld leaves them: without our alias, without our number.
      for (const [one, n, peer, m] of [
        [a, 1, b, 2],
        [b, 2, a, 1],
      ] as const)
        await flanneld(one, n, mac(one), m, mac(peer))
      await flanneld(a, 1, undefined, 9, '02:00:00:00:00:09')
      assert.ok(await answers(a, b))
      const { ifindex } = (await ns.a.json('link', 'show', 'flannel.1'))[0] ?? {}
      const lost = await pinging(a, b, async () => {
        const { failed } = await a.reach([b])
        assert.deepEqual(failed, [])
        await Bun.sleep(200)
      })
      assert.equal(lost, 0)
      assert.equal((await ns.a.json('link', 'show', 'flannel.1'))[0]?.['ifindex'], ifindex)
      assert.deepEqual(await held(a), (await fresh(a, b)).sort())
      assert.equal((await a.restarted().reach([b])).changed, 0)
    }),
  )

  it(
    'an id of a nexthop that is taken by another program is left to it: the route goes without an object, and gets one when the id is free',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan, families: ['v4'] })
      const { id } = a.want([b]).resources.find((one): one is Nexthop => one.kind === 'nexthop') as Nexthop
      await a.ns.ip('nexthop', 'add', 'id', String(id), 'via', '192.0.2.99', 'dev', 'eth0')
      const before = await a.ns.ip('nexthop', 'show')
      assert.deepEqual((await a.reach([b])).failed, [])
      assert.equal(await a.ns.ip('nexthop', 'show'), before)
      assert.equal(
        await a.ns.ip('route', 'show', '10.244.2.0/24'),
        '10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 112 onlink ',
      )
      await b.reach([a])
      await assertReached(a, [b], { v4: 1450 })
      await a.ns.ip('nexthop', 'delete', 'id', String(id))
      a.converger.invalidate('nexthop')
      await a.reach([b])
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), new RegExp(`nhid ${id} `))
    }),
  )
})

async function flanneld({ ns }: Member, n: number, mac: string | undefined, m: number, peer: string): Promise<void> {
  if (mac) {
    await ns.ip(
      ...`link add flannel.1 address ${mac} type vxlan id 1 dev eth0 local 192.0.2.${n} dstport 8472 nolearning udpcsum`.split(
        ' ',
      ),
    )
    await ns.ip(...`address add 10.244.${n}.0/32 dev flannel.1`.split(' '))
    await ns.ip('link', 'set', 'flannel.1', 'up')
  }
  await ns.ip(...`neigh replace 10.244.${m}.0 lladdr ${peer} dev flannel.1 nud permanent`.split(' '))
  await ns.exec(`bridge fdb replace ${peer} dev flannel.1 dst 192.0.2.${m} self permanent`.split(' '))
  await ns.ip(...`route replace 10.244.${m}.0/24 via 10.244.${m}.0 dev flannel.1 onlink`.split(' '))
}

// What a node that never had a flanneld has.
async function fresh(a: Member, b: Member): Promise<string[]> {
  const found = await held(a)
  await a.ns.ip('link', 'delete', 'flannel.1')
  await a.restarted().reach([b])
  const made = await held(a)
  assert.equal(found.length, made.length)
  return found
}
