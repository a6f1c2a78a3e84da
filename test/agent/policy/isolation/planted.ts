// Tests the isolation histories themselves. This puts the faults of faults.ts into a copy of the sources, one by one, and
// says after how many histories each is found.
//   bun test/agent/policy/isolation/planted.ts [--histories=500] [--workers=2] [--seed=1] [WORD …]
// WORD: only faults with this word in their name.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { execa } from 'execa'
import { type Change, FAULTS } from './faults.ts'
import { work } from './worker.ts'

const ROOT = join(import.meta.dir, '../../../..')
const { values, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    histories: { type: 'string', default: '500' },
    workers: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
  },
})

async function copy(): Promise<string> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-planted-'))
  await execa('git', ['checkout-index', '--all', `--prefix=${dir}/`], { cwd: ROOT })
  symlinkSync(join(ROOT, 'node_modules'), join(dir, 'node_modules'))
  return dir
}

// The sources of the copy are as before afterwards: the histories ask its oracle. Only dist/ has the fault.
async function plant(dir: string, changes: readonly Change[]): Promise<void> {
  const before = new Map(changes.map(({ file }) => [file, readFileSync(join(dir, file), 'utf8')]))
  const after = new Map(before)
  for (const { file, text, becomes } of changes) {
    const pieces = (after.get(file) as string).split(text)
    assert.equal(pieces.length, 2, `${file} has ${pieces.length - 1} times: ${text}`)
    after.set(file, pieces.join(becomes))
  }
  for (const [file, text] of after) writeFileSync(join(dir, file), text)
  await execa('npm', ['run', '--silent', 'build'], { cwd: dir })
  for (const [file, text] of before) writeFileSync(join(dir, file), text)
}

/** Gives how many histories were played, and the failure that was found. */
async function find(dir: string): Promise<{ readonly played: number; readonly failure?: string }> {
  const [workers, most] = [Number(values.workers), Number(values.histories)]
  const each = Math.ceil(most / workers)
  let [played, failure] = [0, undefined as string | undefined]
  await Promise.all(
    Array.from({ length: workers }, (_, i) =>
      work(dir, { first: Number(values.seed) * 1_000_000 + i * each, count: each, ms: 24 * 3_600_000 }, (one) => {
        if (failure === undefined) played++
        failure ??= one.failure
        return failure !== undefined
      }),
    ),
  )
  return { played, ...(failure !== undefined && { failure }) }
}

const dir = await copy()
try {
  for (const [name, changes] of Object.entries(FAULTS)) {
    if (!words.every((word) => name.includes(word))) continue
    await plant(dir, changes)
    const { played, failure } = await find(dir)
    const lines = failure?.split('\n') ?? []
    const said = lines.find((line) => !line.startsWith('history') && !line.startsWith('  '))
    if (failure !== undefined) process.stderr.write(`${failure}\n`)
    process.stdout.write(
      `${failure === undefined ? 'NOT found' : 'found'} in ${played} histories: ${name}${said ? `\n  ${said}` : ''}\n`,
    )
    if (failure === undefined) process.exitCode = 1
  }
} finally {
  rmSync(dir, { recursive: true })
}
