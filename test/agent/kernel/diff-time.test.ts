// lane: timed
// Tests agent/kernel/diff.ts and batch.ts: what they cost.
import assert from 'node:assert/strict'
import { putOf, sentences } from '../../../agent/kernel/batch.ts'
import { diff, knownOf } from '../../../agent/kernel/diff.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const neigh = (n: number, mac = n) =>
  ({
    kind: 'neigh',
    ns: 'host',
    dev: 'flannel.1',
    ip: `10.244.${n}.0`,
    mac: `02:00:00:00:00:${mac.toString(16).padStart(2, '0')}`,
    proto: 112,
  }) as Resource

describe('the time of diff() and sentences()', () => {
  it('is linear: a hundred thousand take seconds, not hours', () => {
    const many = Array.from(
      { length: 100_000 },
      (_, i) => ({ ...neigh(0), ip: `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}` }) as Resource,
    )
    const started = performance.now()
    diff(many, knownOf(many.map((resource) => ({ resource }))))
    assert.ok(performance.now() - started < 20_000)
  })

  it('thirty thousand failures for one reason are told in one sentence, in a time that grows with their number', () => {
    const failed = new Map(
      Array.from({ length: 30_000 }, (_, i) => [
        putOf({ ...neigh(1), ip: `10.${i >> 8}.${i & 255}.0` as Ip } as Resource),
        'Cannot find device "flannel.1"',
      ]),
    )
    const began = performance.now()
    assert.deepEqual(sentences(failed), [
      'Cannot make neighbour 10.0.0.0 on flannel.1 and 29999 more: Cannot find device "flannel.1"',
    ])
    assert.ok(performance.now() - began < 5000, `${performance.now() - began} ms`)
  })
})
