// lane: quick
// Tests agent/page/views.ts, and the built page as text.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { viewsOfPage } from '../../../scripts/docs.ts'

describe('the page', () => {
  let page: Readonly<Record<'html' | 'js' | 'css' | 'icon', string>>
  before(async () => {
    page = (await import('../../../agent/page/index.ts')).page
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
  it('is at most 120 kB', () => {
    const bytes = Object.values(page).reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    assert.ok(bytes <= 120_000, `${bytes} bytes`)
  })
})

describe('the views of the page', () => {
  const root = join(import.meta.dir, '../../..')
  const files = [...new Glob('agent/page/*.{ts,tsx}').scanSync({ cwd: root })]
  const sources = files.map((file) => readFileSync(join(root, file), 'utf8')).join('\n')
  const found = (pattern: RegExp) => [...new Set([...sources.matchAll(pattern)].map(([, word = '']) => word))].sort()

  it('each has a key of its own, 1 to 9, and every link of the page leads to one', async () => {
    const keys = (await viewsOfPage()).map(({ key }) => key)
    assert.ok(keys.length <= 9 && new Set(keys).size === keys.length, keys.join())
    const links = found(/\bview: '(\w+)'/g)
    assert.ok(links.length > 3)
    assert.deepEqual(
      links.filter((one) => !keys.includes(one)),
      [],
    )
  })
  it('say which lists they ask for', async () => {
    const asks = (await viewsOfPage()).flatMap((view) => view.asks ?? [])
    assert.deepEqual(found(/\buse(?:List|Answer)<[^(]*>\(\s*[`'](\w+)/g), [...new Set(asks)].sort())
  })
})
