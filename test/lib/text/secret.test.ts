// lane: quick
// Tests lib/text/secret.ts.
import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { Secret } from '../../../lib/text/secret.ts'

describe('Secret', () => {
  it('shows its text nowhere, and tells equal ones apart from others', () => {
    const secret = new Secret('hush')
    for (const text of [JSON.stringify({ secret }), `${secret}`, inspect(secret), inspect({ a: [secret] })])
      assert.doesNotMatch(text, /hush/)
    assert.equal(new Secret('hush').id, secret.id)
    assert.notEqual(new Secret('hash').id, secret.id)
  })
})
