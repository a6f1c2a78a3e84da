// lane: quick
// Tests agent/state/sentence.ts.
import assert from 'node:assert/strict'
import { type Row, rowOf } from '../../../agent/state/rows.ts'
import { causeOf, headline } from '../../../agent/state/sentence.ts'
import type { Peer, Status } from '../../../agent/state/status.ts'
import { peers, scripted } from '../../support/scripted.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 30)

/** Rows of peers. `since` is for those that are lost. */
function rows(count: number, change: (peer: Peer, i: number) => Partial<Peer> = () => ({}), since?: number): Row[] {
  return peers(count).map((peer, i) => {
    const made = { ...peer, ...change(peer, i) }
    return rowOf(i + 1, made, made.probe?.state === 'silent' || made.problem !== undefined ? since : undefined)
  })
}

const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const
const clock = (at: number) => new Date(at).toISOString().slice(11, 16)

describe('the first sentence', () => {
  const status = (change: Partial<Status>) => scripted({ node: 'node-7', ...change }).status()
  const finding = {
    code: 'DR7',
    title: '',
    severity: 'error',
    text: 'this node drops packets',
    commands: ['sysctl -w x=1'],
  } as const

  it('names the two that are lost, since when, and what they have in common', () => {
    const all = rows(998, (_, i) => ({ zone: i < 300 ? 'b' : 'a', ...(i === 1 || i === 4 ? SILENT : {}) }), NOW)
    assert.equal(
      headline(status({ degraded: ['no answer from node-2 and node-5'] }), all, clock),
      'node-7 is degraded: node-2 and node-5 do not answer since 12:30, both in zone b (998 peers)',
    )
  })
  it('a lost zone is one sentence', () => {
    const all = rows(90, (_, i) => ({ zone: i < 30 ? 'b' : 'a', ...(i < 30 ? SILENT : {}) }), NOW)
    assert.equal(
      headline(status({ degraded: ['no answer from node-1, node-2, node-3 and 27 more'] }), all, clock),
      'node-7 is degraded: 30 of 90 peers do not answer since 12:30, all in zone b',
    )
  })
  it('counts several kinds of loss', () => {
    const all = rows(9, (_, i) => (i < 2 ? SILENT : i < 5 ? { problem: 'no VTEP' } : {}))
    assert.equal(
      headline(status({ degraded: ['x'] }), all, clock),
      'node-7 is degraded: 5 of 9 peers are lost: 2 do not answer, 3 cannot be reached',
    )
  })
  it('has the cause before what follows from it', () => {
    const lost = rows(3, () => SILENT)
    const text = `${finding.text}; run ${finding.commands[0]}`
    const found = { findings: [finding], degraded: ['no answer from node-1', text] }
    assert.equal(headline(status(found), lost, clock), 'node-7 is degraded: this node drops packets')
    assert.equal(
      headline(status({ ready: false, reasons: ['no uplink was found yet'], degraded: ['a'] }), [], clock),
      'node-7 is not ready: no uplink was found yet',
    )
    assert.equal(causeOf({ reasons: ['first', text], degraded: [], findings: [finding] }), 'this node drops packets')
    assert.equal(causeOf({ reasons: [], degraded: [], findings: [] }), undefined)
  })
  it('says that all is well', () => {
    assert.equal(headline(status({}), rows(3), clock), 'node-7 is ready: all 3 peers answer')
    assert.equal(headline(status({}), [], clock), 'node-7 is ready: no other node has a subnet yet')
    const unasked = peers(2).map((peer, i) =>
      rowOf(i, { ...peer, probe: { state: 'unknown', sent: 0, lost: 0 } }, undefined),
    )
    assert.equal(headline(status({}), unasked, clock), 'node-7 is ready: all 2 peers are programmed')
    assert.equal(
      headline(status({}), [...unasked, ...rows(3)], clock),
      'node-7 is ready: all 5 peers are programmed, and 3 answer',
    )
  })
  it('shows hostile names as escapes', () => {
    const all = rows(2, (_, i) => (i === 0 ? { ...SILENT, node: 'a\u202eb\n<i>' } : {}))
    assert.equal(
      headline(status({ degraded: ['x'] }), all, clock),
      'node-7 is degraded: a\\u202eb\\n<i> does not answer (2 peers)',
    )
  })
})
