// lane: timed
// Tests agent/state/summary.ts: what it costs.
import assert from 'node:assert/strict'
import { Recorder } from '../../../agent/state/recorder.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { summaryOf } from '../../../agent/state/summary.ts'
import { peers, scripted } from '../../support/scripted.ts'

const START = Date.UTC(2026, 10, 1, 12, 0, 0)
const ZONES = ['a', 'b', 'c']
function inZones(count: number): Peer[] {
  return peers(count).map((peer, i) => ({ ...peer, zone: ZONES[i % 3] as string }))
}

describe('the time of summaryOf()', () => {
  it('takes a few milliseconds with 5,000 peers', () => {
    const status = scripted({ peers: inZones(5000) }).status()
    const recorder = new Recorder(() => START)
    const rows = [...recorder.record(status).values()]
    const times = Array.from({ length: 9 }, () => {
      const begun = performance.now()
      summaryOf(status, rows, recorder, { now: START, withRow: true })
      return performance.now() - begun
    })
    const best = Math.min(...times)
    assert.ok(best < 50, `${best} ms`)
  })
})
