// lane: quick
// Tests agent/kernel/diff.ts.
import assert from 'node:assert/strict'
import { diff, face, type KernelObjects, knownOf, looks, resourceText } from '../../../agent/kernel/diff.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import fc from '../../support/properties.ts'

const neigh = (n: number, mac = n) =>
  ({
    kind: 'neigh',
    ns: 'host',
    dev: 'flannel.1',
    ip: `10.244.${n}.0`,
    mac: `02:00:00:00:00:${mac.toString(16).padStart(2, '0')}`,
    proto: 112,
  }) as Resource

describe('diff()', () => {
  const entries = fc.array(fc.record({ key: fc.integer({ min: 0, max: 12 }), mac: fc.integer({ min: 0, max: 2 }) }), {
    maxLength: 14,
  })
  const resources = entries.map((all) => [...new Map(all.map(({ key, mac }) => [key, neigh(key, mac)])).values()])

  it('finds what is to be added, changed and dropped: done, the kernel has what is wanted', () => {
    fc.assert(
      fc.property(resources, resources, (want, have) => {
        const known = knownOf(have.map((resource) => ({ resource })))
        assert.deepEqual(apply(known, diff(want, known)), sorted(want))
      }),
    )
  })
  it('finds the same when it is told of a list that the kernel agrees with, which differs little', () => {
    fc.assert(
      fc.property(resources, resources, fc.nat(14), fc.nat(14), (settled, others, from, count) => {
        const kept = [settled.slice(0, from), settled.slice(from + count)] as const
        const rest = others.filter((one) => !kept.flat().some((other) => face(other).key === face(one).key))
        const want = [...kept[0], ...rest, ...kept[1]]
        const known = knownOf(settled.map((resource) => ({ resource })))
        const found = diff(want, known, settled)
        assert.deepEqual(apply(known, found), sorted(want))
        assert.deepEqual(new Set(found.drop), new Set(diff(want, known).drop))
      }),
    )
  })
  it('drops what left the middle of a long list and comes nowhere else in it, and nothing that does', () => {
    const shared = neigh(5)
    const settled = [neigh(1), shared, neigh(2), { ...shared }, neigh(3)]
    const known = knownOf(settled.map((resource) => ({ resource })))
    const want = settled.filter((_, i) => i !== 1 && i !== 2)
    assert.deepEqual(diff(want, known, settled), { add: [], change: [], drop: [settled[2]] })
  })
  it('counts the first of two with one key', () => {
    assert.deepEqual(diff([neigh(1, 1), neigh(1, 2)], new Map()).add, [neigh(1, 1)])
  })
  it('changes what is odd, however alike it looks', () => {
    const [one] = [neigh(1)]
    assert.deepEqual(diff([one], knownOf([{ resource: one, odd: true }])).change, [{ want: one, have: one }])
  })
})

function apply(known: KernelObjects, { add, change, drop }: ReturnType<typeof diff>): string[] {
  const now = new Map(known)
  for (const one of drop) assert.ok(now.delete(face(one).key))
  for (const one of [...add, ...change.map(({ want }) => want)]) now.set(face(one).key, face(one))
  return [...now.values()].map(looks).sort()
}

function sorted(want: readonly Resource[]): string[] {
  return want.map(resourceText).sort()
}
