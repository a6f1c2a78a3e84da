// lane: quick
// Tests lib/text/ip.ts and lib/text/cidr.ts together: what one reads, the other computes with.
import assert from 'node:assert/strict'
import { Address4, Address6 } from 'ip-address'
import { contains, isSix, networkOf } from '../../../lib/text/cidr.ts'
import { bitsOf, format, parseCidr, parseIp, split } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

const v4 = fc.bigInt({ min: 0n, max: 2n ** 32n - 1n })
// Runs of zeros, where RFC 5952 has its rules, are rare among random numbers.
const v6 = fc.oneof(
  fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }),
  fc
    .array(fc.constantFrom(0n, 0n, 1n, 0xabcdn), { minLength: 8, maxLength: 8 })
    .map((groups) => groups.reduce<bigint>((sum, group) => (sum << 16n) | group, 0n)),
)
const mapped = (bits: bigint) => bits >> 32n === 0xffffn

describe('parseIp()', () => {
  it('reads and writes every IPv4 address as ip-address does', () => {
    fc.assert(
      fc.property(v4, (bits) => {
        const text = Address4.fromBigInt(bits).correctForm()
        assert.equal(parseIp(text), text)
        assert.deepEqual(bitsOf(parseIp(text)), { family: 4, bits })
      }),
    )
  })
  it('reads every form of an IPv6 address that ip-address writes, and writes it as RFC 5952 says', () => {
    fc.assert(
      fc.property(v6, (bits) => {
        const address = Address6.fromBigInt(bits)
        for (const text of [address.correctForm(), address.canonicalForm(), address.correctForm().toUpperCase()]) {
          assert.deepEqual(
            bitsOf(parseIp(text)),
            mapped(bits) ? { family: 4, bits: bits & 0xffffffffn } : { family: 6, bits },
          )
          if (!mapped(bits)) assert.equal(parseIp(text), address.correctForm())
        }
      }),
      { numRuns: 1000 },
    )
  })
  it('reads an IPv4-mapped address as the IPv4 address, as Go does, and the dotted tail of others', () => {
    assert.equal(parseIp('::ffff:10.1.0.2'), '10.1.0.2')
    assert.equal(parseIp('::ffff:a01:2'), '10.1.0.2')
    assert.equal(parseIp('64:ff9b::10.1.0.2'), '64:ff9b::a01:2')
  })
  it('refuses what ip-address refuses, and accepts nothing that it refuses', () => {
    const likely = fc.oneof(
      fc.string({ maxLength: 50 }),
      fc.stringMatching(/^[0-9a-f:.]{0,46}$/),
      fc.array(fc.nat(400), { minLength: 1, maxLength: 6 }).map((parts) => parts.join('.')),
      v6
        .map((bits) => Address6.fromBigInt(bits).correctForm())
        .chain((text) => fc.nat(text.length).map((at) => text.slice(0, at) + text.slice(at + 1))),
    )
    fc.assert(
      fc.property(likely, (text) => {
        const valid = !/[/%]/.test(text) && (Address4.isValid(text) || Address6.isValid(text))
        if (!valid) assert.throws(() => parseIp(text), { name: 'ValueError' })
        else
          assert.equal(
            bitsOf(parseIp(text)).bits,
            Address4.isValid(text)
              ? new Address4(text).bigInt()
              : new Address6(text).bigInt() & (mapped(new Address6(text).bigInt()) ? 0xffffffffn : (1n << 128n) - 1n),
          )
      }),
      { numRuns: 20_000 },
    )
  })
  it('refuses leading zeros, short forms, zones, blanks and what is no text, showing the value', () => {
    for (const value of [
      '010.1.0.2',
      '10.1.2',
      '10.1.0.256',
      '0x0a.1.0.2',
      '167837698',
      'fe80::1%eth0',
      ' 10.1.0.2',
      '10.1.0.2\n',
      '10.1.0.2\0',
      '1::2::3',
      ':::',
      ':1:2:3:4:5:6:7',
      '1:2:3:4:5:6:7:8:9',
      '::12345',
      '',
      null,
      undefined,
      7,
      {},
      ['10.1.0.2'],
    ]) {
      assert.throws(() => parseIp(value), {
        name: 'ValueError',
        message: `${JSON.stringify(value) ?? 'undefined'}: want an IP address such as 10.1.0.2 or fd00::2`,
      })
    }
  })
})

