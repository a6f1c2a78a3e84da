// lane: quick
// Tests cli/output.ts.
import assert from 'node:assert/strict'
import { laidOut } from '../../cli/output.ts'
import fc from '../support/properties.ts'

describe('laidOut()', () => {
  const shown = (text: string, columns: number) => laidOut(text, { columns, isColoured: false })

  it('breaks sentences between words, below the last column of a table, and leaves commands and long words whole', () => {
    assert.equal(
      shown('error DR1: one two three four\n  sysctl -w net.ipv4.ip_forward=1', 20),
      ['error DR1: one two', '  three four', '  sysctl -w net.ipv4.ip_forward=1'].join('\n'),
    )
    assert.equal(
      shown('uplink  eth0: it has the default route', 24),
      ['uplink  eth0: it has the', '        default route'].join('\n'),
    )
    assert.equal(
      shown('  see /a/very/long/path/of/a/file now', 12),
      ['  see', '    /a/very/long/path/of/a/file', '    now'].join('\n'),
    )
    assert.equal(shown('short\n\nshort', 5), 'short\n\nshort')
  })
  it('loses no word at any width', () => {
    const words = (text: string) => text.split(/\s+/).filter(Boolean)
    fc.assert(
      fc.property(
        fc.array(fc.stringMatching(/^ {0,4}[a-z]{1,12}( {1,3}[a-z]{1,30}){0,9}$/)),
        fc.integer({ min: 1, max: 90 }),
        (lines, columns) => {
          const text = lines.join('\n')
          assert.deepEqual(words(shown(text, columns)), words(text))
        },
      ),
    )
  })
  it('colours severity at its place alone', () => {
    const look = { columns: 80, isColoured: true }
    assert.equal(laidOut('error DR1: x\nthe error is y', look), '\x1b[31merror\x1b[0m DR1: x\nthe error is y')
    assert.equal(laidOut('a is ready', look), 'a \x1b[32mis ready\x1b[0m')
  })
})
