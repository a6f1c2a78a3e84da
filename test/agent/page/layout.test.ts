// lane: quick
// Tests agent/page/layout.ts.
import assert from 'node:assert/strict'
import { layout } from '../../../agent/page/layout.ts'

describe('the picture of a few peers', () => {
  it('gives every card a place of its own inside the picture, the same each time', () => {
    for (const width of [280, 327, 520, 730, 1200]) {
      for (const count of [1, 2, 3, 5, 8, 12]) {
        const drawn = layout(count, width)
        // The cards stand one after the other then.
        if (!drawn) assert.ok(count > 8 || width < 480, `${count} in ${width}`)
        if (!drawn) continue
        assert.deepEqual(layout(count, width), drawn)
        for (const [i, a] of drawn.places.entries()) {
          assert.ok(a.x >= 0 && a.x <= width && a.y >= 0 && a.y <= drawn.height)
          for (const b of drawn.places.slice(i + 1)) assert.ok(Math.hypot(a.x - b.x, a.y - b.y) >= 56)
        }
      }
    }
  })
})
