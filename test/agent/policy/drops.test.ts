// lane: quick
// Tests agent/policy/drops.ts and lib/os/nflog.ts: refused packets as lines of the log.
import assert from 'node:assert/strict'
import { lineOf, packetOf } from '../../../agent/policy/drops.ts'
import { loggedIn } from '../../../lib/os/nflog.ts'

const bytes = (hex: string) =>
  new DataView(Uint8Array.from(hex.replaceAll(' ', '').match(/../g) ?? [], (one) => Number.parseInt(one, 16)).buffer)
const FOUR = '4500003c 00004000 40060000 0a01000a 0a010014'
const TCP = `${FOUR} 9c400050 00000000`
const SIX = 'fd000000000000000000000000000001 fd000000000000000000000000000002'

describe('packetOf()', () => {
  for (const [what, hex, want] of [
    ['TCP over IPv4', TCP, { source: '10.1.0.10', destination: '10.1.0.20', protocol: 'TCP', name: 'TCP', port: 80 }],
    [
      'options of IPv4',
      `46${TCP.slice(2).replace('0a010014', '0a010014 01010100')}`,
      { source: '10.1.0.10', destination: '10.1.0.20', protocol: 'TCP', name: 'TCP', port: 80 },
    ],
    [
      'a ping',
      FOUR.replace('40060000', '40010000'),
      { source: '10.1.0.10', destination: '10.1.0.20', protocol: 'other', name: 'ICMP', port: 0 },
    ],
    [
      'UDP over IPv6',
      `60000000 0008 11 40 ${SIX} 9c400035`,
      { source: 'fd00::1', destination: 'fd00::2', protocol: 'UDP', name: 'UDP', port: 53 },
    ],
    [
      'SCTP after two extension headers',
      `60000000 0008 00 40 ${SIX} 2c00000000000000 8400000000000000 9c40 0051`,
      { source: 'fd00::1', destination: 'fd00::2', protocol: 'SCTP', name: 'SCTP', port: 81 },
    ],
  ] as const)
    it(`reads ${what}`, () => assert.deepEqual({ ...packetOf(bytes(hex)) }, want))

  it('gives undefined for every cut of a packet, and for what is not IP', () => {
    const whole = bytes(TCP)
    for (let length = 0; length < 24; length++) assert.equal(packetOf(new DataView(whole.buffer, 0, length)), undefined)
    assert.equal(packetOf(bytes(`1${TCP.slice(1)}`)), undefined)
  })
})

describe('lineOf()', () => {
  const none = { pods: [], namespaces: [], policies: [] }
  it('says that an address is no pod’s, and that the policy has changed since', () => {
    assert.equal(
      lineOf({ prefix: 'unknown', packet: bytes(TCP) }, () => undefined, none, false),
      'dropped TCP 10.1.0.10 → 10.1.0.20 port 80: an address of this node belongs to no known pod',
    )
    assert.equal(
      lineOf({ prefix: 'denied_in', packet: bytes(TCP) }, () => undefined, none, true),
      'would drop TCP 10.1.0.10 → 10.1.0.20 port 80: a policy or a pod that has changed since',
    )
    assert.equal(
      lineOf({ prefix: 'denied_in', packet: bytes('45') }, () => undefined, none, false),
      'dropped a packet that is no whole IP packet (denied_in)',
    )
  })
})

describe('loggedIn()', () => {
  it('ends at a message that is cut off', () => {
    assert.deepEqual(loggedIn(new Uint8Array(15)), [])
    assert.deepEqual(loggedIn(Uint8Array.of(200, 0, 0, 0, 0, 4, ...new Uint8Array(14))), [])
  })
})
