// lane: quick
// Tests agent/backend/silent-peers.ts: what people read of peers that do not answer.
import assert from 'node:assert/strict'
import { named, silenceOf } from '../../../agent/backend/silent-peers.ts'
import { encodeKey } from '../../../agent/lease/lease.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'

const LEASES = Array.from({ length: 6 }, (_, n) => ({
  node: `n${n}`,
  subnets: { v4: parseCidr(`10.244.${n}.0/24`) },
  ips: { v4: parseIp(`192.0.2.${n + 1}`) },
  backend: 'vxlan',
  data: {},
}))
const keysOf = (...nodes: readonly number[]) => nodes.map((n) => encodeKey(LEASES[n]?.subnets ?? {}))
const NOBODY = new Set<ReturnType<typeof encodeKey>>()
const none = { silent: NOBODY, narrow: NOBODY }

describe('peers that do not answer', () => {
  it('are three names at most, and a number for the others', () => {
    assert.match(named(keysOf(0, 1), LEASES), /^10\.244\.0\.0\/24 of node "n0", 10\.244\.1\.0\/24 of node "n1"$/)
    assert.match(named(keysOf(0, 1, 2, 3, 4), LEASES), /"n0", .*"n1", .*"n2" and 2 more$/)
  })

  it('are no sentence when there are none, and one for the silent and one for the narrow', () => {
    assert.deepEqual(silenceOf(none, LEASES, 1450, undefined), [])
    const texts = silenceOf({ silent: new Set(keysOf(0)), narrow: new Set(keysOf(1, 2)) }, LEASES, 1450, undefined)
    assert.equal(texts.length, 2)
    assert.match(texts[0] ?? '', /^1 peer does not answer over the overlay: .*"n0"$/)
    assert.match(
      texts[1] ?? '',
      /^packets of full size \(1450 bytes\) do not reach 2 peers, small ones do: .*"n1", .*"n2";/,
    )
  })

  it('say of how many narrow peers the routes have the size that arrives', () => {
    const narrow = { ...none, narrow: new Set(keysOf(1, 2)) }
    const ended = (routed: readonly number[]) =>
      silenceOf({ ...narrow, routed: new Set(keysOf(...routed)) }, LEASES, 1450, undefined)[0]?.endsWith(
        '; meanwhile the routes to 1 of them tell pods the size that arrives',
      )
    assert.deepEqual([ended([]), ended([3]), ended([2, 3])], [false, false, true])
  })

  it('have the reason of the backend: once when it is the same for all, with names when it is not', () => {
    const silent = { ...none, silent: new Set(keysOf(0, 1)) }
    const [same] = silenceOf(silent, LEASES, 1450, () => 'no handshake')
    assert.match(same ?? '', /^2 peers do not answer over the overlay: [^;]*"n0", [^;]*"n1"; no handshake$/)
    const [other] = silenceOf(silent, LEASES, 1450, ({ node }) => (node === 'n1' ? 'another key' : undefined))
    assert.match(other ?? '', /; 10\.244\.1\.0\/24 of node "n1": another key$/)
    const asked: (string | undefined)[] = []
    silenceOf(silent, LEASES, 1450, ({ node }) => void asked.push(node))
    assert.deepEqual(asked, ['n0', 'n1'])
  })
})
