// lane: quick
// Tests agent/page/peer-fields.ts.
import assert from 'node:assert/strict'
import { grouped, named, orderOf, roundTrip } from '../../../agent/page/peer-fields.ts'
import { type Row, rowOf } from '../../../agent/state/rows.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { peers } from '../../support/scripted.ts'

/** Rows of peers. `since` is for those that are lost. */
function rows(count: number, change: (peer: Peer, i: number) => Partial<Peer> = () => ({}), since?: number): Row[] {
  return peers(count).map((peer, i) => {
    const made = { ...peer, ...change(peer, i) }
    return rowOf(i + 1, made, made.probe?.state === 'silent' || made.problem !== undefined ? since : undefined)
  })
}

const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const

describe('the order of peers', () => {
  it('has the worst first, and names by their numbers', () => {
    const all = rows(30, (_, i) =>
      i === 20
        ? SILENT
        : i === 24
          ? { problem: 'no route' }
          : i === 3
            ? { probe: { state: 'answers', sent: 10, lost: 1, ms: 1 } }
            : {},
    )
    const names = (sort: string) =>
      named(all)
        .sort(orderOf(sort))
        .map(({ node }) => node)
    assert.deepEqual(names('').slice(0, 5), ['node-25', 'node-21', 'node-4', 'node-1', 'node-2'])
    assert.deepEqual(names('node').slice(8, 11), ['node-9', 'node-10', 'node-11'])
    assert.deepEqual(names('-loss').slice(0, 2), ['node-21', 'node-4'])
    assert.deepEqual(
      grouped(all, 'state').map(({ name, rows: some }) => `${name} ${some.length}`),
      ['reachable 28', 'silent 1', 'unreachable 1'],
    )
    assert.deepEqual(
      grouped(all, 'network').map(({ name }) => name),
      ['198.51.0.0/16'],
    )
    assert.deepEqual(
      grouped(all, 'none').map(({ name }) => name),
      [''],
    )
    assert.deepEqual([0.0421, 0.42, 1, 12.34, 1234].map(roundTrip), ['42 µs', '420 µs', '1 ms', '12 ms', '1200 ms'])
  })
})
