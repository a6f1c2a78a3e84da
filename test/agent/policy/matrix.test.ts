// lane: quick
// Tests agent/policy/matrix.ts.
import assert from 'node:assert/strict'
import { cellOf, matrixOf } from '../../../agent/policy/matrix.ts'
import { decision } from '../../../agent/policy/view.ts'
import { atOnce } from '../../../agent/scheduler/pieces.ts'
import { NAMESPACES, world } from '../../support/policy-worlds.ts'
import { generator } from '../../support/random.ts'

const PORTS = [1, 79, 80, 81, 443, 8000, 8040, 8080, 8081, 65_535]

describe('the policies of a node at once', () => {
  it('says the same as `plumb policy test` for all pairs of generated worlds', () => {
    for (let seed = 1; seed <= 12; seed++) {
      const known = world(generator(seed), 14, 8)
      const { namespaces, rows } = atOnce(matrixOf(known))
      for (const [i, from] of namespaces.entries())
        for (const [j, to] of namespaces.entries()) {
          const seen = new Set<boolean>()
          const { pairs, more } = atOnce(cellOf(known, from, to))
          assert.equal(more, 0)
          for (const pair of pairs) {
            for (const protocol of ['TCP', 'UDP'] as const)
              for (const port of PORTS) {
                const { verdict } = decision(known, { from: pair.from, to: pair.to, protocol, port })
                seen.add(verdict.passes)
                const told = pair.ports.find(({ ports }) => has(ports, protocol, port))
                assert.deepEqual(
                  [told?.passes, told?.reason],
                  [verdict.passes, verdict.reason],
                  `${seed}: ${pair.from} to ${pair.to} ${protocol} ${port}: ${JSON.stringify(pair.ports)}`,
                )
              }
            const icmp = decision(known, { from: pair.from, to: pair.to, protocol: 'ICMP', port: 0 }).verdict
            assert.equal(pair.ports.find(({ ports }) => ports.includes('ICMP'))?.passes, icmp.passes)
          }
          const cell = rows[i]?.[j]
          if (pairs.length === 0) assert.equal(cell, '-')
          else if (seen.size === 2) assert.equal(cell, 'p', `${seed}: ${from} to ${to}`)
          // A port that this test does not try may be decided otherwise.
          else assert.ok(cell === 'p' || cell === (seen.has(true) ? 'o' : 'c'), `${seed}: ${from} to ${to}: ${cell}`)
        }
    }
  })
  it('has no pair without a pod of this node, and none of a pod with itself', () => {
    const known = world(generator(3), 6, 0)
    const pairs = NAMESPACES.flatMap((from) => NAMESPACES.flatMap((to) => atOnce(cellOf(known, from, to)).pairs))
    assert.ok(pairs.every(({ from, to }) => from !== to))
    assert.ok(pairs.every(({ from, to }) => known.state.locals.has(from) || known.state.locals.has(to)))
    assert.ok(atOnce(matrixOf(known)).rows.every((row) => /^[o-]+$/.test(row)))
  })
  it('decides 250 pods and 200 policies at once', () => {
    const known = world(generator(9), 250, 200)
    const begun = process.cpuUsage()
    const { rows } = atOnce(matrixOf(known))
    const { user } = process.cpuUsage(begun)
    assert.equal(rows.length, 3)
    // The aim is 200 ms. This only fails when it is another order of time.
    assert.ok(user < 10_000_000, `${user / 1000} ms`)
  })
})

// Whether words such as `TCP 80, 8000-8080; UDP all ports` have a port.
function has(words: string, protocol: string, port: number): boolean {
  return words.split('; ').some((one) => {
    const [, name, ranges = ''] = /^(TCP|UDP|SCTP) (.*)$/.exec(one) ?? []
    if (name !== protocol) return false
    if (ranges === 'all ports') return true
    return ranges.split(', ').some((range) => {
      const [from = 0, to = from] = range.split('-').map(Number)
      return port >= from && port <= to
    })
  })
}
