// lane: timed
// Tests lib/text/ip.ts: what it costs.
import assert from 'node:assert/strict'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'

describe('the time of parseIp() and parseCidr()', () => {
  it('refuses 10 MB at once, with a message that stays short', () => {
    for (const text of ['1'.repeat(1e7), ':'.repeat(1e7), '1.'.repeat(5e6), 'a'.repeat(1e7)]) {
      const started = performance.now()
      assert.throws(
        () => parseIp(text),
        ({ message }: Error) => message.length < 200,
      )
      assert.throws(
        () => parseCidr(`${text}/24`),
        ({ message }: Error) => message.length < 200,
      )
      assert.ok(performance.now() - started < 20_000)
    }
  })
})
