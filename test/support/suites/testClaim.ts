import assert from 'node:assert/strict'
import { decodeKey, encodeValue } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { OutOfSubnetsError, type SubnetStore, SubnetTakenError } from '../../../agent/store/store.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'
import { assertApart, before, DUAL, draft, dualDraft, type Given, mac, SMALL, signal } from './leases.ts'

const V6 = '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd55::/62","IPv6SubnetLen":64}'

/** Defines the tests of how a node gets its lease, keeps it, loses it and gives it back, in every store. */
export function testClaim(given: Given): void {
  testKeep(given)
  testTake(given)
  testContest(given)
  testNamesakes(given)
  testLoss(given)
  testFamilies(given)
  testChange(given)
}

function testKeep({ name, network }: Given): void {
  it(`${name}.claim() writes flannel's key and value, byte for byte`, async () => {
    const held = await network()
    const lease = await held.claim(draft('a', 2))
    const [[key, value] = []] = Object.entries(await held.list())
    assert.deepEqual(decodeKey(key ?? ''), lease.subnets)
    assert.equal(
      value,
      '{"PublicIP":"172.30.0.2","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}}',
    )
  })

  it(`${name}.claim() gives a node the same subnet after a restart, whatever its address is then`, async () => {
    const held = await network('{"Network":"10.5.0.0/16"}')
    const first = await held.claim(draft('a', 2))
    await held.claim(draft('b', 3))
    const again = await held.claim(draft('a', 77))
    assert.deepEqual(again.subnets, first.subnets)
    const values = Object.values(await held.list())
    assert.equal(values.length, 2)
    assert.ok(values.includes(encodeValue(draft('a', 77))))
  })

  it(`${name}.claim() of a reservation leaves it one, through three restarts and a release`, async () => {
    const held = await network()
    await held.put('10.5.2.0-24', '{"PublicIP":"172.30.0.2"}')
    for (let i = 0; i < 3; i++) {
      const { subnets, expires } = await held.claim(draft('a', 2))
      assert.deepEqual({ subnets, expires }, { subnets: { v4: '10.5.2.0/24' }, expires: undefined })
    }
    await (await held.open()).release('a')
    assert.deepEqual(await held.list(), { '10.5.2.0-24': encodeValue(draft('a', 2)) })
    assert.deepEqual((await held.claim(draft('a', 2))).subnets, { v4: '10.5.2.0/24' })
  })
}

function testTake({ name, network }: Given): void {
  it(`${name}.claim() takes over the lease that flannel left with the node's address, and not one that has a node`, async () => {
    const held = await network()
    await held.put('10.5.2.0-24', encodeValue(draft('', 2)))
    await held.put('10.5.3.0-24', encodeValue(draft('', 3)))
    assert.deepEqual((await held.claim(draft('a', 2))).subnets, { v4: '10.5.2.0/24' })
    // Another node behind the same NAT.
    assert.deepEqual((await held.claim(draft('b', 2))).subnets, { v4: '10.5.1.0/24' })
  })

  it(`${name}.claim() gives back a lease of its address that is not of the network, and takes another`, async () => {
    const held = await network()
    await held.put('10.9.2.0-24', encodeValue(draft('', 2)))
    const { subnets } = await held.claim(draft('a', 2))
    assert.deepEqual(Object.keys(await held.list()).map(decodeKey), [subnets])
  })

  it(`${name}.claim() takes what the node had before when nobody has it, and another when it is not of the network`, async () => {
    const { claim } = await network()
    assert.deepEqual((await claim(draft('a', 2, { before: before('10.5.3.0/24') }))).subnets, { v4: '10.5.3.0/24' })
    assert.notDeepEqual((await claim(draft('b', 3, { before: before('10.5.3.0/24') }))).subnets, { v4: '10.5.3.0/24' })
    assert.match(
      (await claim(draft('c', 4, { before: before('10.9.1.0/24') }))).subnets.v4 ?? '',
      /^10\.5\.[12]\.0\/24$/,
    )
  })
}

