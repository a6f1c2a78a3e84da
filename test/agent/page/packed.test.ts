// lane: quick
// Tests agent/page/packed.ts.
import assert from 'node:assert/strict'
import { deflateRawSync } from 'node:zlib'
import { unpack } from '../../../agent/page/packed.ts'

describe('policies in an address of the page', () => {
  it('are unpacked from an address, and never to more than 32 kB', () => {
    const pack = (text: string | Uint8Array) => deflateRawSync(text).toString('base64url')
    assert.equal(unpack(pack('kind: ä')), 'kind: ä')
    assert.throws(() => unpack(pack('x'.repeat(1_000_000))), /want UTF-8 of 32768 bytes at most/)
    assert.throws(() => unpack('~~~~'), /Cannot unpack/)
    assert.throws(() => unpack(pack(new Uint8Array([0xff, 0xfe]))), /Cannot unpack/)
  })
})
