// lane: quick
// Tests agent/services/health.ts.
import assert from 'node:assert/strict'
import { Progress } from '../../../agent/services/health.ts'

describe('the health of the proxy of Services', () => {
  it('is bad before the first load, and when a change waits for more than a minute', async () => {
    let now = 0
    const progress = new Progress(() => now)
    assert.equal(progress.isHealthy, false)
    await progress.during(async () => {})
    assert.equal(progress.isHealthy, true)
    now += 3_600_000
    assert.equal(progress.isHealthy, true)
    progress.changed()
    now += 59_999
    progress.changed()
    assert.equal(progress.isHealthy, true)
    assert.equal(progress.lastUpdated.getTime(), now)
    now += 1
    assert.equal(progress.isHealthy, false)
    assert.equal(progress.lastUpdated.getTime(), 0)
    await progress.during(async () => {})
    assert.equal(progress.isHealthy, true)
  })

  it('a failed load counts from the first change that still waits', async () => {
    let now = 0
    const progress = new Progress(() => now)
    await progress.during(async () => {})
    progress.changed()
    now += 50_000
    await assert.rejects(progress.during(() => Promise.reject(new Error('nft'))))
    assert.equal(progress.isHealthy, true)
    now += 10_000
    assert.equal(progress.isHealthy, false)
  })

  it('a change during a load waits for the next one', async () => {
    let now = 0
    const progress = new Progress(() => now)
    await progress.during(async () => progress.changed())
    now += 60_000
    assert.equal(progress.isHealthy, false)
  })
})