function testContest({ name, network }: Given): void {
  for (const [what, text, make] of [
    ['IPv4', SMALL, draft],
    ['dual stack', DUAL, dualDraft],
  ] as const)
    it(`${name}.claim() by 5 nodes at once for 3 subnets, ${what}: 3 have one each, 2 hear that there is none left`, async () => {
      const held = await network(text)
      const stores = await Promise.all(Array.from({ length: 5 }, held.open))
      const outcomes = await Promise.allSettled(
        stores.map((store, i) => store.claim(make(`n${i}`, i + 2), held.conf, signal)),
      )
      const won = outcomes.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
      assert.equal(won.length, 3)
      assertApart(won)
      for (const one of outcomes)
        assert.ok(
          one.status === 'fulfilled' || one.reason instanceof OutOfSubnetsError,
          String((one as PromiseRejectedResult).reason),
        )
      assert.equal(Object.keys(await held.list()).length, 3)
      // One goes: the next that asks has it.
      const [{ node = '', subnets } = assert.fail()] = won
      await (await held.open()).release(node)
      assert.deepEqual((await held.claim(make('late', 99))).subnets, subnets)
    })

  it(`${name}.claim() by 3 nodes for 3 subnets, 100 starts at once: none fails, none has another's`, async () => {
    const held = await network()
    const stores = await Promise.all(Array.from({ length: 10 }, held.open))
    const won = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        (stores[i % 10] as SubnetStore).claim(draft(`n${i % 3}`, (i % 3) + 2), held.conf, signal),
      ),
    )
    for (const node of ['n0', 'n1', 'n2'])
      assert.equal(new Set(won.filter((one) => one.node === node).map(({ subnets }) => subnets.v4)).size, 1)
    assert.deepEqual(Object.keys(await held.list()), ['10.5.1.0-24', '10.5.2.0-24', '10.5.3.0-24'])
  })

  it(`${name}.claim() says which network is full, and what would help`, async () => {
    const { claim } = await network()
    for (const i of [1, 2, 3]) await claim(draft(`n${i}`, i))
    await assert.rejects(
      claim(draft('d', 9)),
      new OutOfSubnetsError(
        'Cannot claim a subnet for node "d": every /24 of 10.5.0.0/22 from 10.5.1.0 to 10.5.3.0 is taken; widen the network or remove stale nodes (see: plumb leases)',
      ),
    )
  })
}

function testNamesakes({ name, network }: Given): void {
  const named = (last: number, identity?: string) => draft('a', last, identity === undefined ? {} : { identity })

  it(`${name}.claim() refuses a node whose name another node has, and says at which address that one is`, async () => {
    const held = await network()
    const { subnets } = await held.claim(named(2, 'first'))
    const before = await held.list()
    const wanted = new SubnetTakenError(
      `Cannot use the node name "a": the node at 172.30.0.2 has it, and ${subnets.v4}; want another name (--node-name), or, when that node is gone for good, remove its lease from the store`,
    )
    await assert.rejects(held.claim(named(3, 'second')), wanted)
    // Its cleanup is not the other's.
    await (await held.open()).release('a', 'second')
    assert.deepEqual(await held.list(), before)
    await (await held.open()).release('a', 'first')
    assert.deepEqual(await held.list(), {})
    assert.deepEqual((await held.claim(named(3, 'second'))).ips, named(3).ips)
  })

  it(`${name}.claim() gives a node that moved, or was installed again, its own lease, and of two new ones of a name to one`, async () => {
    const held = await network()
    const { subnets } = await held.claim(named(2))
    for (const again of [named(2, 'first'), named(9, 'first'), named(9, 'second'), named(2, 'second')])
      assert.deepEqual((await held.claim(again)).subnets, subnets)
    await held.del(Object.keys(await held.list())[0] ?? '')
    const outcomes = await Promise.allSettled([2, 3, 4].map((last) => held.claim(named(last, `${last}`))))
    assert.deepEqual(outcomes.map((one) => (one.status === 'fulfilled' ? 'has it' : one.reason.name)).sort(), [
      'SubnetTakenError',
      'SubnetTakenError',
      'has it',
    ])
    assert.equal(Object.keys(await held.list()).length, 1)
  })
}

