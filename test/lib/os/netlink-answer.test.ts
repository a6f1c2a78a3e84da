// lane: quick
// Tests lib/os/netlink-answer.ts with answers that a kernel gave.
import assert from 'node:assert/strict'
import { NoAnswer, readPiece } from '../../../lib/os/netlink-answer.ts'

/** The addresses 127.0.0.1, 10.1.0.2 and ::1 of lo, by Linux 6.18, one message a line. */
const ADDRESSES = [
  '4c0000001400020000000000524d0000020880fe01000000080001007f000001080002007f000001070003006c6f0000080008008000000014000600ffffffffffffffff626a0200626a0200',
  '4c0000001400020000000000524d00000218800001000000080001000a010002080002000a010002070003006c6f0000080008008000000014000600ffffffffffffffff646a0200646a0200',
  '500000001400020000000000524d00000a8080fe01000000140001000000000000000000000000000000000114000600ffffffffffffffff626a0200626a0200080008008000000005000b0001000000',
]
/** The end of this list. */
const DONE = '140000000300020000000000524d000000000000'
/** The refusal of a question for a link: ENODEV, then the question. */
const REFUSAL =
  '400000000200000000000000524d0000edffffff2c000000120001000000000000000000000000000000000000000000000000000b000300616273656e740000'
const INTERRUPTED = 0x10

function read(hex: string, list = true): { readonly end: number | string | undefined; readonly count: number } {
  const into: DataView[] = []
  const end = readPiece(new DataView(Buffer.from(hex, 'hex').buffer.slice(0)), list, into)
  return { end, count: into.length }
}

/** The text with other bytes from an offset on. */
function changed(hex: string, at: number, bytes: string): string {
  return hex.slice(0, 2 * at) + bytes + hex.slice(2 * at + bytes.length)
}

describe('readPiece()', () => {
  const all = ADDRESSES.join('')

  it('a list has more until its end, which may come in the same piece', () => {
    assert.deepEqual(read(all), { end: undefined, count: 3 })
    assert.deepEqual(read(DONE), { end: 0, count: 0 })
    assert.deepEqual(read(all + DONE), { end: 0, count: 3 })
  })

  it('a question for one object is answered by one message, or by an errno', () => {
    assert.deepEqual(read(ADDRESSES[0] as string, false), { end: 0, count: 1 })
    assert.deepEqual(read(REFUSAL, false), { end: 19, count: 0 })
    // An acknowledgement (NLM_F_ACK).
    assert.deepEqual(read(changed(REFUSAL, 16, '00000000'), false), { end: 0, count: 0 })
  })

  it('a refusal, or an errno at the end of a list, is told with what came before', () => {
    assert.deepEqual(read(all + changed(DONE, 16, 'feffffff')), { end: 2, count: 3 })
    assert.deepEqual(read(all + changed(REFUSAL, 16, 'ffffffff')), { end: 1, count: 3 })
    // A kernel before 2.6 ends a list without an errno.
    assert.deepEqual(read(`10000000${DONE.slice(8, 32)}`), { end: 0, count: 0 })
  })

  it('ENOMEM, ENOBUFS and EINTR tell nothing about what was asked: the answer is not whole', () => {
    assert.match(String(read(all + changed(DONE, 16, 'f4ffffff')).end), /^ENOMEM/)
    assert.match(String(read(changed(REFUSAL, 16, '97ffffff'), false).end), /^ENOBUFS/)
    assert.match(String(read(changed(REFUSAL, 16, 'fcffffff'), false).end), /^EINTR/)
  })

  it('a list that changed meanwhile (NLM_F_DUMP_INTR) is not whole, whichever message says so', () => {
    const flag = (hex: string) => changed(hex, 6, (0x2 | INTERRUPTED).toString(16).padStart(2, '0'))
    for (const one of [flag(all), all + flag(DONE), ADDRESSES[0] + flag(ADDRESSES[1] as string) + DONE])
      assert.match(String(read(one).end), /changed/)
  })

  it('a piece that is cut off anywhere is not whole, except between two messages, where the end is missing', () => {
    const whole = all + DONE
    const ends = new Set([76, 152, 232])
    for (let length = 1; length < whole.length / 2; length++) {
      const { end } = read(whole.slice(0, 2 * length))
      if (ends.has(length)) assert.equal(end, undefined)
      else assert.match(String(end), /cut off/, `${length} bytes`)
    }
    assert.match(String(read(changed(all, 0, '00000000')).end), /cut off/)
    // NLMSG_OVERRUN.
    assert.match(String(read(changed(all, 4, '0400')).end), /lost/)
  })
})

describe('NoAnswer', () => {
  const request = (type: number) => {
    const bytes = new Uint8Array(16)
    new DataView(bytes.buffer).setUint16(4, type, true)
    return bytes
  }

  it('names what could not be found out, and why', () => {
    assert.equal(
      new NoAnswer(0, request(22), 'ENOBUFS (no buffer space available)').message,
      "Cannot find out the addresses of links: the kernel's answer did not come whole: ENOBUFS (no buffer space available)",
    )
    const refused = new NoAnswer(12, request((10 << 8) | 1), 1)
    assert.equal(refused.message, 'Cannot find out the nft tables: the kernel refuses: EPERM (operation not permitted)')
    assert.deepEqual([refused.code, refused.errno], [5, 1])
  })
})
