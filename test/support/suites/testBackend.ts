import assert from 'node:assert/strict'
import type { Backend, Facts } from '../../../agent/backend/backend.ts'
import { ownership } from '../../../agent/kernel/ownership.ts'
import { encodeKey, type Lease } from '../../../agent/lease/lease.ts'
import { parse } from '../../../lib/text/values.ts'
import { answers, assertReached, cluster, confOf, held, lease, NETWORKS, uplink } from '../cluster.ts'
import { inNamespaces, snapshot } from '../harness.ts'
import { settled } from '../network.ts'

const FACTS: Facts = {
  nexthops: true,
  instance: parse.network('default'),
  networks: NETWORKS,
}

/**
 * Defines the tests that every backend has to pass: what it announces and wants, pure. A backend that `reaches` other
 * nodes itself has two more. Packets of full size go both ways, and nothing stays of a node that left. `all` are the
 * families that it has.
 */
export function testBackend(backend: Backend, reaches: boolean, all: Families = ['v4', 'v6']): void {
  describe(`${backend.type}, as any backend`, () => {
    testAnnounce(backend, all)
    testWant(backend, reaches, all)
    if (reaches) testPackets(backend, all)
    if (reaches) testTraces(backend, all)
  })
}

type Families = readonly ('v4' | 'v6')[]

function testAnnounce(backend: Backend, all: Families): void {
  const conf = confOf(backend, {}, 1)
  const last = all.slice(-1)

  it('announce() is the same after a restart, differs from node to node where it says anything, and data() reads it back from JSON', () => {
    const first = backend.announce('node-1', uplink(1, all), conf)
    assert.deepEqual(backend.announce('node-1', uplink(1, all), conf), first)
    assert.deepEqual(backend.data(JSON.parse(JSON.stringify(first))), first)
    if (Object.keys(first).length > 0)
      assert.notDeepEqual(backend.announce('node-2', uplink(2, all), confOf(backend, {}, 2)), first)
  })
  it('announce() has one part per family of the uplink at most', () => {
    assert.deepEqual(
      Object.keys(backend.announce('node-1', uplink(1, last), conf)).filter((family) => !last.includes(family as 'v4')),
      [],
    )
  })
  it('conf() takes what flannel takes: keys in any case, unknown ones, none', () => {
    assert.doesNotThrow(() => backend.conf({ type: backend.type, Unknown: 1 }))
  })
  it('mtu() is never more than the uplink has', () => {
    assert.ok(backend.mtu(conf, 1500, { v4: 1 }) <= 1500)
    assert.ok(backend.mtu(conf, 1500, { v4: 1, v6: 1 }) <= backend.mtu(conf, 1500, { v4: 1 }))
  })
}

