// lane: quick
// Tests docs/security.md.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dir, '../..')
const TEXT = readFileSync(join(ROOT, 'docs/security.md'), 'utf8')
/** Until here each sentence is one that a test holds. */
const HELD = TEXT.slice(TEXT.indexOf('\n## '), TEXT.indexOf('\n## How to report'))
// `- Sentence. [file](../test/file): title; [file](…): title`
const ENTRY = /^- (?<said>[A-Z`].+?\.) (?<tests>\[test\/.+)$/
const TEST = /^\[(?<name>test\/[\w/-]+\.test\.ts)\]\(\.\.\/(?<path>test\/[\w/-]+\.test\.ts)\): (?<title>.+)$/

describe('docs/security.md', () => {
  const lines = HELD.split('\n').filter((line) => line !== '' && !line.startsWith('## '))

  it('says nothing but what a test holds: each line is a sentence, and names one or more', () => {
    assert.ok(lines.length > 20, `${lines.length} lines`)
    assert.deepEqual(
      lines.filter((line) => !ENTRY.test(line) || testsOf(line).some((one) => !TEST.test(one))),
      [],
    )
  })

  it('names files that are there, and titles that stand in them', () => {
    const gone = lines.flatMap(testsOf).filter((one) => {
      const { name, path = '', title = '' } = TEST.exec(one)?.groups ?? {}
      return name !== path || !existsSync(join(ROOT, path)) || !titled(readFileSync(join(ROOT, path), 'utf8'), title)
    })
    assert.deepEqual(gone, [])
  })

  it('is where README leads', () =>
    assert.match(readFileSync(join(ROOT, 'README.md'), 'utf8'), /\]\(docs\/security\.md\)/))
})

function testsOf(line: string): string[] {
  return (ENTRY.exec(line)?.groups?.['tests'] ?? '').split(/; (?=\[test\/)/)
}

// A title may be made of a template: then what the page has of it has to stand there, its first or its last part.
function titled(source: string, title: string): boolean {
  const at = ["'", '`', '}: '].flatMap((before) =>
    source.includes(before + title) ? [source.indexOf(before + title) + before.length + title.length] : [],
  )
  return title.length >= 12 && at.some((end) => /^['`$]/.test(source.slice(end)))
}
