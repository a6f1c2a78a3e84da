// lane: quick
// Tests agent/kernel/pauses.ts.
import assert from 'node:assert/strict'
import { pauses } from '../../../agent/kernel/pauses.ts'

/** On a busy machine, the time for some work may pass between two lines. */
const ATTEMPTS = 50

describe('pauses()', () => {
  it('gives timers of other work a turn after some work, and not before', async () => {
    let [pause, hadTurn] = [pauses(), true]
    for (let i = 0; i < ATTEMPTS && hadTurn; i++) {
      pause = pauses()
      hadTurn = false
      setTimeout(() => {
        hadTurn = true
      }, 0)
      await pause()
    }
    assert.equal(hadTurn, false)
    for (const end = performance.now() + 10; performance.now() < end; );
    await pause()
    assert.equal(hadTurn, true)
  })
})
