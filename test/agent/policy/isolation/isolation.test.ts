// lane: fuzz
// Tests agent/policy and plugins/policy.ts: isolation of addresses through random histories of a node (isolation.ts).
import assert from 'node:assert/strict'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { budgetOf, casesOf, tell } from '../../../fuzz/share.ts'
import { work } from './worker.ts'

const ROOT = join(import.meta.dir, '../../../..')
const COUNT = casesOf('isolation')
const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
const isAsked = process.env['PLUMB_FUZZ_CASES'] !== undefined
/** Each worker is a node with an agent. */
const WORKERS = isAsked ? 2 * availableParallelism() : 1
/** The longest time of a JavaScript timer. */
const LONGEST_MS = 2 ** 31 - 1
describe('isolation of addresses', () => {
  it(`${COUNT} histories of seed ${SEED}: every pair of pods and every flow is as the oracle says, through ADD, DEL, policies, restarts and kills`, async function () {
    this.timeout(0)
    const each = Math.ceil(COUNT / WORKERS)
    const ms = Math.min(LONGEST_MS, budgetOf(45_000))
    const all = (
      await Promise.all(
        Array.from({ length: WORKERS }, (_, i) => work(ROOT, { first: SEED * 1_000_000 + i * each, count: each, ms })),
      )
    ).flat()
    const failures = all.flatMap(({ failure }) => failure ?? [])
    tell(
      'isolation',
      { ok: all.length - failures.length, refused: failures.length, slowest: Math.max(...all.map(({ ms }) => ms)) },
      failures.length,
    )
    assert.ok(all.length > 0, 'no history was played')
    assert.deepEqual(failures, [])
  })
})
