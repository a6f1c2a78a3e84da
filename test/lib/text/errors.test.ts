// lane: quick
// Tests lib/text/errors.ts.
import assert from 'node:assert/strict'
import { shown } from '../../../lib/text/errors.ts'
import fc from '../../support/properties.ts'

const TEN_MB = 'a'.repeat(1e7)

describe('shown()', () => {
  it('gives a value on one line, quoted and cut', () => {
    assert.deepEqual(
      [shown('a\n"b"'), shown(7), shown(undefined), shown(null), shown({ a: [1] })],
      ['"a\\n\\"b\\""', '7', 'undefined', 'null', '{"a":[1]}'],
    )
    fc.assert(fc.property(fc.anything(), (value) => assert.ok(shown(value).length <= 80)))
    assert.ok(shown(TEN_MB).length <= 80)
  })
})
