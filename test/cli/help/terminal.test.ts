// lane: quick
// Tests cli.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { commands } from '../../../cli/commands.ts'
import { terminal } from '../../../cli/help/terminal.ts'
import type { Entry } from '../../../cli/options.ts'

const DIST = join(import.meta.dir, '../../../dist')
const ESCAPE = '\u001b'
const PAGES = join(import.meta.dir, '../../../docs/plugins')

describe('plumb help', () => {
  const plugins = readdirSync(DIST).filter((name) => !name.startsWith('.') && name !== 'plumb')

  it('lists every command and every plugin, each with what it is', async () => {
    const { exitCode, stdout } = await help()
    assert.equal(exitCode, 0)
    for (const name of [...plugins, ...Object.keys(commands), 'help'])
      assert.match(stdout, new RegExp(`^  ${name} +\\S.{9}`, 'm'))
    assert.deepEqual(await help('--help'), { exitCode: 0, stdout, stderr: '' })
  })

  for (const name of ['plugins', ...plugins])
    it(`${name}: prints the page, its keys and codes in lines of at most 100 columns, and no marks`, async () => {
      const { exitCode, stdout, stderr } = await help(name)
      assert.deepEqual([exitCode, stderr], [0, ''])
      const page = readFileSync(join(PAGES, `${name === 'plugins' ? 'README' : name}.md`), 'utf8')
      assert.ok(stdout.startsWith(`${name === 'plugins' ? 'Plugins' : name}\n\n`), stdout.slice(0, 100))
      assert.ok(stdout.includes('\n\nKEYS\n\n') || name === 'plugins')
      // A long one may stand in two lines, broken somewhere.
      for (const [, key = ''] of page.matchAll(/^\| (`[^`|]+`|\d+) +\|/gm))
        assert.match(stdout, new RegExp(`^${RegExp.escape(key.replaceAll('`', '').slice(0, 15))}`, 'm'))
      assert.deepEqual(
        stdout
          .split('\n')
          .filter(
            (line) =>
              (line.length > 100 && !line.startsWith('    ')) ||
              line.includes(ESCAPE) ||
              /<!--|```|^\||\]\(/.test(line),
          ),
        [],
      )
    })

  it('knows every file of cli/ that runs a command, each at a place of its own', async () => {
    const files = readdirSync(join(import.meta.dir, '../../../cli')).filter((file) => file.endsWith('.ts'))
    const isCommand = (file: string) =>
      /^export ((async )?function run\(|\{.*\bas run\b)/m.test(
        readFileSync(join(import.meta.dir, '../../../cli', file), 'utf8'),
      )
    assert.deepEqual(
      files
        .filter(isCommand)
        .map((file) => file.replace(/\.ts$/, ''))
        .sort(),
      Object.keys(commands).sort(),
    )
    const places = await Promise.all(
      Object.values(commands).map(async ({ load }) => ((await load()) as unknown as { entry: Entry }).entry.place),
    )
    assert.deepEqual(
      places,
      [...new Set(places)].sort((one, other) => one - other),
    )
  })

  it('COMMAND prints the help of the command, of its verbs too', async () => {
    assert.deepEqual(await help('cni'), await plumb('cni', '--help'))
    assert.deepEqual(await help('cni', 'add'), await plumb('cni', 'add', '--help'))
  })

  const wrong: [string, string][] = [
    ['brigde', 'plumb has no plugin and no command "brigde", did you mean "bridge"?; see plumb help'],
    ['sttus', 'plumb has no plugin and no command "sttus", did you mean "status"?; see plumb help'],
    ['toString', 'plumb has no plugin and no command "toString"; see plumb help'],
    ['README', 'plumb has no plugin and no command "README"; see plumb help'],
    ['bridge ptp', 'plumb help wants one name, not "bridge ptp"; see plumb help'],
  ]
  for (const [words, message] of wrong)
    it(`${words}: exits 2 with a hint`, async () => {
      assert.deepEqual(await help(...words.split(' ')), { exitCode: 2, stdout: '', stderr: message })
    })

  async function help(...words: string[]): Promise<Said> {
    return plumb(...(words[0] === '--help' ? words : ['help', ...words]))
  }
})

interface Said {
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly stderr: string
}

async function plumb(...argv: string[]): Promise<Said> {
  const { exitCode, stdout, stderr } = await execa(join(DIST, 'plumb'), argv, {
    reject: false,
    extendEnv: false,
    env: {},
  })
  return { exitCode, stdout, stderr }
}

describe('terminal()', () => {
  it('wraps paragraphs, items and cells, leaves code as it is, and drops marks', () => {
    const page = `# one

Words of \`code\` and a [link](to.md), **wide**
enough.

<!-- keys -->

| key   | what it does |
| ----- | ------------ |
| \`a\\|b\` | it goes on for longer than the room |
| \`b\`   | short        |

<!-- end -->

## Two words

- an item that is too long for a line
- b

\`\`\`sh
a   |  b

c
\`\`\`
`
    assert.equal(
      terminal(page, { columns: 24, isBold: false }),
      `one

Words of code and a
link, wide enough.

key  what it does

a|b  it goes on for
     longer than the
     room

b    short

TWO WORDS

- an item that is too
  long for a line
- b

    a   |  b

    c`,
    )
    assert.ok(terminal(page, { columns: 24, isBold: true }).includes(`${ESCAPE}[1mTWO WORDS${ESCAPE}[22m`))
  })
  it('breaks words that are longer than their column, before a point where there is one', () => {
    assert.equal(terminal('ab abc.def.gh i', { columns: 8, isBold: false }), 'ab\nabc.def\n.gh i')
    assert.equal(terminal('abcdefghij kl', { columns: 4, isBold: false }), 'abcd\nefgh\nij\nkl')
  })
})
