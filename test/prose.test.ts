// lane: quick
// Tests scripts/prose.ts, and every page.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { execa } from 'execa'
import { check, checkComments, helpText, LONGEST, pageFiles, report } from '../scripts/prose.ts'
import { commandWords } from './support/command-words.ts'

const ROOT = join(import.meta.dir, '..')

describe('prose', () => {
  for (const file of pageFiles())
    it(`${file}: sentences are short and turns of speech plain`, () => {
      const checked = check(file, readFileSync(join(ROOT, file), 'utf8'))
      assert.deepEqual(checked.findings, [], report(checked))
    })

  it('sentences of comments are short, and comments and titles of tests use no turn to avoid', () => {
    const files = [
      ...new Glob('{lib,agent,cli,plugins,scripts,tools,bench,test}/**/*.{ts,tsx}').scanSync({ cwd: ROOT }),
    ].filter((file) => file !== 'scripts/prose.ts' && file !== 'test/prose.test.ts')
    const findings = files
      .flatMap((file) => checkComments(file, readFileSync(join(ROOT, file), 'utf8')))
      .map(({ file, line, rule, text }) => `${file}:${line}: ${rule}: ${text}`)
    assert.deepEqual(findings, [])
  })

  it('the help of every command: sentences are short and turns of speech plain', async function () {
    this.timeout(120_000)
    const helps = ['', ...(await commandWords())]
    assert.ok(helps.includes('cni add') && helps.includes('doctor'), helps.join())
    for (const words of helps) {
      const { stdout } = await execa(join(ROOT, 'dist/plumb'), [...words.split(' ').filter(Boolean), '--help'])
      const checked = check(`plumb ${words} --help`, helpText(stdout))
      assert.ok(checked.sentences > 0, stdout)
      assert.deepEqual(checked.findings, [], report(checked))
    }
  })
})

describe('check()', () => {
  const rules = (text: string) => check('page', text).findings.map(({ line, rule }) => `${line}: ${rule}`)
  const words = (count: number) => `${'word '.repeat(count).trim()}.`

  it(`finds a sentence of more than ${LONGEST} words, in a paragraph, an item and a cell, and gives its line`, () => {
    const long = `${LONGEST + 1} words; at most ${LONGEST}`
    assert.deepEqual(
      rules(`# Title\n\nShort.\n${words(LONGEST + 1)}\n\n- ${words(LONGEST + 1)}\n\n| a | ${words(LONGEST + 1)} |\n`),
      [`3: ${long}`, `6: ${long}`, `8: ${long}`],
    )
    assert.deepEqual(rules(`${words(LONGEST)} ${words(LONGEST)}`), [])
  })
  it('ends a sentence at a full stop, an exclamation mark or a question mark alone, not at a colon or a semicolon', () => {
    const half = 'word '.repeat(LONGEST / 2).trim()
    for (const mark of [':', ';', ','])
      assert.deepEqual(rules(`${half}${mark} more ${half}.`), [`1: ${LONGEST + 1} words; at most ${LONGEST}`])
    for (const mark of ['.', '!', '?', '.)']) assert.deepEqual(rules(`${half}${mark} More ${half}.`), [])
    assert.deepEqual(rules(`${half}:\n\n- ${half}\n- ${half}\n`), [])
  })
  it('finds a long sentence in a comment of several lines, and gives the line where its paragraph begins', () => {
    const long = words(LONGEST + 1).split(' ')
    const found = (text: string) => checkComments('a.ts', text).map(({ line, rule }) => `${line}: ${rule}`)
    const rule = `${LONGEST + 1} words; at most ${LONGEST}`
    assert.deepEqual(found(`const a = 1\n// ${long.slice(0, 20).join(' ')}\n// ${long.slice(20).join(' ')}\n`), [
      `2: ${rule}`,
    ])
    assert.deepEqual(found(`/**\n * Short.\n * ${long.join(' ')}\n */\n`), [`2: ${rule}`])
    assert.deepEqual(found(`const a = 1 // ${long.join(' ')}\n// ${words(LONGEST)}\n`), [])
  })
  it('takes a piece of code as one word, and leaves out code blocks, generated regions and titles of tests', () => {
    assert.deepEqual(rules(`\`${words(LONGEST)}\` ${words(LONGEST - 1)}`), [])
    assert.deepEqual(
      rules('```sh\nwhoever\n```\n\n<!-- keys -->\n\nwhoever\n\n<!-- end -->\n\nHeld. [test/a.test.ts](a): whoever'),
      [],
    )
  })
  it('finds a turn to avoid in a comment and in the title of a test, and not in code', () => {
    const found = checkComments(
      'a.ts',
      "// Made anew.\nconst anew = 1\n  it('is made anew', () => {})\n// The key `anew` counts.\n",
    )
    assert.deepEqual(
      found.map(({ line }) => line),
      [1, 3],
    )
  })
  it('finds a turn to avoid, and says what to write instead', () => {
    assert.deepEqual(rules('Plain.\n\nWhoever reads it.'), ['3: not "whoever", but name the person or the program'])
  })
})

describe('docs/decisions/README.md', () => {
  it('names every decision once, in order, by its title', () => {
    const folder = join(ROOT, 'docs/decisions')
    const lines = readdirSync(folder)
      .filter((file) => /^\d{4}-.*\.md$/.test(file))
      .sort()
      .map((file) => {
        const [heading = ''] = readFileSync(join(folder, file), 'utf8').split('\n', 1)
        return `- [${file.slice(0, 4)}](${file}): ${heading.replace(/^# \d+[.:] /, '')}`
      })
    const index = readFileSync(join(folder, 'README.md'), 'utf8')
    assert.deepEqual(index.match(/^- \[\d{4}\].*$/gm), lines)
  })
})
