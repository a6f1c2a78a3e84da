// lane: quick
// Tests agent/dhcp.
import assert from 'node:assert/strict'
import { associationIn, encodeAssociation } from '../../../agent/dhcp/association6.ts'
import { bytesOf, joined } from '../../../agent/dhcp/bytes.ts'
import { fromServer, toServer } from '../../../agent/dhcp/frame.ts'
import { decode4, encode4, type Message4, OPTION4, TYPE4 } from '../../../agent/dhcp/message4.ts'
import { decode6, encode6, TYPE6 } from '../../../agent/dhcp/message6.ts'
import { namesIn } from '../../../agent/dhcp/names.ts'
import { OPTION6 } from '../../../agent/dhcp/options6.ts'
import { result4 } from '../../../agent/dhcp/result4.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import fc from '../../support/properties.ts'

const chaddr = parse.mac('02:00:00:00:00:05')
const [A, B] = ['10.7.0.5' as Ip, '10.7.0.1' as Ip]
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

describe('packets', () => {
  it('toServer() makes what fromServer() of the other end reads, for both families, with right checksums', () => {
    fc.assert(
      fc.property(
        blob(300),
        fc.constantFrom<[Ip, Ip]>([A, B], ['fe80::1' as Ip, 'ff02::1:2' as Ip]),
        (payload, [from, to]) => {
          const packet = toServer({ from, to }, payload)
          const head = packet[0] === 0x45 ? 20 : 40
          // The sum over pseudo header and datagram, its own checksum in it, is all ones (RFC 1071).
          const udp = packet.slice(head)
          assert.equal(sum(joined(bytesOf(from), bytesOf(to), [udp.length, 4], [17, 4], udp)), 0xffff)
          if (head === 20) assert.equal(sum(packet.slice(0, 20)), 0xffff)
          const [client, server] = head === 20 ? [68, 67] : [546, 547]
          assert.deepEqual(
            [(udp[0] as number) * 256 + (udp[1] as number), (udp[2] as number) * 256 + (udp[3] as number)],
            [client, server],
          )
          udp.set([client >> 8, client & 255], 2)
          const answer = fromServer(joined(packet.slice(0, head), udp, new Uint8Array(5)))
          assert.deepEqual(answer, { from, to, payload })
          assert.equal(fromServer(packet.slice(0, -1)), undefined)
        },
      ),
    )
  })
})

describe('options in results', () => {
  const given = (options: Readonly<Record<number, readonly number[]>>) =>
    result4({
      address: '10.7.0.5/24' as Cidr,
      options: Object.fromEntries(
        Object.entries(options).map(([code, bytes]) => [code, Buffer.from(bytes).toString('base64')]),
      ),
    })

  it('result4() reads classless routes of every length, and ends at what is cut short or longer than an address', () => {
    const { routes } = given({
      121: [0, 10, 7, 0, 1, 32, 192, 0, 2, 9, 0, 0, 0, 0, 17, 172, 16, 255, 10, 7, 0, 2, 33, 1],
      3: [10, 7, 0, 9],
      33: [192, 168, 5, 0, 10, 7, 0, 2],
    })
    assert.deepEqual(routes, [
      { dst: '0.0.0.0/0', gw: '10.7.0.1' },
      { dst: '192.0.2.9/32', scope: 253 },
      { dst: '172.16.128.0/17', gw: '10.7.0.2' },
    ])
  })

  it('result4() leaves out an MTU below 68, a domain that is no name, and half an address', () => {
    assert.deepEqual(given({ 3: [10, 7, 0, 1, 9], 26: [0, 67], 15: [...Buffer.from('a b\n')], 6: [10, 7] }), {
      ips: [{ address: '10.7.0.5/24', gateway: '10.7.0.1' }],
      routes: [{ dst: '0.0.0.0/0', gw: '10.7.0.1' }],
    })
  })

  it('namesIn() follows pointers, and not in circles', () => {
    const label = (text: string) => [text.length, ...Buffer.from(text)]
    assert.deepEqual(namesIn(Uint8Array.from([...label('a'), ...label('example'), 0, ...label('b'), 0xc0, 0])), [
      'a.example',
      'b.a.example',
    ])
    assert.deepEqual(namesIn(Uint8Array.from([...label('ok'), 0, 0xc0, 4])), ['ok'])
  })
})

describe('DHCPv6 messages', () => {
  it('decode6() gives back what encode6() wrote', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 0xffffff }),
        fc.array(fc.tuple(fc.integer({ min: 1, max: 0xffff }), blob(200)), { maxLength: 6 }),
        (xid, options) => {
          assert.deepEqual(decode6(encode6({ type: TYPE6.reply, xid, options })), { type: TYPE6.reply, xid, options })
        },
      ),
    )
  })

  it('associationIn() takes the first address that is still valid, of the right association', () => {
    const address = (last: number, valid: number) =>
      joined([OPTION6.address, 2], [24, 2], bytesOf(`fd07::${last}` as Ip), [100, 4], [valid, 4])
    const value = joined([1, 4], [50, 4], [80, 4], address(1, 0), address(2, 200))
    const expected = { address: 'fd07::2', preferred: 100, valid: 200, t1: 50, t2: 80, status: 0 }
    assert.deepEqual(
      associationIn(
        [
          [OPTION6.association, encodeAssociation(2)],
          [OPTION6.association, value],
        ],
        1,
      ),
      expected,
    )
    assert.equal(associationIn([[OPTION6.association, value]], 3), undefined)
    const none = joined([1, 4], [0, 4], [0, 4], [OPTION6.status, 2], [2, 2], [2, 2])
    assert.equal(associationIn([[OPTION6.association, none]], 1)?.status, 2)
  })
})

function sum(bytes: Uint8Array): number {
  let all = 0
  for (let i = 0; i < bytes.length; i += 2) all += (bytes[i] as number) * 256 + (bytes[i + 1] ?? 0)
  while (all > 0xffff) all = (all & 0xffff) + Math.floor(all / 0x10000)
  return all
}
