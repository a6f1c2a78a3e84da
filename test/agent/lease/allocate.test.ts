// lane: quick
// Tests agent/lease.
import assert from 'node:assert/strict'
import { allocate, fits, overlaps } from '../../../agent/lease/allocate.ts'
import type { Both } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { type Cidr, parseCidr } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

const SMALL = parseNetworkConf('{"Network":"10.5.0.0/22","SubnetLen":24}')
const DUAL = parseNetworkConf('{"Network":"10.5.0.0/22","SubnetLen":24,"EnableIPv6":true,"IPv6Network":"fd00:5::/62"}')
const V6 = parseNetworkConf('{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd55::/48"}')
const both = (v4?: string, v6?: string): Both<Cidr> => ({
  ...(v4 && { v4: parseCidr(v4) }),
  ...(v6 && { v6: parseCidr(v6) }),
})

describe('allocate()', () => {
  it('gives every free subnet the same chance, from SubnetMin to SubnetMax', () => {
    const taken = [both('10.5.2.0/24')]
    const drawn = [0, 0.49, 0.5, 0.999].map((random) => allocate(SMALL, taken, {}, () => random))
    assert.deepEqual(drawn, [both('10.5.1.0/24'), both('10.5.1.0/24'), both('10.5.3.0/24'), both('10.5.3.0/24')])
  })

  it('gives what is wanted when it is free and of the network, else another', () => {
    assert.deepEqual(
      allocate(SMALL, [], both('10.5.3.0/24'), () => 0),
      both('10.5.3.0/24'),
    )
    assert.deepEqual(
      allocate(SMALL, [both('10.5.3.0/24')], both('10.5.3.0/24'), () => 0),
      both('10.5.1.0/24'),
    )
    for (const wanted of ['10.5.0.0/24', '10.5.2.0/25', '10.6.1.0/24', '10.5.2.1/24', 'fd00:5:0:1::/64'])
      assert.deepEqual(
        allocate(SMALL, [], both(wanted), () => 0),
        both('10.5.1.0/24'),
        wanted,
      )
  })

  it('gives each family by itself, and keeps the wanted one of either', () => {
    assert.deepEqual(
      allocate(DUAL, [both('10.5.1.0/24', 'fd00:5:0:2::/64')], both('10.5.2.0/24'), () => 0),
      both('10.5.2.0/24', 'fd00:5:0:1::/64'),
    )
    assert.equal(
      allocate(
        DUAL,
        [1, 2, 3].map((i) => both(undefined, `fd00:5:0:${i}::/64`)),
      ),
      undefined,
    )
  })

  it('works with IPv6 alone', () => {
    assert.deepEqual(
      allocate(V6, [both(undefined, 'fd55:0:0:1::/64')], {}, () => 0),
      both(undefined, 'fd55:0:0:2::/64'),
    )
    assert.deepEqual(
      allocate(V6, [], {}, () => 1 - 2 ** -53),
      both(undefined, 'fd55:0:0:ffff::/64'),
    )
  })

  it('counts leases of other lengths for all they cover, also beyond the pool', () => {
    assert.equal(allocate(SMALL, [both('10.5.0.0/16')]), undefined)
    assert.deepEqual(allocate(SMALL, [both('10.5.1.64/26'), both('10.5.2.0/23')]), undefined)
    assert.deepEqual(
      allocate(SMALL, [both('10.5.1.64/26'), both('10.4.0.0/16'), both('10.9.0.0/16')], {}, () => 0),
      both('10.5.2.0/24'),
    )
  })

  it('gives undefined when all are taken, in whatever order and however often', () => {
    const all = ['10.5.3.0/24', '10.5.1.0/24', '10.5.2.0/24', '10.5.1.0/24'].map((cidr) => both(cidr))
    assert.equal(allocate(SMALL, all), undefined)
    assert.deepEqual(allocate(SMALL, all.slice(0, 2)), both('10.5.2.0/24'))
  })

  it('gives subnets of the network that overlap none that are taken, or none when there are none', () => {
    const conf = parseNetworkConf(
      '{"Network":"10.5.0.0/22","SubnetLen":27,"SubnetMin":"10.5.1.32","SubnetMax":"10.5.2.96"}',
    )
    const slots = Array.from({ length: 11 }, (_, i) =>
      both(`10.5.${i < 7 ? 1 : 2}.${i < 7 ? 32 * (i + 1) : 32 * (i - 7)}/27`),
    )
    const some = fc.array(fc.tuple(fc.integer({ min: 0, max: 31 }), fc.integer({ min: 22, max: 30 })), {
      maxLength: 12,
    })
    fc.assert(
      fc.property(some, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (blocks, random) => {
        const taken = blocks.map(([i, length]) =>
          both(`10.5.${i >> 3}.${((i & 7) * 32) & (length < 24 ? 0 : 255)}/${length}`),
        )
        const free = slots.filter((slot) => !taken.some((one) => overlaps(one, slot)))
        const got = allocate(conf, taken, {}, () => random)
        assert.deepEqual(got, free[Math.floor(random * free.length)])
        assert.ok(!got || fits(conf, got))
      }),
    )
  })
})
