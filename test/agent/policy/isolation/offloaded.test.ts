// lane: vmlong
// Tests agent/parts/policy.ts and agent/parts/fast-path.ts: isolation of flows in the fast path (offloaded.ts).
import { ofHistories, TITLE } from './histories.ts'

describe('isolation of flows in the fast path', () => {
  it(TITLE, ofHistories(10, 120_000))
})
