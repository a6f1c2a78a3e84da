// lane: quick
// Tests agent/policy/pairs.ts.
import assert from 'node:assert/strict'
import { cellOf } from '../../../agent/policy/matrix.ts'
import { groupsOf, worldOf } from '../../../agent/policy/pairs.ts'
import type { PolicyKnowledge } from '../../../agent/policy/view.ts'
import { atOnce, inPieces } from '../../../agent/scheduler/pieces.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { world } from '../../support/policy-worlds.ts'
import { generator } from '../../support/random.ts'

describe('questions about a large cluster', () => {
  // Pods of other nodes that are all alike.
  const crowded = (count: number): PolicyKnowledge => {
    const known = world(generator(3), 6, 0)
    const pods = new Map(known.cluster.pods)
    for (let i = 0; i < count; i++) {
      const ips = [`10.9.${i >> 8}.${i & 255}` as Ip]
      pods.set(`x/m${i}`, { namespace: 'x', name: `m${i}`, node: 'there', labels: {}, ips, ports: [] })
    }
    return { ...known, cluster: { ...known.cluster, pods } }
  }

  it('60,000 alike pods are one group, and the work may be left after every 64 pods', () => {
    const known = crowded(60_000)
    const work = groupsOf(known, worldOf(known))
    let pieces = 0
    for (;;) {
      const { done, value } = work.next()
      if (!done) {
        pieces++
        continue
      }
      assert.ok(value.some(({ members }) => members.length >= 60_000))
      assert.ok(pieces > 60_000 / 64, `${pieces}`)
      return
    }
  })
  it('pairs of pods that are not shown are counted, not gone through', () => {
    const known = crowded(30_000)
    const { more, pairs } = atOnce(cellOf(known, 'x', 'x'))
    const inX = [...known.cluster.pods].filter(([key, { ips }]) => key.startsWith('x/') && ips.length > 0)
    const local = inX.filter(([key]) => known.state.locals.has(key)).length
    const others = inX.length - local
    assert.ok(local > 0)
    assert.equal(more + pairs.length, 2 * local * others + local * (local - 1))
  })
  it('other work of the program goes on between the pieces', async () => {
    let others = 0
    const timer = setInterval(() => others++, 1)
    function* work(): Generator<void, string> {
      for (let i = 0; i < 100; i++) {
        for (const end = performance.now() + 1; performance.now() < end; );
        yield
      }
      return 'done'
    }
    try {
      assert.equal(await inPieces(work()), 'done')
    } finally {
      clearInterval(timer)
    }
    assert.ok(others >= 5, `${others}`)
  })
})