function testLoss({ name, network }: Given): void {
  it(`${name}.claim() makes the node's own lease again when it was removed, and SubnetTakenError when another has it`, async () => {
    const held = await network()
    const { subnets } = await held.claim(draft('a', 2))
    const key = Object.keys(await held.list())[0] ?? ''
    const again = draft('a', 2, { before: subnets, fixed: true })
    await held.del(key)
    assert.deepEqual((await held.claim(again)).subnets, subnets)
    await held.del(key)
    await held.claim(draft('b', 3, { before: subnets }))
    await assert.rejects(
      held.claim(again),
      new SubnetTakenError(
        `Cannot keep ${subnets.v4} for node "a", whose pods have addresses of it: ${subnets.v4} belongs to node "b"`,
      ),
    )
    assert.deepEqual(Object.values(await held.list()), [encodeValue(draft('b', 3))])
  })

  it(`${name}.claim() of a fixed subnet that the network has not is SubnetTakenError, with what it has`, async () => {
    const { claim } = await network()
    await assert.rejects(
      claim(draft('a', 2, { before: before('10.9.1.0/24'), fixed: true })),
      new SubnetTakenError(
        'Cannot keep 10.9.1.0/24 for node "a", whose pods have addresses of it: the network has no such subnet; want /24 of 10.5.0.0/22 from 10.5.1.0 to 10.5.3.0',
      ),
    )
  })

  it(`${name}.release() gives the subnet back; nothing held is success`, async () => {
    const held = await network()
    await held.claim(draft('a', 2))
    const store = await held.open()
    await store.release('a')
    await store.release('a')
    await store.release('never')
    assert.deepEqual(await held.list(), {})
  })
}

function testFamilies({ name, network }: Given): void {
  it(`${name}.claim() with IPv6 alone: three nodes, three subnets, keys as flannel's`, async () => {
    const held = await network(V6)
    const only = (node: string, last: number) => ({
      ...dualDraft(node, last),
      ips: { v6: parseIp(`fd30::${last}`) },
      data: { v6: { VNI: 1, VtepMAC: mac(last) } },
    })
    const leases = [await held.claim(only('a', 2)), await held.claim(only('b', 3)), await held.claim(only('c', 4))]
    assertApart(leases)
    const kept = await held.list()
    assert.deepEqual(Object.keys(kept), [
      '0.0.0.0-0&fd55:0:0:1::-64',
      '0.0.0.0-0&fd55:0:0:2::-64',
      '0.0.0.0-0&fd55:0:0:3::-64',
    ])
    assert.ok(
      Object.values(kept).includes(
        '{"PublicIP":"0.0.0.0","PublicIPv6":"fd30::2","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}}',
      ),
    )
    assert.deepEqual((await held.claim(only('a', 99))).subnets, leases[0]?.subnets)
  })

  it(`${name}.claim() with both families: one key, both values, and the same after its removal`, async () => {
    const held = await network(DUAL)
    const wanted = { v4: parseCidr('10.5.2.0/24'), v6: parseCidr('fd00:5:0:3::/64') }
    const both = dualDraft('a', 2, { before: wanted })
    for (let i = 0; i < 2; i++) {
      assert.deepEqual((await held.claim(both)).subnets, wanted)
      assert.deepEqual(await held.list(), {
        '10.5.2.0-24&fd00:5:0:3::-64':
          '{"PublicIP":"172.30.0.2","PublicIPv6":"fd30::2","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:02"},"BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:00:66"}}',
      })
      await held.del('10.5.2.0-24&fd00:5:0:3::-64')
    }
  })
}

function testChange({ name, network }: Given): void {
  it(`${name}.claim() keeps the IPv4 subnet when the network gets IPv6`, async () => {
    const held = await network()
    const { subnets } = await held.claim(draft('a', 2))
    await held.configure(DUAL)
    const both = await (await held.open()).claim(
      dualDraft('a', 2, { before: subnets, fixed: true }),
      parseNetworkConf(DUAL),
      signal,
    )
    assert.equal(both.subnets.v4, subnets.v4)
    assert.match(both.subnets.v6 ?? '', /^fd00:5:0:[123]::\/64$/)
    assert.deepEqual(Object.keys(await held.list()).map(decodeKey), [both.subnets])
  })

  it(`${name}.claim() takes another subnet when the network has moved`, async () => {
    const held = await network()
    await held.claim(draft('a', 2))
    const moved = parseNetworkConf('{"Network":"10.6.0.0/16"}')
    const { subnets } = await (await held.open()).claim(draft('a', 2), moved, signal)
    assert.match(subnets.v4 ?? '', /^10\.6\./)
    assert.deepEqual(Object.keys(await held.list()).map(decodeKey), [subnets])
  })

  it(`${name}.claim() refuses a node name that is a path, and changes nothing`, async () => {
    const held = await network()
    await assert.rejects(held.claim(draft('../a', 2)), {
      name: 'ValueError',
      message: /^Cannot use the node name "\.\.\/a": want/,
    })
    assert.deepEqual(await held.list(), {})
  })
}
