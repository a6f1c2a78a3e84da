import assert from 'node:assert/strict'
import { isDeepStrictEqual } from 'node:util'
import { encodeValue } from '../../../agent/lease/lease.ts'
import { until } from '../harness.ts'
import { DUAL, draft, dualDraft, type Given, mac, watch } from './leases.ts'

/** Defines the tests of what every store tells of its leases. */
export function testSnapshots(given: Given): void {
  testChanges(given)
  testUnreadable(given)
  testFolding(given)
}

function testChanges({ name, network }: Given): void {
  it(`${name}.leases() gives all at once, then after every change, with the names of the nodes`, async () => {
    const held = await network()
    const { subnets } = await held.claim(draft('a', 2))
    await held.put('10.5.0.0-24', encodeValue(draft('', 9)))
    const seen = watch(await held.open())
    await seen.until(({ leases }) => leases.length === 2)
    assert.deepEqual(seen.all[0]?.leases.map(({ node }) => node).sort(), ['a', undefined])
    await held.claim(draft('a', 3))
    await seen.until(({ leases }) =>
      leases.some(
        ({ node, ips, subnets: theirs }) =>
          node === 'a' && ips.v4 === '172.30.0.3' && isDeepStrictEqual(theirs, subnets),
      ),
    )
    await held.del('10.5.0.0-24')
    await seen.until(({ leases }) =>
      isDeepStrictEqual(
        leases.map(({ node }) => node),
        ['a'],
      ),
    )
    await (await held.open()).release('a')
    await seen.until(({ leases }) => leases.length === 0)
    await seen.end()
  })

  it(`${name}.leases() gives the oldest first, however its key sorts`, async () => {
    const held = await network()
    await held.put('10.5.3.0-24', encodeValue(draft('', 3)))
    const seen = watch(await held.open())
    // Two that are written within a tick of the disk's clock are of one age.
    await until(async () => {
      await held.put('10.5.1.0-24', encodeValue(draft('', 1)))
      const { leases } = await seen.until((one) => one.leases.length === 2)
      return leases[0]?.subnets.v4 === '10.5.3.0/24'
    })
    await seen.end()
  })

  it(`${name}.leases() tells of a change of the IPv6 data alone`, async () => {
    const { claim, open } = await network(DUAL)
    await claim(dualDraft('a', 2))
    const seen = watch(await open())
    await seen.until(({ leases }) => leases.length === 1)
    await claim(dualDraft('a', 2, { data: { ...dualDraft('a', 2).data, v6: { VNI: 1, VtepMAC: mac(7) } } }))
    await seen.until(({ leases }) => isDeepStrictEqual(leases[0]?.data.v6, { VNI: 1, VtepMAC: mac(7) }))
    await seen.end()
  })
}

function testUnreadable({ name, network }: Given): void {
  it(`${name}.leases() serves the others when a key or a value cannot be read, and says why`, async () => {
    const held = await network()
    await held.put('10.5.1.0-24', '{"PublicIP":"nonsense"}')
    await held.put('10.5.2.0-24', 'no JSON')
    await held.put('not-a-subnet', '{}')
    assert.deepEqual((await held.claim(draft('a', 2))).subnets, { v4: '10.5.3.0/24' })
    const seen = watch(await held.open())
    const { leases, unreadable } = await seen.until((one) => one.leases.length === 1)
    assert.deepEqual(
      leases.map(({ node }) => node),
      ['a'],
    )
    assert.deepEqual(Object.fromEntries(unreadable.map(({ key, why }) => [key, why])), {
      '10.5.1.0-24': 'Cannot read PublicIP "nonsense": want an IPv4 address',
      '10.5.2.0-24': 'Cannot read the lease "no JSON": want JSON such as {"PublicIP":"172.30.0.2",…}',
      'not-a-subnet': '"not-a-subnet": want a subnet\'s key such as 10.5.16.0-24 or 10.5.16.0-24&fd00:0:0:7::-64',
    })
    await held.put('10.5.2.0-24', encodeValue(draft('', 5)))
    await seen.until((one) => one.leases.length === 2 && one.unreadable.length === 2)
    await seen.end()
  })
}

function testFolding({ name, network }: Given): void {
  it(`${name}.leases() folds what comes while nobody takes it into one`, async () => {
    const held = await network('{"Network":"10.5.0.0/16"}')
    const ends = new AbortController()
    const taking = (await held.open()).leases(ends.signal)[Symbol.asyncIterator]()
    assert.deepEqual(await taking.next(), { done: false, value: { leases: [], unreadable: [] } })
    for (let i = 1; i <= 200; i++) await held.put(`10.5.${i}.0-24`, encodeValue(draft('', i)))
    let taken = 0
    for (let last = 0; last < 200; taken++) {
      // Nobody takes while these are written.
      if (taken === 0) await Bun.sleep(100)
      last = (await taking.next()).value.leases.length
    }
    assert.ok(taken <= 5, `${taken} snapshots for 200 changes`)
    ends.abort()
    assert.deepEqual(await taking.next(), { done: true, value: undefined })
  })
}
