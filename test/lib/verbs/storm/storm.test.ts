// lane: storm
// Tests lib/verbs, lib/journal and lib/pools under storms of calls.
import assert from 'node:assert/strict'
import { inNamespaces } from '../../../support/harness.ts'
import { spread } from './calls.ts'
import { storm } from './storm.ts'

const SEED = Number(process.env['PLUMB_SEED'] ?? 7)

describe('a storm', () => {
  it(
    'of 5,000 ADDs and DELs from 64 processes on a /16, one bridge and another, with host ports: nothing is given twice, nothing is left, no call fails without a reason, and none waits long behind others',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(3_600_000)
      const { model, ms, calls, seconds, most } = await storm(node, { calls: 5000, workers: 64, slots: 14, seed: SEED })
      process.stdout.write(
        `storm: seed ${SEED}, ${calls} calls in ${seconds.toFixed(1)} s, ${(calls / seconds).toFixed(1)} a second, ${most} pods at most, failed as foreseen ${JSON.stringify(model.foreseen)}\n`,
      )
      for (const [what, times] of ms) process.stdout.write(`storm: ${what} ms ${JSON.stringify(spread(times))}\n`)
      assert.deepEqual(model.wrong, [])
      assert.ok(calls >= 5000, `${calls} calls`)
      for (const [what, times] of ms) {
        const { median, longest } = spread(times)
        if (what.endsWith('ADD')) assert.ok(longest <= 20 * median, `${what}: ${longest} ms against ${median} ms`)
      }
    }),
  )
})
