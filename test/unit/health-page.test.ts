// Tests agent/health.
import assert from 'node:assert/strict'
import { add, begin, type History } from '../../agent/health/page/history.ts'
import { layout, type Place } from '../../agent/health/page/layout.ts'

describe('layout()', () => {
  const far = (a: Place, b: Place) => Math.hypot(a.x - b.x, a.y - b.y)

  it('draws a few as cards, a hundred as spokes, a thousand as dots, and counts more than that', () => {
    assert.deepEqual(
      [0, 1, 3, 10, 100, 500, 1000, 1001, 10_000].map((count) => layout(count, 730).look),
      ['cards', 'cards', 'cards', 'cards', 'spokes', 'dots', 'dots', 'none', 'none'],
    )
    assert.ok([1, 3, 8].every((count) => layout(count, 1200).look === 'cards'))
    assert.deepEqual(
      [1, 3, 5, 6, 20, 100, 1000].map((count) => layout(count, 327).look),
      ['cards', 'cards', 'cards', 'cards', 'dots', 'dots', 'none'],
    )
  })
  it('gives every node a place of its own inside the picture, the same each time', () => {
    for (const width of [280, 327, 520, 730, 1200]) {
      for (const count of [1, 2, 3, 5, 8, 13, 40, 99, 250, 700]) {
        const drawn = layout(count, width)
        const { look, places, height, centre } = drawn
        if (look === 'none') continue
        assert.equal(places.length, count)
        assert.deepEqual(layout(count, width), drawn)
        const least = { cards: 56, spokes: 11, dots: 12 }[look]
        for (const [i, a] of places.entries()) {
          assert.ok(
            a.x >= 0 && a.x <= width && a.y >= 0 && a.y <= height,
            `${count} in ${width}: ${JSON.stringify(a)} of ${height}`,
          )
          assert.ok(far(a, centre) >= least, `${count} in ${width}: ${i} is in the centre`)
          for (const b of places.slice(i + 1))
            assert.ok(far(a, b) >= least, `${count} in ${width}: ${look} ${far(a, b)}`)
        }
      }
    }
  })
})

describe('the page’s history', () => {
  const seen = (moments: readonly (readonly [at: number, drift: number, repairs: number])[]): History =>
    moments.reduce((history, [at, drift, repairs]) => add(history, at, { drift, repairs }), begin(0))

  it('keeps the worst drift of a second and the sum of its repairs', () => {
    assert.deepEqual(
      seen([
        [100, 0, 0],
        [200, 3, 0],
        [300, 0, 3],
        [900, 0, 1],
      ]),
      { start: 0, binMs: 1000, bins: [{ drift: 3, repairs: 4 }], drift: 0 },
    )
  })
  it('carries on what lasts, and not what was over within its second', () => {
    const { bins } = seen([
      [0, 2, 0],
      [3000, 5, 0],
      [3500, 0, 5],
      [6000, 0, 0],
    ])
    assert.deepEqual(
      bins.map(({ drift }) => drift),
      [2, 2, 2, 5, 0, 0, 0],
    )
  })
  it('halves its resolution when it is full, and loses no repair', () => {
    const history = seen(Array.from({ length: 1000 }, (_, i) => [i * 1000, 0, 1] as const))
    assert.equal(history.binMs, 16_000)
    assert.ok(history.bins.length <= 120)
    assert.equal(
      history.bins.reduce((sum, { repairs }) => sum + repairs, 0),
      1000,
    )
    assert.equal(seen([[365 * 86_400_000, 1, 1]]).bins.length <= 120, true)
  })
})

describe('the page', () => {
  let page: Readonly<Record<'html' | 'js' | 'css' | 'icon', string>>
  before(async () => {
    page = (await import('../../agent/health/page.ts')).page
  })
  it('is text that asks nobody but the agent, by relative addresses', () => {
    assert.match(page.html, /<script type="module" src="page\.js">/)
    for (const [name, text] of Object.entries(page)) {
      assert.ok(text.length > 100, name)
      const addresses = [...text.matchAll(/\b(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}[^\s"'`)]*/gi)]
        .map(([found]) => found)
        .filter((found) => !found.includes('www.w3.org/'))
      assert.deepEqual(addresses, [], name)
      assert.doesNotMatch(text, /\b(?:src|href)="\//)
    }
    assert.doesNotMatch(page.html, /<style|style="|<script(?! type="module" src)|\son[a-z]+=/)
  })
  it('is small: at most 48 kB of script and style', () => {
    assert.ok(page.js.length + page.css.length < 48_000, `${page.js.length} + ${page.css.length}`)
  })
})
