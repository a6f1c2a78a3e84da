// lane: quick
// Tests agent/dhcp/message6.ts and association6.ts, which has a part of its messages.
import assert from 'node:assert/strict'
import { associationIn, encodeAssociation } from '../../../agent/dhcp/association6.ts'
import { bytesOf, joined } from '../../../agent/dhcp/bytes.ts'
import { decode6, encode6, TYPE6 } from '../../../agent/dhcp/message6.ts'
import { OPTION6 } from '../../../agent/dhcp/options6.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

const blob = (max: number) => fc.uint8Array({ maxLength: max })

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
