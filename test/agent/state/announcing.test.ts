// lane: quick
// Tests agent/state/announcing.ts.
import assert from 'node:assert/strict'
import { type AnnouncedState, Announcer } from '../../../agent/state/announcing.ts'
import { sentenceOf } from '../../../agent/state/phrases.ts'
import type { Finding } from '../../../agent/state/status.ts'

const CALM: AnnouncedState = { state: 'ready', ready: true, reasons: [], degraded: [], findings: [], closed: [] }
const DR1: Finding = {
  code: 'DR1',
  title: 'forwarding is off',
  severity: 'error',
  text: 'net.ipv4.ip_forward is 0: pods reach only this node',
  commands: ['sysctl -w net.ipv4.ip_forward=1'],
}
const broken: AnnouncedState = {
  ...CALM,
  state: 'not ready',
  ready: false,
  reasons: [sentenceOf(DR1)],
  findings: [DR1],
}
const silent = (lost: number): AnnouncedState => ({
  ...CALM,
  state: 'degraded',
  degraded: [`n2 lost ${lost} of 10 probes`],
})
const words = (announcer: Announcer, told: AnnouncedState, at: number) =>
  announcer.next(told, at).map(({ type, reason, message }) => [type, reason, message].join(' '))

describe('what a node announces to the cluster', () => {
  it('a finding that lasts, once, with code, sentence and commands, and its end', () => {
    const announcer = new Announcer()
    assert.deepEqual(words(announcer, broken, 0), [])
    assert.deepEqual(words(announcer, broken, 9999), [])
    assert.deepEqual(words(announcer, broken, 10_000), [
      'Warning DR1 net.ipv4.ip_forward is 0: pods reach only this node; run sysctl -w net.ipv4.ip_forward=1 (plumb doctor DR1)',
    ])
    assert.deepEqual(words(announcer, broken, 60_000), [])
    assert.deepEqual(words(announcer, CALM, 62_000), ['Normal NetworkReady the network of this node works again'])
    assert.deepEqual(words(announcer, CALM, 64_000), [])
  })
  it('nothing of what is over before, nor of its end', () => {
    const announcer = new Announcer()
    for (const [told, at] of [
      [broken, 0],
      [CALM, 8000],
      [broken, 9000],
      [CALM, 18_000],
    ] as const)
      assert.deepEqual(words(announcer, told, at), [])
  })
  it('a sentence whose numbers change counts as one, and the end comes after the last trouble', () => {
    const announcer = new Announcer()
    words(announcer, silent(3), 0)
    assert.deepEqual(words(announcer, silent(5), 10_000), ['Warning NetworkDegraded n2 lost 5 of 10 probes'])
    assert.deepEqual(words(announcer, silent(7), 20_000), [])
    assert.deepEqual(words(announcer, broken, 22_000), [])
    assert.deepEqual(words(announcer, CALM, 24_000), ['Normal NetworkReady the network of this node works again'])
  })
  it('a pod whose packets are all refused, to the pod itself', () => {
    const announcer = new Announcer()
    const closed = { ...CALM, closed: ['x/a'] }
    announcer.next(closed, 0)
    const [one, ...more] = announcer.next(closed, 10_000)
    assert.deepEqual([one?.about, one?.reason, more], [{ kind: 'Pod', namespace: 'x', name: 'a' }, 'PolicyClosed', []])
    assert.deepEqual(announcer.next(CALM, 12_000), [])
  })
})
