// lane: quick
// Tests agent/page/grid-layout.ts.
import assert from 'node:assert/strict'
import { cellAt, gridLayout, neighbour } from '../../../agent/page/grid-layout.ts'

describe('the grid of peers', () => {
  it('has a cell for each peer, none above another, in lines and groups', () => {
    for (const width of [300, 900, 1300]) {
      for (const counts of [[13], [100], [400, 300, 300], [5000], [1, 4999]]) {
        const groups = counts.map((count, i) => ({ name: counts.length > 1 ? `zone ${i}` : '', count }))
        const drawn = gridLayout(groups, width)
        assert.equal(
          drawn.cells.length,
          counts.reduce((sum, count) => sum + count, 0),
        )
        assert.equal(new Set(drawn.cells.map(({ x, y }) => `${x} ${y}`)).size, drawn.cells.length)
        assert.ok(drawn.cells.every(({ x, y }) => x + drawn.size <= width && y + drawn.size <= drawn.height))
        assert.equal(drawn.heads.length, counts.length > 1 ? counts.length : 0)
      }
    }
  })
  it('finds the cell below a pointer, and none between cells', () => {
    const drawn = gridLayout(
      [
        { name: 'a', count: 70 },
        { name: 'b', count: 90 },
      ],
      640,
    )
    for (const [i, { x, y }] of drawn.cells.entries()) {
      assert.equal(cellAt(drawn, x, y), i)
      assert.equal(cellAt(drawn, x + drawn.size - 0.5, y + drawn.size / 2), i)
      assert.equal(cellAt(drawn, x + drawn.size + 0.5, y), undefined)
    }
    assert.equal(cellAt(drawn, 1, 1), undefined)
    assert.equal(cellAt(drawn, 1, 100_000), undefined)
  })
  it('an arrow key goes to the cell beside, above or below, and over the edge of a group', () => {
    const drawn = gridLayout(
      [
        { name: 'a', count: 30 },
        { name: 'b', count: 30 },
      ],
      640,
    )
    const { across } = drawn
    assert.deepEqual(
      [
        neighbour(drawn, 0, 'ArrowRight'),
        neighbour(drawn, 1, 'ArrowLeft'),
        neighbour(drawn, 0, 'ArrowLeft'),
        neighbour(drawn, 0, 'ArrowUp'),
        neighbour(drawn, 2, 'ArrowDown'),
        neighbour(drawn, 30, 'ArrowUp'),
        neighbour(drawn, 5, 'End'),
        neighbour(drawn, 5, 'Home'),
        neighbour(drawn, 59, 'ArrowRight'),
        neighbour(drawn, 5, 'x'),
      ],
      [1, 0, undefined, undefined, across + 2, across, 59, 0, undefined, undefined],
    )
  })
})
