// lane: quick
// Tests agent/state/reachability.ts.
import assert from 'node:assert/strict'
import { drift, nameOf, ordered, reach, total, unreachable } from '../../../agent/state/reachability.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { peers } from '../../support/scripted.ts'

describe('what the agent tells of its peers', () => {
  it('peers are named by node, else by address, and ordered by number', () => {
    const [first, ...rest] = peers(11)
    assert.ok(first)
    const { node: _, ...nameless } = first
    assert.equal(nameOf(nameless), '198.51.0.1')
    assert.deepEqual(ordered([...rest.reverse(), nameless]).map(nameOf), [
      '198.51.0.1',
      ...Array.from({ length: 10 }, (_, i) => `node-${i + 2}`),
    ])
    assert.deepEqual(unreachable([first, { ...first, problem: '' }]).length, 1)
  })
  it('a peer is called reachable only when it answers', () => {
    const words = (probe?: object) =>
      reach({ ...(probe && { probe: { state: 'answers', sent: 10, lost: 0, ...probe } }) } as Peer)
    assert.deepEqual(
      [
        words(),
        words({ state: 'unknown', sent: 0 }),
        words({ ms: 0.123 }),
        words({ ms: 12.3, lost: 2 }),
        words({ state: 'silent', lost: 9 }),
      ],
      [
        'programmed, not probed',
        'programmed, not probed yet',
        'reachable, 0.12 ms',
        'reachable, 12 ms, 2 of 10 probes lost',
        'programmed, but no answer: 9 of 10 probes lost',
      ],
    )
  })
  it('drift() counts too few and too many of each kind, total() sums', () => {
    const kinds = { route: { wanted: 5, programmed: 3, repaired: 1 }, addr: { wanted: 1, programmed: 2, repaired: 4 } }
    assert.equal(drift(kinds), 3)
    assert.deepEqual(total(kinds), { wanted: 6, programmed: 5, repaired: 5 })
  })
})
