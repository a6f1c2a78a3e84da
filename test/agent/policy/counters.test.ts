// lane: quick
// Tests agent/policy/counters.ts.
import assert from 'node:assert/strict'
import { countsOf } from '../../../agent/policy/counters.ts'

describe('counters of policies', () => {
  it('takes the counters that the policies know, and the packets of unknown addresses', () => {
    const counter = (name: string, packets: number) => ({
      counter: { family: 'inet', name, table: 'plumb_policy', handle: 1, packets, bytes: packets * 60 },
    })
    const answer = JSON.stringify({
      nftables: [{ metainfo: {} }, counter('allow_in_1', 3), counter('unknown_address', 7), counter('stale', 9)],
    })
    const counted = new Map([['allow_in_1', { what: 'allow', side: 'ingress', policies: ['x/p'] } as const]])
    assert.deepEqual(countsOf(answer, counted), {
      counts: [{ what: 'allow', side: 'ingress', policies: ['x/p'], packets: 3, bytes: 180 }],
      unknownAddress: 7,
    })
  })
})
