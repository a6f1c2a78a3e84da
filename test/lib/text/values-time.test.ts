// lane: timed
// Tests lib/text/values.ts: what it costs.
import assert from 'node:assert/strict'
import { brief, parse } from '../../../lib/text/values.ts'

const TEN_MB = 'a'.repeat(1e7)

describe('the time of parse', () => {
  it('10 MB are refused or kept short, at once', () => {
    const started = performance.now()
    for (const one of ['ifname', 'netns', 'mac'] as const)
      assert.throws(
        () => parse[one](TEN_MB),
        ({ message }: Error) => message.length < 300,
      )
    assert.throws(
      () => parse.network(`${TEN_MB}\n`),
      ({ message }: Error) => message.length < 300,
    )
    // The spec sets names no limit; what is made of them has one.
    assert.equal(brief(parse.network(TEN_MB)).length, 33)
    assert.ok(performance.now() - started < 20_000)
  })
})
