// lane: quick
// Tests lib/pools.
import assert from 'node:assert/strict'
import { Address4, Address6 } from 'ip-address'
import {
  capacity,
  describe as named,
  type RangeSet,
  rangeOf,
  readRangeSets,
  type SetConf,
  search,
} from '../../../lib/pools/ranges.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { type Ip, parseCidr, parseIp } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

type Raw = { subnet: string; rangeStart?: string; rangeEnd?: string; gateway?: string }

function sets(given: readonly (readonly Raw[])[], wanted: readonly string[] = []): readonly RangeSet[] {
  const confs = given.map((ranges, i): SetConf => ({ at: `ipam.ranges[${i}]`, ranges: ranges.map(typed) }))
  return readRangeSets(confs, wanted.map(parseIp))
}
function typed({ subnet, rangeStart, rangeEnd, gateway }: Raw) {
  return {
    subnet: parseCidr(subnet),
    ...(rangeStart ? { rangeStart: parseIp(rangeStart) } : {}),
    ...(rangeEnd ? { rangeEnd: parseIp(rangeEnd) } : {}),
    ...(gateway ? { gateway: parseIp(gateway) } : {}),
  }
}
function only(...ranges: Raw[]): RangeSet {
  return sets([ranges])[0] as RangeSet
}
function refused(given: readonly (readonly Raw[])[], message: string): void {
  assert.throws(() => sets(given), new ValueError(message))
}

