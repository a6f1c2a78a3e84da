// lane: quick
// Tests agent/dhcp/message4.ts.
import assert from 'node:assert/strict'
import { associationIn } from '../../../agent/dhcp/association6.ts'
import { fromServer } from '../../../agent/dhcp/frame.ts'
import { decode4, encode4, type Message4, OPTION4, TYPE4 } from '../../../agent/dhcp/message4.ts'
import { decode6 } from '../../../agent/dhcp/message6.ts'
import { namesIn } from '../../../agent/dhcp/names.ts'
import { OPTION6 } from '../../../agent/dhcp/options6.ts'
import { result4 } from '../../../agent/dhcp/result4.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import fc from '../../support/properties.ts'

const chaddr = parse.mac('02:00:00:00:00:05')
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const blob = (max: number) => fc.uint8Array({ maxLength: max })

describe('DHCPv4 messages', () => {
  it('encode4() writes what RFC 2131 has: head, cookie, options in order, end, at least 300 bytes', () => {
    const bytes = encode4({
      type: TYPE4.discover,
      xid: 0xdeadbeef,
      secs: 3,
      broadcast: true,
      chaddr,
      options: new Map([[OPTION4.request, Uint8Array.of(1, 3)]]),
    })
    assert.equal(bytes.length, 300)
    assert.equal(hex(bytes.slice(0, 12)), '01010600deadbeef00038000')
    assert.equal(hex(bytes.slice(28, 34)), '020000000005')
    assert.equal(hex(bytes.slice(236, 248)), '63825363' + '350101' + '37020103' + 'ff')
  })
  it('decode4() gives back what encode4() wrote, options of more than 255 bytes in one piece', () => {
    const codes = fc.integer({ min: 1, max: 254 }).filter((code) => code !== OPTION4.type && code !== OPTION4.overload)
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 0xffffffff }),
        fc.array(fc.tuple(codes, blob(600)), { maxLength: 5 }),
        (xid, list) => {
          const options = new Map(list)
          const bytes = encode4({ type: TYPE4.ack, xid, chaddr, options })
          bytes[0] = 2
          const { options: found, ...rest } = decode4(bytes) as Message4
          assert.deepEqual(rest, { type: TYPE4.ack, xid, chaddr })
          assert.deepEqual(new Map([...found].filter(([code]) => code !== OPTION4.type)), options)
        },
      ),
    )
  })
  it('decode4() reads options that overflow into the fields of file and server name (option 52)', () => {
    const bytes = encode4({
      type: TYPE4.offer,
      xid: 1,
      chaddr,
      options: new Map([[OPTION4.overload, Uint8Array.of(3)]]),
    })
    bytes[0] = 2
    bytes.set([3, 4, 10, 7, 0, 1, 255], 108)
    bytes.set([6, 4, 10, 7, 0, 53, 255], 44)
    const { options } = decode4(bytes) as Message4
    assert.deepEqual([hex(options.get(3) as Uint8Array), hex(options.get(6) as Uint8Array)], ['0a070001', '0a070035'])
  })
  it('no bytes of a server make the readers throw, loop or give options that are longer than the message', () => {
    fc.assert(
      fc.property(blob(700), fc.boolean(), (noise, isNear) => {
        const near = encode4({ type: TYPE4.offer, xid: 7, chaddr, options: new Map() })
        const bytes = isNear ? Uint8Array.from([2, ...near.slice(1, 240), ...noise]) : noise
        for (const [, value] of decode4(bytes)?.options ?? []) assert.ok(value.length <= bytes.length)
        for (const [, value] of decode6(noise)?.options ?? []) assert.ok(value.length <= noise.length)
        fromServer(noise)
        namesIn(noise)
        associationIn([[OPTION6.association, noise]], 1)
        const address = '10.7.0.5/24' as Cidr
        const options = Object.fromEntries(
          [1, 3, 6, 15, 26, 33, 119, 121].map((code) => [code, Buffer.from(noise).toString('base64')]),
        )
        const { routes = [], dns } = result4({ address, options })
        for (const { dst } of routes) assert.match(dst, /^\d+\.\d+\.\d+\.\d+\/\d+$/)
        assert.doesNotMatch(JSON.stringify(dns?.search ?? []), /\\n|\\u0000|[ ;]/)
      }),
      { numRuns: 1500 },
    )
  })
})
