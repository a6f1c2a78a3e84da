// lane: quick
// Tests cli/sysdump/stand-ins.ts.
import assert from 'node:assert/strict'
import { StandIns } from '../../../cli/sysdump/stand-ins.ts'
import { bitsOf, type Ip } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

/** First bytes of addresses that stay, or whose stand-ins may be such addresses. */
const SPECIAL = /^(0|127|22[4-9]|23\d|255|169)\./

describe('StandIns', () => {
  const v4 = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)).map((parts) => parts.join('.'))

  it('gives an address one stand-in, other than any other’s, and keeps common prefixes of it', () => {
    fc.assert(
      fc.property(v4, v4, (one, other) => {
        const standIns = new StandIns()
        const [first = '', second = '', third] =
          standIns.text(`${one} x [${other}]:80 ${one}`).match(/\d+(\.\d+){3}/g) ?? []
        assert.equal(first, third)
        assert.equal(first === second, one === other)
        if (!SPECIAL.test(one)) assert.notEqual(first, one)
        if (!SPECIAL.test(one) && !SPECIAL.test(other)) assert.equal(shared(first, second), shared(one, other))
      }),
      { numRuns: 500 },
    )
  })
  it('keeps routes readable: the address of a network is one, and its addresses lie in it', () => {
    const text = new StandIns().text(
      '10.244.0.0/16 10.244.7.0/24 via 10.244.7.1 fd00:10:244::/48 fd00:10:244:7::/64 fd00:10:244:7::1 10.96.0.0/12',
    )
    const [wide = '', net = '', gateway = '', wide6 = '', net6 = '', gateway6 = ''] = text
      .replace('via ', '')
      .split(' ')
    assert.match(wide, /^10\.\d+\.0\.0\/16$/)
    assert.match(net, /^10\.\d+\.\d+\.0\/24$/)
    assert.equal(gateway, net.replace('.0/24', '.1'))
    assert.ok(net.startsWith(wide.replace('.0.0/16', '.')), text)
    assert.ok(gateway6.startsWith(net6.replace('::/64', ':')), text)
    assert.ok(net6.startsWith(wide6.replace('::/48', ':')), text)
    assert.ok(!/244/.test(text), text)
  })
  it('keeps addresses that mean the same everywhere, and masks, times and versions', () => {
    const text =
      '0.0.0.0/0 127.0.0.1:80 255.255.255.0 224.0.0.1 169.254.1.1 ::1 ::/0 ff02::1 12:34:56 1.2.3 00:00:00:00:00:00 ff:ff:ff:ff:ff:ff'
    assert.equal(new StandIns().text(text), text)
  })
  it('replaces MAC addresses and names everywhere, the longest first, and a short name only between signs', () => {
    const standIns = new StandIns()
    standIns.name('node', 'worker-1')
    standIns.name('pod', 'shop')
    standIns.name('pod', 'shop-x7')
    standIns.name('namespace', 'x')
    standIns.name('namespace', 'kube-system')
    assert.equal(
      standIns.text(
        'worker-1 a_shop-x7_0 shop x/shop "x" xx kube-system worker-10 02:42:ac:11:00:02 0242.ac11 02:42:AC:11:00:02',
      ),
      'node-1 a_pod-2_0 pod-1 x/pod-1 "namespace-1" xx kube-system worker-10 02:00:00:00:00:01 0242.ac11 02:00:00:00:00:01',
    )
  })
  it('takes any name and any text', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), fc.string({ unit: 'binary' }), (names, text) => {
        const standIns = new StandIns()
        for (const name of names) standIns.name('pod', name)
        const left = standIns.text(`${text} "${names[0] ?? ''}"`)
        assert.equal(typeof left, 'string')
      }),
    )
  })
})

function shared(one: string, other: string): number {
  const different = bitsOf(one as Ip).bits ^ bitsOf(other as Ip).bits
  // The last eight bits stay, so they tell nothing.
  return different === 0n ? 32 : Math.min(24, 32 - different.toString(2).length)
}