describe('readRangeSets()', () => {
  it('fills in gateway, start and end as host-local does', () => {
    const set = only({ subnet: '10.1.0.0/24' })
    assert.equal(named(set), '10.1.0.1-10.1.0.254')
    assert.deepEqual([...set.gateways], ['10.1.0.1'])
    assert.equal(named(only({ subnet: 'fd00::/120' })), 'fd00::1-fd00::ff')
    assert.equal(
      named(only({ subnet: '10.1.0.0/24', rangeStart: '10.1.0.20', rangeEnd: '10.1.0.30' }, { subnet: '10.2.0.0/24' })),
      '10.1.0.20-10.1.0.30,10.2.0.1-10.2.0.254',
    )
    assert.deepEqual([...only({ subnet: '10.1.0.0/24', gateway: '192.0.2.1' }).gateways], ['192.0.2.1'])
  })

  it('takes a rangeEnd that is the broadcast address, as podman writes it, and a rangeStart that is the network, and gives out neither', () => {
    assert.equal(
      named(only({ subnet: '10.1.0.0/24', rangeStart: '10.1.0.0', rangeEnd: '10.1.0.255' })),
      '10.1.0.1-10.1.0.254',
    )
  })

  it('names the key, the value and what would be right', () => {
    refused([[]], 'Cannot read ipam.ranges[0] []: want at least one range')
    refused(
      [[{ subnet: '10.1.0.5/24' }]],
      'Cannot read ipam.ranges[0][0].subnet "10.1.0.5/24": want a network without host bits, here 10.1.0.0/24',
    )
    refused(
      [[{ subnet: '10.2.0.0/24' }, { subnet: '10.2.0.0/24', rangeEnd: '10.1.0.9' }]],
      'Cannot read ipam.ranges[0][1].rangeEnd "10.1.0.9": want an address in 10.2.0.0/24',
    )
    refused(
      [[{ subnet: '10.2.0.0/24', rangeStart: 'fd00::1' }]],
      'Cannot read ipam.ranges[0][0].rangeStart "fd00::1": want an address in 10.2.0.0/24',
    )
    refused(
      [[{ subnet: '10.2.0.0/24', rangeStart: '10.2.0.9', rangeEnd: '10.2.0.8' }]],
      'Cannot read ipam.ranges[0][0].rangeEnd "10.2.0.8": want an address not before rangeStart, 10.2.0.9',
    )
    refused(
      [[{ subnet: '10.1.0.0/24' }, { subnet: 'fd00::/64' }]],
      'Cannot read ipam.ranges[0][1].subnet "fd00::/64": want IPv4 as in ipam.ranges[0][0]; a set gives one address',
    )
    refused(
      [[{ subnet: '10.1.0.0/29', rangeStart: '10.1.0.7' }]],
      'Cannot read ipam.ranges[0] (10.1.0.0/29): want a range that holds more than its gateway, network and broadcast address',
    )
    refused(
      [[{ subnet: '10.1.0.0/29', rangeEnd: '10.1.0.1' }]],
      'Cannot read ipam.ranges[0] (10.1.0.0/29): want a range that holds more than its gateway, network and broadcast address',
    )
  })

  it('refuses ranges that overlap, inside a set and between sets', () => {
    const overlap =
      'Cannot read ipam.ranges[0][1] (10.1.0.20-10.1.0.254): want a range that does not overlap ipam.ranges[0][0] (10.1.0.1-10.1.0.20)'
    refused(
      [
        [
          { subnet: '10.1.0.0/24', rangeEnd: '10.1.0.20' },
          { subnet: '10.1.0.0/24', rangeStart: '10.1.0.20' },
        ],
      ],
      overlap,
    )
    refused(
      [[{ subnet: 'fd00::/64' }], [{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/120' }]],
      'Cannot read ipam.ranges[2][0] (fd00::1-fd00::ff): want a range that does not overlap ipam.ranges[0][0] (fd00::1-fd00::ffff:ffff:ffff:ffff)',
    )
    assert.equal(
      sets([
        [{ subnet: '10.1.0.0/24', rangeEnd: '10.1.0.20' }],
        [{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.21' }],
        [{ subnet: '::a01:0/120' }],
      ]).length,
      3,
    )
  })

  it('refuses networks too small to allocate from, but a /31 or /127 on request', () => {
    refused(
      [[{ subnet: '10.1.0.0/31' }]],
      'Cannot read ipam.ranges[0][0].subnet "10.1.0.0/31": want a /30 or wider, it is too small to allocate from; with rangeStart or rangeEnd both its addresses count',
    )
    refused(
      [[{ subnet: '10.1.0.1/32', rangeStart: '10.1.0.1' }]],
      'Cannot read ipam.ranges[0][0].subnet "10.1.0.1/32": want a /30 or wider, it is too small to allocate from',
    )
    refused(
      [[{ subnet: 'fd00::/128' }]],
      'Cannot read ipam.ranges[0][0].subnet "fd00::/128": want a /126 or wider, it is too small to allocate from',
    )
    const pair = (raw: Raw, ...wanted: string[]) =>
      sets([[raw]], wanted).map((set) => ({ gives: walk(set), gateway: set.ranges[0]?.gateway }))
    assert.deepEqual(pair({ subnet: '10.1.0.0/31', rangeStart: '10.1.0.0' }), [
      { gives: ['10.1.0.0'], gateway: '10.1.0.1' },
    ])
    assert.deepEqual(pair({ subnet: '10.1.0.0/31', rangeStart: '10.1.0.1' }), [
      { gives: ['10.1.0.1'], gateway: '10.1.0.0' },
    ])
    assert.deepEqual(pair({ subnet: '10.1.0.0/31', rangeStart: '10.1.0.0', gateway: '192.0.2.1' }), [
      { gives: ['10.1.0.0', '10.1.0.1'], gateway: '192.0.2.1' },
    ])
    assert.deepEqual(pair({ subnet: '10.1.0.0/31' }, '10.1.0.1'), [{ gives: ['10.1.0.1'], gateway: '10.1.0.0' }])
    assert.deepEqual(pair({ subnet: 'fd00::/127' }, 'fd00::'), [{ gives: ['fd00::'], gateway: 'fd00::1' }])
  })
})

describe('search()', () => {
  it('goes round all ranges of a set once, from behind the address given last, over gateways and borders', () => {
    const set = only({ subnet: '10.1.0.0/29' }, { subnet: '10.2.0.0/29', rangeStart: '10.2.0.4', gateway: '10.2.0.5' })
    assert.deepEqual(walk(set, '10.1.0.5' as Ip), [
      '10.1.0.6',
      '10.2.0.4',
      '10.2.0.6',
      '10.1.0.2',
      '10.1.0.3',
      '10.1.0.4',
      '10.1.0.5',
    ])
    assert.deepEqual(walk(set, '10.2.0.6' as Ip), [
      '10.1.0.2',
      '10.1.0.3',
      '10.1.0.4',
      '10.1.0.5',
      '10.1.0.6',
      '10.2.0.4',
      '10.2.0.6',
    ])
    assert.deepEqual(walk(set, '192.0.2.1' as Ip), walk(set))
  })

  it("skips a gateway that lies in another set's range", () => {
    const [first] = sets([
      [{ subnet: '10.1.0.0/24', rangeEnd: '10.1.0.4' }],
      [{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.9', gateway: '10.1.0.3' }],
    ])
    assert.deepEqual(walk(first as RangeSet), ['10.1.0.2', '10.1.0.4'])
  })

  it('starts a /64 at once', () => {
    assert.equal(
      search(only({ subnet: 'fd00::/64' }), 'fd00::ffff' as Ip, () => true),
      'fd00::1:0',
    )
  })

  // A range in one of eight disjoint networks of a family, its bounds anywhere in that network.
  const oneOf = (family: 4 | 6) => {
    const text = (n: bigint) =>
      family === 4
        ? Address4.fromBigInt(0x0a000000n + n).correctForm()
        : Address6.fromBigInt((0xfd00n << 112n) + n).correctForm()
    const width = family === 4 ? 32 : 128
    return fc
      .tuple(
        fc.integer({ min: 0, max: 7 }),
        fc.integer({ min: 2, max: 7 }),
        fc.option(fc.nat(127)),
        fc.option(fc.nat(127)),
        fc.option(fc.nat(255)),
      )
      .map(([net, bits, start, end, gateway]) => {
        const [base, size] = [BigInt(net) << 8n, 1n << BigInt(bits)]
        const inside = (n: number | null) => (n === null ? undefined : base + (BigInt(n) % size))
        return {
          text,
          base,
          size,
          family,
          length: width - bits,
          net,
          start: inside(start),
          end: inside(end),
          gateway: gateway === null ? undefined : base + BigInt(gateway),
        }
      })
  }
  const setOf = (family: 4 | 6) =>
    fc.uniqueArray(oneOf(family), { minLength: 1, maxLength: 4, selector: ({ net }) => net })

  it('agrees with a naive model, and never gives a gateway, network, broadcast or foreign address, nor one twice', () => {
    fc.assert(
      fc.property(fc.oneof(setOf(4), setOf(6)), fc.nat(), (ranges, turn) => {
        const defined = ranges.map(({ text, base, size, family, start, end, gateway }) => {
          const [low, high] = [base + 1n, family === 4 ? base + size - 2n : base + size - 1n]
          const numbers = Array.from({ length: Number(size) }, (_, i) => base + BigInt(i)).filter(
            (n) => n >= low && n <= high && n >= (start ?? low) && n <= (end ?? high),
          )
          return { numbers: numbers.map(text), gateway: text(gateway ?? base + 1n) }
        })
        const gateways = defined.map(({ gateway }) => gateway)
        const model = defined.flatMap(({ numbers }) => numbers).filter((one) => !gateways.includes(one))
        const raw = ranges.map(
          ({ text, base, length, start, end, gateway }): Raw => ({
            subnet: `${text(base)}/${length}`,
            ...(start === undefined ? {} : { rangeStart: text(start) }),
            ...(end === undefined ? {} : { rangeEnd: text(end) }),
            ...(gateway === undefined ? {} : { gateway: text(gateway) }),
          }),
        )
        const disordered = ranges.some(({ base, size, start, end }) => (start ?? base) > (end ?? base + size - 1n))
        if (disordered || model.length === 0) return void assert.throws(() => only(...raw), ValueError)
        const set = only(...raw)
        assert.deepEqual(walk(set), model)
        assert.equal(capacity(set), BigInt(model.length))
        assert.ok(model.every((one) => rangeOf(set, one as Ip)))
        const at = turn % model.length
        assert.deepEqual(walk(set, model[at] as Ip), [...model.slice(at + 1), ...model.slice(0, at + 1)])
      }),
      { numRuns: 500 },
    )
  })
})

/** Every address that is asked for when none is free, in order. */
function walk(set: RangeSet, after?: Ip): Ip[] {
  const asked: Ip[] = []
  assert.equal(
    search(set, after, (ip) => {
      asked.push(ip)
      return false
    }),
    undefined,
  )
  return asked
}
