// lane: quick
// Tests bench/budget/budget.ts.
import assert from 'node:assert/strict'
import { type Budget, compare, partOf } from '../../../bench/budget/budget.ts'

const BUDGET: Budget = { versions: {}, paths: { vxlan: { request: 100_000 } }, calls: { 'bridge ADD': 50_000_000 } }
const measured = (request: number, add: number): Budget => ({
  versions: {},
  paths: { vxlan: { request } },
  calls: { 'bridge ADD': add },
})

describe('the comparison with a budget', () => {
  it('takes figures within two percent', () => {
    assert.deepEqual(compare(BUDGET, measured(101_900, 49_100_000)), { grew: [], fell: [] })
  })

  it('names a path and a call that cost more, with budget, figure and difference', () => {
    assert.deepEqual(compare(BUDGET, measured(102_100, 52_500_000)).grew, [
      'vxlan, request: 102,100 instructions, the budget has 100,000, 2.1 % more',
      'bridge ADD: 52,500,000 instructions, the budget has 50,000,000, 5.0 % more',
    ])
  })

  it('names what costs less, and does not refuse it', () => {
    assert.deepEqual(compare(BUDGET, measured(70_000, 50_000_000)), {
      grew: [],
      fell: ['vxlan, request: 70,000 instructions, the budget has 100,000, 30.0 % less'],
    })
  })

  it('refuses what the budget lacks, and what was not measured', () => {
    const other = { versions: {}, paths: { 'host-gw': { first: 5 } }, calls: { 'bridge ADD': 50_000_000 } }
    assert.deepEqual(compare(BUDGET, other).grew, [
      'host-gw, first: 5 instructions, the budget has none',
      'vxlan, request: it was not measured',
    ])
  })

  it('judges one path, or the calls, by themselves', () => {
    const more = measured(110_000, 60_000_000)
    const grew = (path?: string) => compare(partOf(BUDGET, path), partOf(more, path)).grew
    assert.deepEqual(grew('vxlan'), ['vxlan, request: 110,000 instructions, the budget has 100,000, 10.0 % more'])
    assert.deepEqual(grew(), ['bridge ADD: 60,000,000 instructions, the budget has 50,000,000, 20.0 % more'])
    assert.deepEqual(compare(partOf(BUDGET, 'vxlan'), partOf({ ...BUDGET, paths: {} }, 'vxlan')).grew, [
      'vxlan, request: it was not measured',
    ])
  })
})
