// lane: quick
// Tests agent/dhcp/names.ts.
import assert from 'node:assert/strict'
import { namesIn } from '../../../agent/dhcp/names.ts'

describe('names in DHCP options', () => {
  it('namesIn() follows pointers, and not in circles', () => {
    const label = (text: string) => [text.length, ...Buffer.from(text)]
    assert.deepEqual(namesIn(Uint8Array.from([...label('a'), ...label('example'), 0, ...label('b'), 0xc0, 0])), [
      'a.example',
      'b.a.example',
    ])
    assert.deepEqual(namesIn(Uint8Array.from([...label('ok'), 0, 0xc0, 4])), ['ok'])
  })
})
