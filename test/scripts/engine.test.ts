// lane: quick
// Tests scripts/engine.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sha256 } from '../../scripts/archive.ts'
import { compareWithRelease } from '../../scripts/engine.ts'

const FILES = { 'a.c': 'int a;\n', 'a.h': 'extern int a;\n' }
const RELEASE = `# The release.\n${Object.entries(FILES)
  .map(([name, text]) => `${sha256(text)}  ${name}\n`)
  .join('')}`

describe('compareWithRelease()', () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-release-'))
    for (const [name, text] of Object.entries(FILES)) writeFileSync(join(dir, name), text)
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('takes the files of the release, and removes every other one', () => {
    writeFileSync(join(dir, 'more.h'), '')
    compareWithRelease(dir, RELEASE)
    assert.deepEqual(readdirSync(dir).sort(), ['a.c', 'a.h'])
  })

  it('refuses a file that differs or is missing, and names it with both hashes', () => {
    writeFileSync(join(dir, 'a.c'), 'int b;\n')
    assert.throws(
      () => compareWithRelease(dir, RELEASE),
      (cause: Error) =>
        [join(dir, 'a.c'), sha256('int b;\n'), sha256(FILES['a.c'])].every((one) => cause.message.includes(one)),
    )
    rmSync(join(dir, 'a.c'))
    assert.throws(() => compareWithRelease(dir, RELEASE), /a\.c: it has no file, want [0-9a-f]{64} /)
  })

  it('has the sources and headers of the engine, and says which release they are of', () => {
    const text = readFileSync(join(import.meta.dir, '../../native/engine.sha256'), 'utf8')
    const [, version] = /^quickjs-ng==(\d+\.\d+\.\d+)/m.exec(
      readFileSync(join(import.meta.dir, '../../native/requirements.txt'), 'utf8'),
    ) as RegExpExecArray
    assert.ok(text.includes(`quickjs-ng v${version}`))
    for (const name of ['quickjs.c', 'quickjs.h', 'libregexp.c', 'libunicode.c', 'dtoa.c'])
      assert.match(text, new RegExp(`^[0-9a-f]{64}  ${name}$`, 'm'))
  })
})
