// lane: vmlong
// Tests agent/parts/policy.ts and agent/parts/fast-path.ts: many histories of flows in the fast path (offloaded.ts).
// PLUMB_HISTORIES says how many, and PLUMB_VM_LIMIT_S how long the machine may run: 500 of them want some hours.
import { ofHistories, TITLE } from './histories.ts'

const COUNT = Number(process.env['PLUMB_HISTORIES'] ?? 100)

describe(`isolation of flows in the fast path, ${COUNT} histories`, () => {
  it(TITLE, ofHistories(COUNT, 24 * 3_600_000))
})
