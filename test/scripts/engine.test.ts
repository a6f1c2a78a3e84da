// lane: quick
// Tests scripts/engine.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { sha256 } from '../../scripts/archive.ts'
import { compareWithRelease, compileProfiled, profileMisfits } from '../../scripts/engine.ts'
import { skip } from '../support/skip.ts'

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

describe('the profile of the engine', () => {
  it('fits the sources of the engine as this gcc compiles them', async function () {
    const misfits = await profileMisfits()
    if (/another gcc/.test(misfits)) skip(this, `the profile is not for the gcc of this machine: ${misfits}`)
    assert.equal(misfits, '', 'make it again: node_modules/.bin/bun scripts/profile.ts')
  })

  it('that does not fit is named, and the sources compile all the same', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-profile-'))
    try {
      const source = (body: string) => writeFileSync(join(dir, 'a.c'), `int a(int n) {\n${body}\nreturn n;\n}\n`)
      const misfits = () => compileProfiled('gcc', dir, 'a')
      source('if (n > 1) n *= 3;')
      assert.equal(await misfits(), 'a.c: gcc warns 1 times', 'there is no profile')
      await compileProfiled('gcc', dir, 'a', ['-fprofile-generate', '-fprofile-update=single'])
      writeFileSync(join(dir, 'main.c'), 'int a(int);\nint main(void) { return a(0); }\n')
      await execa('gcc', ['-fprofile-generate', 'main.c', 'a.o', '-o', 'main'], { cwd: dir })
      await execa(join(dir, 'main'), { cwd: dir })
      assert.equal(await misfits(), '')
      source('while (n > 1) n /= n % 2 ? 3 : 2;')
      rmSync(join(dir, 'a.o'))
      assert.match(await misfits(), /^a\.c: gcc warns \d times$/)
      assert.ok(readdirSync(dir).includes('a.o'))
      const profile = readFileSync(join(dir, 'a.gcda'))
      source('if (n > 1) n *= 3;')
      const wrong = Buffer.from(profile)
      wrong.fill(0xfe, wrong.length - 24)
      writeFileSync(join(dir, 'a.gcda'), wrong)
      rmSync(join(dir, 'a.o'))
      assert.equal(await misfits(), 'a.c: gcc refuses its profile')
      assert.ok(readdirSync(dir).includes('a.o'))
      profile.set(Buffer.from('*33B'), 4)
      writeFileSync(join(dir, 'a.gcda'), profile)
      assert.match(await misfits(), /^a\.c: its profile is of another gcc, /)
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})
