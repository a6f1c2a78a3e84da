// lane: quick
// Tests agent/state/peer-objects.ts: how an object of a peer is shown, wanted and found.
import assert from 'node:assert/strict'
import { wordsOf } from '../../../agent/state/peer-objects.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'

const route = (via: string): Resource => ({
  kind: 'route',
  ns: 'host',
  dev: parse.ifname('eth0'),
  dst: parseCidr('10.244.1.0/24'),
  via: [parseIp(via)],
})

describe('an object of a peer in words', () => {
  const want = route('192.0.2.1')
  const { wanted } = wordsOf({ want })

  it('is the line of ip without the word that makes it, and has nothing found when it is missing', () => {
    assert.match(wanted, /^route 10\.244\.1\.0\/24 via 192\.0\.2\.1 dev eth0/)
    assert.deepEqual(wordsOf({ want }), { wanted })
  })

  it('that is right is found as it is wanted, and another one as it is', () => {
    assert.deepEqual(wordsOf({ want, have: want, isRight: true }), { wanted, found: wanted })
    assert.match(wordsOf({ want, have: route('192.0.2.9'), isRight: false }).found ?? '', /via 192\.0\.2\.9 /)
    assert.equal(wordsOf({ want, have: want, isRight: false }).found, `${wanted}, with other attributes`)
  })
})
