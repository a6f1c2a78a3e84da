// lane: quick
// Tests agent/state/summary.ts.
import assert from 'node:assert/strict'
import { Recorder } from '../../../agent/state/recorder.ts'
import type { Finding, Peer, Status } from '../../../agent/state/status.ts'
import { SUMMARY_BYTES, type Summary, summaryOf } from '../../../agent/state/summary.ts'
import { peers, scripted } from '../../support/scripted.ts'

const START = Date.UTC(2026, 10, 1, 12, 0, 0)
const ZONES = ['a', 'b', 'c']

describe('the summary of a node', () => {
  it('says how the node is, its peers by state and zone, and the worst peers first', () => {
    const [first, second, third, ...rest] = inZones(9)
    const status = scripted({
      degraded: ['no answer over the overlay from node-2'],
      zone: 'a',
      peers: [
        { ...first, probe: { state: 'answers', sent: 10, lost: 1, ms: 0.8 } },
        { ...second, probe: { state: 'silent', sent: 10, lost: 10 } },
        { ...third, problem: 'it announces VNI 2' },
        ...rest,
      ] as Peer[],
      policy: {
        policies: 4,
        clusterPolicies: 1,
        pods: 7,
        selected: { ingress: 3, egress: 0 },
        closed: 2,
        refused: 0,
        steps: { count: 0, sum: 0, buckets: [] },
      },
    }).status()
    const { summary } = summarized(status)
    const { findings, started, version, row, ...told } = summary
    assert.deepEqual(told, {
      at: START,
      node: 'node-0',
      zone: 'a',
      backend: 'vxlan',
      state: 'degraded',
      cause: 'no answer over the overlay from node-2',
      peers: { reachable: 7, silent: 1, unreachable: 1 },
      worst: [
        { name: 'node-3', state: 'unreachable', zone: 'c', sent: 10, lost: 0, ms: 0.4, since: START },
        { name: 'node-2', state: 'silent', zone: 'b', sent: 10, lost: 10, since: START },
        { name: 'node-1', state: 'reachable', zone: 'a', sent: 10, lost: 1, ms: 0.8 },
      ],
      zones: {
        b: { peers: 3, bad: 1, lost: 0, ms: 0.4 },
        c: { peers: 3, bad: 1, lost: 0, ms: 0.4 },
        a: { peers: 3, bad: 0, lost: 0, ms: 0.4 },
      },
      store: { name: 'etcd', connected: true },
      drift: 0,
      repairs: 0,
      pods: { all: 7, closed: 2 },
      policies: 5,
    })
    assert.deepEqual(
      [row?.name.length, row?.state, row?.lost.slice(0, 3), row?.ms.slice(0, 3)],
      [9, 'rsurrrrrr', [10, 100, 0], [0.8, null, 0.4]],
    )
  })
  it('counts the repairs of the last hour and the drops of the last minute', () => {
    let now = START
    const recorder = new Recorder(() => now)
    const status = (repaired: number): Status => ({
      ...scripted().status(),
      kinds: { route: { wanted: 3, programmed: 3, repaired } },
    })
    recorder.record(status(0))
    const minute = (repaired: number) => {
      now += 60_000
      recorder.record(status(repaired))
    }
    minute(4)
    for (let i = 0; i < 7; i++) recorder.refused('TCP a → b')
    minute(5)
    const told = () => {
      const rows = recorder.record(status(5)).values()
      const { repairs, drops } = summaryOf(status(5), rows, recorder, { now, withRow: false })
      return [repairs, drops]
    }
    assert.deepEqual(told(), [5, 7])
    minute(5)
    assert.deepEqual(told(), [5, 0])
    for (let i = 0; i < 59; i++) minute(5)
    assert.deepEqual(told(), [0, 0])
  })
  it('has at most 4 kB: with 5,000 peers, long names, many zones and long sentences', () => {
    const long = (text: string) => text.repeat(2000)
    const findings: Finding[] = Array.from({ length: 9 }, (_, i) => ({
      code: `DR${i}`,
      title: 'x',
      severity: 'error',
      text: long('é'),
      commands: ['ip link set eth0 up', long('x')],
    }))
    const silent = (peer: Peer, i: number): Peer => ({
      ...peer,
      node: `${'n'.repeat(240)}-${i}`,
      zone: `${'z'.repeat(50)}-${i % 50}`,
      probe: { state: 'silent', sent: 10, lost: 10, ms: 123.4 },
    })
    const worlds: Partial<Status>[] = [
      { peers: peers(5000) },
      { peers: inZones(5000).map((peer, i) => (i % 9 === 0 ? { ...silent(peer, i), node: `node-${i}` } : peer)) },
      { peers: peers(5000).map(silent), degraded: ['x'], findings },
      { peers: peers(300).map(silent), ready: false, reasons: [long('\u0001')], findings },
      {
        peers: [],
        ready: false,
        reasons: [long('\u0001')],
        store: { name: 'etcd', connected: false, error: long('\u0001') },
      },
    ]
    for (const world of worlds) {
      const { summary } = summarized(scripted(world).status(), false)
      const text = JSON.stringify(summary)
      assert.ok(Buffer.byteLength(text) <= SUMMARY_BYTES, `${Buffer.byteLength(text)}`)
      const all = Object.values(summary.peers).reduce((sum, n) => sum + n, 0)
      assert.equal(all, world.peers?.length)
    }
  })
  it('a name is whole and a command is whole, or not there', () => {
    const name = 'n'.repeat(253)
    const [one] = peers(1)
    const findings: Finding[] = [
      { code: 'DR1', title: 'x', severity: 'error', text: 'x', commands: ['y'.repeat(301), 'ip link show'] },
    ]
    const peer = { ...one, node: name, probe: { state: 'silent', sent: 3, lost: 3 } } as Peer
    const { summary } = summarized(scripted({ peers: [peer], findings }).status())
    assert.equal(summary.worst[0]?.name, name)
    assert.deepEqual(summary.findings[0]?.commands, ['ip link show'])
  })
})

function inZones(count: number): Peer[] {
  return peers(count).map((peer, i) => ({ ...peer, zone: ZONES[i % 3] as string }))
}

function summarized(status: Status, withRow = true): { readonly summary: Summary } {
  const recorder = new Recorder(() => START)
  const rows = recorder.record(status).values()
  return { summary: JSON.parse(JSON.stringify(summaryOf(status, rows, recorder, { now: START, withRow }))) as Summary }
}
