// lane: quick
// Tests agent/state/recorder.ts, with happenings.ts and past.ts, which it keeps.
import assert from 'node:assert/strict'
import { encodeKey } from '../../../agent/lease/lease.ts'
import { byteOf, msOf, Past } from '../../../agent/state/past.ts'
import { Recorder } from '../../../agent/state/recorder.ts'
import type { Row } from '../../../agent/state/rows.ts'
import type { Peer, Status } from '../../../agent/state/status.ts'
import { peers, scripted } from '../../support/scripted.ts'

const START = Date.UTC(2026, 10, 1, 12, 0, 0)

describe('the log of a node', () => {
  let now: number
  let recorder: Recorder
  let status: Status
  beforeEach(() => {
    now = START
    recorder = new Recorder(() => now)
    status = scripted({ peers: peers(9), repairs: [] }).status()
    recorder.record(status)
  })
  function later(ms: number, change: Partial<Status>): void {
    now += ms
    const next = { ...status, ...change }
    status = { ...next, state: !next.ready ? 'not ready' : next.degraded.length > 0 ? 'degraded' : 'ready' }
    recorder.record(status)
  }
  const texts = () => recorder.happenings().map(({ kind, tone, text }) => `${kind} ${tone}: ${text}`)
  const silent = (names: readonly string[]) =>
    status.peers.map((peer) =>
      names.includes(peer.node ?? '')
        ? { ...peer, probe: { state: 'silent', sent: 10, lost: 3, ms: 1 } as const }
        : peer,
    )

  it('says when the state changes and why, which peers are lost and back, and when the store is away', () => {
    const degraded = ['no answer over the overlay from node-2 and node-3']
    later(1000, { peers: silent(['node-2', 'node-3']), degraded })
    later(1000, { peers: peers(9), degraded: [] })
    const store = { ...status.store, connected: false, error: 'connect ECONNREFUSED 192.0.2.9:2379' }
    later(1000, { store, degraded: [`the store is away, going on with what is known: ${store.error}`] })
    later(1000, { store: { ...store, connected: true }, degraded: [] })
    later(1000, { ready: false, reasons: ['no uplink was found yet'] })
    assert.deepEqual(texts(), [
      'state good: the agent has started; node-0 is ready',
      'peer error: node-2, node-3: do not answer',
      'state warning: node-0 is degraded: no answer over the overlay from node-2 and node-3',
      'peer good: node-2, node-3: answer again',
      'state good: node-0 is ready',
      'store warning: etcd does not answer: connect ECONNREFUSED 192.0.2.9:2379',
      'state warning: node-0 is degraded: the store is away, going on with what is known: connect ECONNREFUSED 192.0.2.9:2379',
      'store good: etcd answers again',
      'state good: node-0 is ready',
      'problem error: no uplink was found yet',
      'state error: node-0 is not ready: no uplink was found yet',
    ])
  })
  it('a lost zone is one entry', () => {
    later(0, { peers: peers(9).map((peer, i) => ({ ...peer, zone: i < 4 ? 'b' : 'a' })) })
    later(1000, { peers: silent(['node-1', 'node-2', 'node-3', 'node-4']) })
    assert.deepEqual(texts().slice(1), ['peer error: node-1, node-2, node-3 and 1 more: do not answer, all in zone b'])
  })
  it('a repeated sentence with other numbers is one problem, and it says when it is over', () => {
    later(1000, { degraded: ['link eth0 drops 3 packets a minute'] })
    later(1000, { degraded: ['link eth0 drops 9 packets a minute'] })
    later(1000, { degraded: [] })
    assert.deepEqual(
      texts().filter((text) => text.startsWith('problem')),
      ['problem warning: link eth0 drops 3 packets a minute', 'problem good: over: link eth0 drops 9 packets a minute'],
    )
  })
  it('a storm of repairs is one entry with a count', () => {
    const repair = (i: number) => ({ at: now + i, what: `route 10.64.${i}.0/24 was gone, made again` })
    later(1000, { repairs: Array.from({ length: 90 }, (_, i) => repair(i)) })
    later(1000, { repairs: [...status.repairs.slice(10), ...Array.from({ length: 10 }, (_, i) => repair(i + 100))] })
    const [entry, ...others] = recorder.happenings().filter(({ kind }) => kind === 'repair')
    assert.equal(others.length, 0)
    assert.deepEqual(
      [entry?.count, entry?.about, entry?.text],
      [100, 'route', 'route 10.64.109.0/24 was gone, made again'],
    )
    later(120_000, { repairs: [{ at: now + 120_000, what: 'route 10.64.1.0/24 was gone, made again' }] })
    assert.equal(recorder.happenings().filter(({ kind }) => kind === 'repair').length, 2)
  })
  it('keeps 2,000 entries, and forgets the oldest', () => {
    for (let i = 0; i < 2500; i++) {
      now += 61_000
      recorder.refused(`dropped TCP a/b (192.0.2.1) → c/d${i} port 80: nobody may`)
    }
    const all = recorder.happenings()
    assert.equal(all.length, 2000)
    assert.match(all.at(-1)?.text ?? '', /d2499 /)
    assert.deepEqual([all[0]?.n, all.at(-1)?.n], [502, 2501])
    assert.equal(recorder.changes().length, 2000)
    assert.deepEqual(recorder.changes(), [])
  })
  it('a peer says since when it is as it is', () => {
    later(60_000, { peers: silent(['node-5']) })
    const rows = [...recorder.record(status).values()]
    assert.deepEqual(
      rows.filter(({ since }) => since !== undefined).map(({ node, since }) => [node, since]),
      [['node-5', START + 60_000]],
    )
  })
  it('the past has the loss and the round trip of each peer, and the state, minute by minute', () => {
    const key = encodeKey((peers(1)[0] as Peer).subnets)
    for (let minute = 1; minute <= 90; minute++) {
      const isLost = minute > 80
      const change = isLost ? { peers: silent(['node-1']), degraded: ['no answer from node-1'] } : { peers: peers(9) }
      later(60_000, change)
    }
    const peer = recorder.pastOf(key)
    assert.equal(peer?.end, START + 90 * 60_000)
    assert.deepEqual([peer?.lost.length, peer?.lost[49], peer?.lost[50], peer?.lost[59]], [60, 0, 30, 30])
    assert.ok(Math.abs((peer?.ms[0] ?? 0) - 0.4) <= 0.02, `${peer?.ms[0]}`)
    const node = recorder.past()
    assert.equal(node?.states, `${'-'.repeat(1440 - 90)}${'r'.repeat(80)}${'d'.repeat(10)}`)
    assert.deepEqual(node?.series.lost.slice(-12), [0, 0, ...Array(10).fill(1)])
    assert.equal(recorder.pastOf('10.1.2.0-24'), undefined)
  })
  it('minutes of a sleeping machine are unknown', () => {
    const past = new Past()
    const row = { n: 1, state: 'reachable', sent: 10, lost: 0, ms: 1, backend: 'vxlan' } as const
    const figures = { lost: 0, drift: 0, repairs: 2, refused: 0 }
    past.write(100, 'r', figures, new Map([['a', row as Row]]))
    past.write(105, 'r', figures, new Map([['a', row as Row]]))
    assert.deepEqual(past.peer('a')?.lost.slice(-6), [0, null, null, null, null, 0])
    assert.equal(past.node()?.states.slice(-7), '-r----r')
    past.write(5000, 'n', figures, new Map())
    assert.equal(past.peer('a'), undefined)
    assert.equal(past.node()?.states, `${'-'.repeat(1439)}n`)
  })
  it('a round trip is kept with a precision of 5 %', () => {
    for (const ms of [0.012, 0.4, 3.3, 87, 1900]) {
      const kept = msOf(byteOf(ms)) ?? 0
      assert.ok(Math.abs(kept - ms) / ms < 0.05, `${ms}: ${kept}`)
    }
    assert.deepEqual([byteOf(0.0001), msOf(255)], [0, null])
    assert.ok((msOf(byteOf(1e9)) ?? 0) > 40_000)
  })
})
