// lane: quick
// Tests agent/state/messages.ts, with patches.ts and rows.ts: what a reader of the page has after all messages.
import assert from 'node:assert/strict'
import { known, type Patch, patched, type ReaderState, type Whole } from '../../../agent/state/messages.ts'
import { Patches } from '../../../agent/state/patches.ts'
import { Recorder } from '../../../agent/state/recorder.ts'
import { peerOf, type Row, rowOf } from '../../../agent/state/rows.ts'
import type { Peer, Status } from '../../../agent/state/status.ts'
import { generator } from '../../support/random.ts'
import { peers, scripted } from '../../support/scripted.ts'

describe('the messages of the page', () => {
  it('a row keeps all that the words about a peer need', () => {
    const given: Peer[] = [
      ...peers(1),
      { ...(peers(1)[0] as Peer), problem: 'it announces VNI 2', version: '0.2.0', zone: 'b' },
      { ...(peers(1)[0] as Peer), probe: { state: 'narrow', sent: 10, lost: 2, ms: 12 }, handshakeAge: 120 },
    ]
    for (const peer of given) {
      const back = peerOf(rowOf(7, peer, undefined))
      const { probe, ...rest } = peer
      assert.deepEqual(back, JSON.parse(JSON.stringify(peer.problem === undefined ? { ...rest, probe } : rest)))
    }
  })
  it('the state after 10,000 random patches is that of a fresh load', function () {
    this.timeout(60_000)
    const random = generator(39)
    const recorder = new Recorder()
    const patches = new Patches(recorder)
    let status: Status = scripted({ peers: peers(20) }).status()
    patches.take(status)
    let state: ReaderState | undefined = known(JSON.parse(patches.whole().data) as Whole)
    let sent = 0
    for (let i = 0; i < 10_000; i++) {
      status = another(status, random)
      const message = patches.take(status)
      if (!message) continue
      sent++
      state = patched(state as ReaderState, JSON.parse(message.data) as Patch)
      if (i % 100 !== 0) continue
      const fresh = known(JSON.parse(patches.whole().data) as Whole)
      assert.deepEqual(
        { ...state, at: 0, peers: byNumber(state.peers) },
        { ...fresh, at: 0, peers: byNumber(fresh.peers) },
      )
    }
    assert.ok(sent > 5000, `${sent} patches`)
  })
  it('a reader that was away gets the patches since, and everything after more than 256 of them or a restart', () => {
    const patches = new Patches(new Recorder(), 'first')
    const status = (mtu: number) => ({ ...scripted().status(), mtu })
    patches.take(status(0))
    for (let i = 1; i <= 256; i++) patches.take(status(i))
    assert.equal(patches.id, 'first.257')
    assert.deepEqual(patches.since('first.257'), [])
    assert.deepEqual(
      patches.since('first.255')?.map(({ id }) => id),
      ['first.256', 'first.257'],
    )
    assert.equal(patches.since('first.1')?.length, 256)
    assert.equal(patches.since('first.0'), undefined)
    assert.equal(patches.since('first.258'), undefined)
    assert.equal(patches.since('second.256'), undefined)
    assert.equal(patches.since(''), undefined)
    assert.equal(patches.since('nonsense.x.257'), undefined)
  })
  it('few characters are kept for readers that were away, even with large patches', () => {
    const patches = new Patches(new Recorder(), 'e')
    const status = scripted().status()
    for (let i = 0; i < 40; i++) patches.take({ ...status, reasons: [`${i}`.repeat(50_000)] })
    const all = patches.since(`e.${40 - 20}`)
    assert.ok((all?.length ?? 0) <= 20 && patches.since('e.1') === undefined)
  })
  it('a patch has what differs only', () => {
    const patches = new Patches(new Recorder())
    const before = scripted({ peers: peers(3) }).status()
    patches.take(before)
    assert.equal(patches.take(before), undefined)
    const second = before.peers.map((one, i) =>
      i === 1 ? { ...one, probe: { ...one.probe, ms: 0.7 } } : one,
    ) as Peer[]
    const patch = JSON.parse(patches.take({ ...before, peers: second })?.data ?? '') as Patch
    assert.deepEqual({ ...patch, at: 0 }, { at: 0, peers: { n: [2], ms: [0.7] } })
    const { uplink, ...rest } = before
    const third = JSON.parse(patches.take({ ...rest, uplink: undefined, peers: second.slice(1) })?.data ?? '') as Patch
    assert.deepEqual({ ...third, at: 0 }, { at: 0, status: { uplink: null }, gone: [1] })
  })
})

/** A status that differs from one before in something. */
function another(status: Status, random: () => number): Status {
  const pick = (n: number) => Math.floor(random() * n)
  const i = pick(status.peers.length + 1)
  const all = [...status.peers]
  const peer = all[i]
  switch (pick(8)) {
    case 0:
      return { ...status, mtu: 1000 + pick(500) }
    case 1:
      return { ...status, degraded: pick(2) ? [`reason ${pick(5)}`] : [], state: 'degraded' }
    case 2:
      return {
        ...status,
        ...(pick(2) ? { stale: pick(9) } : { bgp: { asn: 1, restarts: pick(4), announced: 1, sessions: [] } }),
      }
    case 3: {
      const { stale, bgp, ...rest } = status
      return rest
    }
    case 4:
      if (all.length > 5) all.splice(i, 1)
      return { ...status, peers: all }
    case 5: {
      const fresh = peers(40)[pick(40)] as Peer
      const isThere = all.some(({ node }) => node === fresh.node)
      return { ...status, peers: isThere ? all : [...all, fresh] }
    }
    default: {
      if (!peer) return status
      const { problem, probe, zone, ...rest } = peer
      const states = ['answers', 'silent', 'narrow', 'unknown'] as const
      const seen = {
        state: states[pick(4)] as 'answers',
        sent: 10,
        lost: pick(4),
        ...(pick(2) && { ms: pick(90) / 10 }),
      }
      all[i] = {
        ...rest,
        ...(pick(4) ? { probe: seen } : { problem: `why ${pick(3)}` }),
        ...(pick(3) && { zone: 'abc'[pick(3)] as string }),
      }
      return { ...status, peers: all }
    }
  }
}

function byNumber(rows: ReadonlyMap<number, Row>): Row[] {
  return [...rows.values()].sort((a, b) => a.n - b.n)
}
