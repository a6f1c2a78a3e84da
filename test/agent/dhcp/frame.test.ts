// lane: quick
// Tests agent/dhcp/frame.ts.
import assert from 'node:assert/strict'
import { bytesOf, joined } from '../../../agent/dhcp/bytes.ts'
import { fromServer, toServer } from '../../../agent/dhcp/frame.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

const [A, B] = ['10.7.0.5' as Ip, '10.7.0.1' as Ip]
const blob = (max: number) => fc.uint8Array({ maxLength: max })

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

function sum(bytes: Uint8Array): number {
  let all = 0
  for (let i = 0; i < bytes.length; i += 2) all += (bytes[i] as number) * 256 + (bytes[i + 1] ?? 0)
  while (all > 0xffff) all = (all & 0xffff) + Math.floor(all / 0x10000)
  return all
}
