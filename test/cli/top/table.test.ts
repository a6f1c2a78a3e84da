// lane: quick
// Tests cli/top/table.ts.
import assert from 'node:assert/strict'
import { initialState, type State } from '../../../cli/top/state.ts'
import { chosen, type Line, type Table } from '../../../cli/top/table.ts'

describe('the rows of plumb top', () => {
  const line = (name: string, value: number, tone: Line['tone'] = 'good'): Line => ({
    key: name,
    cells: [name, { text: `${value} ms`, value }, 'zone b'],
    tone,
    details: () => [name],
  })
  const table: Table = {
    headings: ['NODE', 'RTT', 'ZONE'],
    lines: [line('node-10', 0.15, 'error'), line('node-9', 12), line('node-2', 0.9)],
    empty: 'none',
  }
  const names = (change: Partial<State>) => chosen(table, { ...initialState('nodes'), ...change }).map(({ key }) => key)

  it('words are all wanted, ! negates, and a heading names its column', () => {
    assert.deepEqual(names({ search: 'NODE- zone' }), ['node-10', 'node-9', 'node-2'])
    assert.deepEqual(names({ search: 'node:9' }), ['node-9'])
    assert.deepEqual(names({ search: '!node:9 !node:10' }), ['node-2'])
    assert.deepEqual(names({ search: 'other:b' }), [])
    assert.deepEqual(names({ search: '!' }), ['node-10', 'node-9', 'node-2'])
    assert.deepEqual(names({ isProblemsOnly: true }), ['node-10'])
  })
  it('sorts numbers by their value, and numbers in names too', () => {
    assert.deepEqual(names({ column: 0 }), ['node-2', 'node-9', 'node-10'])
    assert.deepEqual(names({ column: 1 }), ['node-10', 'node-2', 'node-9'])
    assert.deepEqual(names({ column: 1, isDown: true }), ['node-9', 'node-2', 'node-10'])
  })
})
