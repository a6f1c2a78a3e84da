// lane: netns
// Tests lib/journal and lib/pools under many calls at once.
import assert from 'node:assert/strict'
import { inNamespaces } from '../../../support/harness.ts'
import { storm } from './storm.ts'

// A sample; `npm run test:storm` is the whole of it.
describe('a small storm', () => {
  it(
    'of 400 ADDs and DELs from 16 processes on two networks with host ports: nothing is given twice, nothing is left, no call fails without a reason',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      const { model, calls } = await storm(node, { calls: 400, workers: 16, slots: 6, seed: 1 })
      assert.deepEqual(model.wrong, [])
      assert.ok(calls >= 400, `${calls} calls`)
    }),
  )
})
