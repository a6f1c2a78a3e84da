// The histories with flows in the fast path, as a test in the machine with the distribution's kernel.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { execa } from 'execa'
import { SEED } from '../../../support/seed.ts'
import { work } from './worker.ts'

const ROOT = join(import.meta.dir, '../../../..')

/** What the test shows. */
export const TITLE =
  'after the transaction that forbids a flow none of its packets passes, and allowed flows lose none and come back to the fast path: through policies, labels, ADD, DEL, restarts, kills, and tables that others remove'

/** Loads what policy between pods of one bridge wants. The agent does not load it. */
export const loadBridgedFrames = () => execa('modprobe', ['br_netfilter'])

/** Plays so many histories, for at most so many milliseconds, as a test of mocha. */
export function ofHistories(count: number, ms: number): (this: Mocha.Context) => Promise<void> {
  return async function play() {
    this.timeout(0)
    await loadBridgedFrames()
    const all = await work(ROOT, { first: SEED, count, ms, kind: 'offloaded' })
    const { ended = 0, kept = 0 } = all.at(-1) ?? {}
    process.stdout.write(
      `${all.length} histories from ${SEED} on: ${ended} flows ended in the fast path, ${kept} went on\n`,
    )
    assert.deepEqual(
      all.flatMap(({ failure }) => failure ?? []),
      [],
    )
    assert.ok(ended > 0 && kept > 0, `of ${all.length} histories no step ended a flow, or none went on`)
  }
}