function testWant(backend: Backend, reaches: boolean, all: Families): void {
  const conf = confOf(backend, {}, 1)
  const { leaseType = backend.type } = backend
  const own = (n: number, families = all) =>
    lease(n, backend.announce(`node-${n}`, uplink(n, families), confOf(backend, {}, n)), leaseType, families)
  const want = (peers: readonly Lease[], families = all) =>
    backend.want(own(1, families), peers, uplink(1, families), conf, FACTS)
  const none = want([])

  it('want() is the same for the same peers, in whatever order they come and however often it is asked', () => {
    const peers = [own(2), own(3), own(4)]
    const first = want(peers)
    const plain = ({ resources, problems }: ReturnType<typeof want>) => ({ resources, problems: [...problems] })
    assert.deepEqual(plain(want(JSON.parse(JSON.stringify(peers)))), plain(first))
    const text = (resources: readonly object[]) => resources.map((one) => JSON.stringify(one)).sort()
    assert.deepEqual(text(want([...peers].reverse()).resources), text(first.resources))
    assert.equal(first.resources.length > none.resources.length, reaches)
    assert.equal(first.problems.size, 0)
  })
  it('want() gives the very same objects for peers that did not change, also renewed ones and ones that were read again', () => {
    const peers = [own(2), own(3)]
    const first = new Set(want(peers).resources)
    const again = want([
      ...JSON.parse(JSON.stringify(peers)).map((one: Lease) => ({ ...one, expires: 1 })),
      own(4),
    ]).resources
    const ofPeers = (resources: Iterable<object>) =>
      [...resources].filter((one) => /10\.244\.[23]\.|244:[23]::/.test(JSON.stringify(one)))
    assert.deepEqual(ofPeers(again), ofPeers(first))
    for (const one of ofPeers(again)) assert.ok(first.has(one as never))
  })
  it('want() knows its own lease, and that only one node has both families', () => {
    assert.deepEqual(want([own(1)]).resources, none.resources)
    if (all.length > 1) assert.equal(want([own(1)]).problems.size + want([own(2, ['v4'])]).problems.size, 0)
    const foreign = lease(2, {}, leaseType, ['v6'])
    assert.deepEqual(want([foreign], ['v4']).resources, want([], ['v4']).resources)
  })
  it('want() owns everything that it wants, and its links are named', () => {
    const owns = ownership({ instance: FACTS.instance, links: backend.links(conf), networks: NETWORKS })
    for (const one of want([own(2), own(3)]).resources)
      assert.ok(one.kind === 'sysctl' || owns(one), JSON.stringify(one))
    for (const one of none.resources) if (one.kind === 'link') assert.ok(backend.links(conf).includes(one.name))
  })
  if (!reaches) return
  it('want() says of each peer that it cannot reach why, by the key of its lease, and reaches the others', () => {
    const whole = want([own(2), own(3)])
    const last = all.at(-1) as 'v4'
    const peers = [
      own(2),
      { ...own(4), backend: 'other' },
      { ...own(5), ips: {} },
      { ...own(6), ips: own(1).ips },
      own(3),
    ]
    const { resources, problems } = want(peers)
    assert.deepEqual(new Set(resources), new Set(whole.resources))
    assert.deepEqual(
      [...problems.keys()],
      [4, 5, 6].map((n) => encodeKey(own(n).subnets)),
    )
    const [of4, of5, of6] = [...problems.values()]
    assert.equal(of4, `it uses backend "other", this node ${backend.type}`)
    assert.equal(of5, all.map((family) => `it announces no IP${family} address`).join('; '))
    assert.match(of6 ?? '', new RegExp(`it announces ${own(1).ips[last]}, this node's own address$`))
  })
}

function testPackets(backend: Backend, all: Families): void {
  const conf = backend.conf({})
  const mtu = Object.fromEntries(all.map((family) => [family, backend.mtu(conf, 1500, { [family]: 1 })]))
  const sizes = all.map((family) => `${family} ${mtu[family]}`).join(' and ')
  for (const nexthops of [true, false]) {
    it(
      `three nodes reach each other with packets of full size, ${sizes}, ${nexthops ? 'through nexthop objects' : 'with plain routes'}`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const nodes = await cluster(ns, { backend, nexthops, families: all })
        for (const one of nodes) assert.deepEqual((await one.reach(nodes)).failed, [])
        for (const one of nodes)
          await assertReached(
            one,
            nodes.filter((other) => other !== one),
            mtu,
          )
      }),
    )
  }

  for (const family of all.length > 1 ? all : []) {
    it(
      `IP${family} alone: three nodes reach each other with packets of full size, and nothing of the other family is made`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const nodes = await cluster(ns, { backend, families: [family] })
        for (const one of nodes) assert.deepEqual((await one.reach(nodes)).failed, [])
        await assertReached(nodes[0], nodes.slice(1), { [family]: mtu[family] as number })
        const own = (await held(nodes[0])).join('\n')
        assert.doesNotMatch(own, family === 'v4' ? /fd00:244/ : /10\.244/)
      }),
    )
  }
}

function testTraces(backend: Backend, families: Families): void {
  it(
    'a node that left leaves nothing behind, the last one neither, and the node is as it was',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const all = await cluster(ns, { backend, families })
      const [a, b, c] = all
      const before = await settled(() => snapshot(a.ns))
      await a.reach([a, b])
      const two = await settled(() => held(a))
      await a.reach(all)
      assert.ok((await held(a)).length > two.length)
      await a.reach([a, b])
      assert.deepEqual(await held(a), two)
      await c.reach(all)
      assert.equal(await answers(a, c), false)
      assert.deepEqual((await a.converger.step([])).failed, [])
      assert.deepEqual(await held(a), [])
      assert.equal(await settled(() => snapshot(a.ns)), before)
    }),
  )

  it(
    'an agent that is started again finds all as it should be and changes nothing',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const all = await cluster(ns, { backend, families })
      const first = await all[0].reach(all)
      assert.ok(first.changed > 0)
      const { changed, failed, counts } = await all[0].restarted().reach(all)
      assert.deepEqual({ changed, failed, counts }, { changed: 0, failed: [], counts: first.counts })
    }),
  )
}
