// lane: quick
// Tests docs/agent.md, by agent/settings/flags.ts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { FLAGS, type Flag } from '../../agent/settings/flags.ts'

const ROOT = join(import.meta.dir, '../..')

describe('docs/agent.md', () => {
  it('docs/agent.md has every setting with its default and its meaning', () => {
    const rows = read('docs/agent.md')
      .split('\n')
      .filter((line) => /^\| `[a-z0-9_-]+` +\|/.test(line))
      .map((line) => line.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('`', '')))
    assert.deepEqual(
      rows.map(([, name, , fallback, about]) => [name, fallback, about]),
      Object.entries<Flag>(FLAGS).map(([name, { fallback, about }]) => [name, fallback.replace(',', ', '), about]),
    )
  })
  it('the pages that others point to are there', () => {
    for (const [, page = ''] of read('docs/agent.md').matchAll(/\]\(([\w-]+\.md)\)/g))
      assert.ok(existsSync(join(ROOT, 'docs', page)), page)
    assert.ok(existsSync(join(ROOT, 'docs/migrate-from-flannel.md')))
  })
})

function read(name: string): string {
  return readFileSync(join(ROOT, name), 'utf8')
}
