// lane: quick
// Tests agent/firewall/unknown-senders.ts.
import assert from 'node:assert/strict'
import { UnknownSenders } from '../../../agent/firewall/unknown-senders.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const [A, B] = ['192.0.2.7', '2001:db8::7'] as [Ip, Ip]
const SECOND = 1000

/** Looks every ten seconds, for some seconds from a time on. Gives what was told, with its time in seconds. */
function looks(
  strangers: UnknownSenders,
  {
    from,
    seconds,
    addresses,
    packets,
    leases = [],
    isCurrent = true,
  }: {
    readonly from: number
    readonly seconds: number
    readonly addresses: readonly Ip[]
    readonly packets: number
    readonly leases?: readonly Ip[]
    readonly isCurrent?: boolean
  },
): [number, Ip[]][] {
  const told: [number, Ip[]][] = []
  for (let at = from; at < from + seconds; at += 10) {
    const fresh = strangers.look(at * SECOND, { addresses, packets }, (ip) => leases.includes(ip), isCurrent)
    if (fresh.length > 0) told.push([at, fresh])
  }
  return told
}

describe('senders of tunnelled packets without a lease', () => {
  it('are told once, when they still have no lease after a while', () => {
    const strangers = new UnknownSenders()
    assert.deepEqual(looks(strangers, { from: 0, seconds: 300, addresses: [A, B], packets: 5 }), [[30, [A, B]]])
    assert.deepEqual(strangers.all, [A, B])
  })

  it('are not told when their lease comes a moment later, and no more when it comes late', () => {
    const strangers = new UnknownSenders()
    assert.deepEqual(looks(strangers, { from: 0, seconds: 20, addresses: [A, B], packets: 5 }), [])
    assert.deepEqual(looks(strangers, { from: 20, seconds: 60, addresses: [A, B], packets: 5, leases: [A] }), [
      [30, [B]],
    ])
    assert.deepEqual(strangers.all, [B])
    looks(strangers, { from: 80, seconds: 10, addresses: [A, B], packets: 5, leases: [A, B] })
    assert.deepEqual(strangers.all, [])
  })

  it('are not judged while the leases are not known, and those that are told already stay', () => {
    const strangers = new UnknownSenders()
    looks(strangers, { from: 0, seconds: 60, addresses: [A], packets: 5 })
    assert.deepEqual(looks(strangers, { from: 60, seconds: 600, addresses: [A, B], packets: 9, isCurrent: false }), [])
    assert.deepEqual(strangers.all, [A])
    assert.deepEqual(looks(strangers, { from: 660, seconds: 60, addresses: [A, B], packets: 9 }), [[680, [B]]])
  })

  it('are counted for ten minutes; packets from before the first look, and of a table before, do not count', () => {
    const strangers = new UnknownSenders()
    looks(strangers, { from: 0, seconds: 10, addresses: [A], packets: 100 })
    assert.equal(strangers.lately, 0)
    looks(strangers, { from: 10, seconds: 10, addresses: [A], packets: 107 })
    assert.equal(strangers.lately, 7)
    looks(strangers, { from: 20, seconds: 580, addresses: [A], packets: 107 })
    assert.equal(strangers.lately, 7)
    looks(strangers, { from: 600, seconds: 30, addresses: [], packets: 107 })
    assert.deepEqual([strangers.lately, strangers.all], [0, []])
    looks(strangers, { from: 630, seconds: 10, addresses: [], packets: 3 })
    assert.equal(strangers.lately, 0)
    looks(strangers, { from: 640, seconds: 10, addresses: [], packets: 4 })
    assert.equal(strangers.lately, 1)
  })
})
