// Tests agent/kernel/pauses.ts.
import assert from 'node:assert/strict'
import { pauses } from '../../agent/kernel/pauses.ts'

describe('pauses()', () => {
  it('F7 gives timers of other work a turn after some work, and not before', async () => {
    const pause = pauses()
    let hadTurn = false
    setTimeout(() => {
      hadTurn = true
    }, 0)
    await pause()
    assert.equal(hadTurn, false)
    for (const end = performance.now() + 10; performance.now() < end; );
    await pause()
    assert.equal(hadTurn, true)
  })
})