describe('parseCidr(), split(), networkOf(), contains()', () => {
  it('agree with ip-address on every IPv4 network', () => {
    fc.assert(
      fc.property(v4, fc.integer({ min: 0, max: 32 }), v4, (bits, length, other) => {
        const text = `${Address4.fromBigInt(bits).correctForm()}/${length}`
        const cidr = parseCidr(text)
        const oracle = new Address4(text)
        assert.equal(cidr, text)
        const { ip, first, last } = split(cidr)
        assert.deepEqual(
          [ip, first, last],
          [oracle.correctForm(), oracle.startAddress().bigInt(), oracle.endAddress().bigInt()],
        )
        assert.equal(networkOf(cidr), `${oracle.startAddress().correctForm()}/${length}`)
        assert.equal(contains(cidr, format({ family: 4, bits: other })), Address4.fromBigInt(other).isInSubnet(oracle))
      }),
    )
  })
  it('agree with ip-address on every IPv6 network', () => {
    fc.assert(
      fc.property(
        v6.filter((bits) => !mapped(bits)),
        fc.integer({ min: 0, max: 128 }),
        v6.filter((bits) => !mapped(bits)),
        (bits, length, other) => {
          const text = `${Address6.fromBigInt(bits).correctForm()}/${length}`
          const cidr = parseCidr(text)
          const oracle = new Address6(text)
          const { first, last } = split(cidr)
          assert.deepEqual([first, last], [oracle.startAddress().bigInt(), oracle.endAddress().bigInt()])
          assert.equal(
            contains(cidr, format({ family: 6, bits: other })),
            Address6.fromBigInt(other).isInSubnet(oracle),
          )
          assert.ok(contains(cidr, format({ family: 6, bits })))
        },
      ),
    )
  })
  it('contains() is false across families, isSix() tells them apart', () => {
    assert.equal(contains(parseCidr('0.0.0.0/0'), parseIp('::1')), false)
    assert.equal(contains(parseCidr('::/0'), parseIp('10.1.0.1')), false)
    assert.deepEqual([isSix(parseCidr('::/0')), isSix(parseIp('10.1.0.1'))], [true, false])
  })
  it('refuse lengths that are none, and mixed up values', () => {
    for (const text of [
      '10.1.0.0',
      '10.1.0.0/',
      '10.1.0.0/33',
      '10.1.0.0/024',
      '10.1.0.0/-1',
      '10.1.0.0/2.5',
      '10.1.0.0/24/24',
      '10.1.0.0 /24',
      '10.1.0.0/24\n',
      'fd00::/129',
      'fd00::/64 ',
      '/24',
      'a/24',
      null,
      24,
    ])
      assert.throws(
        () => parseCidr(text),
        { name: 'ValueError', message: /: want an address with a prefix length such as/ },
        String(text),
      )
  })
  it('keep host bits, which networkOf() clears', () => {
    assert.deepEqual(
      [
        parseCidr('10.1.2.3/16'),
        networkOf(parseCidr('10.1.2.3/16')),
        parseCidr('FD00::5/64'),
        networkOf(parseCidr('fd00::5/64')),
      ],
      ['10.1.2.3/16', '10.1.0.0/16', 'fd00::5/64', 'fd00::/64'],
    )
  })
  // An IPv4-mapped network: Go's net.ParseCIDR keeps its length of 128 bits, which no IPv4 address has.
  it('refuse an IPv4-mapped address with an IPv6 length', () => {
    assert.throws(() => parseCidr('::ffff:10.1.0.0/120'), { name: 'ValueError' })
  })
})
