import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Glob } from 'bun'
import { execa } from 'execa'
import { circumstances, write } from '../../../../bench/report.ts'
import type { Figures } from './figures.ts'
import { report } from './report.ts'

const ROOT = join(import.meta.dir, '../../../..')
/** In which files a walk is, and by which words its tests are known. */
const [WALKS, TITLES] = [
  /\btestPlugin\(/,
  'SIGKILL at system calls|SIGKILL of plumb agent at system calls|a power loss at any moment',
]
const CRASH = /^test\/lib\/verbs\/crash\/(agent|powerloss)\./

// The whole matrix, or of these test files alone: `npm run test:crash -- bridge`; `--write` puts the figures into
// bench/RESULTS.md.
const { values: flags, positionals: patterns } = parseArgs({
  allowPositionals: true,
  options: { jobs: { type: 'string', default: '2' }, write: { type: 'boolean', default: false } },
})
const dir = mkdtempSync(join(tmpdir(), 'plumb-crash-'))
const where = circumstances(['npm run test:crash', ...(patterns.length > 0 ? ['--', ...patterns] : [])].join(' '), [
  `plumb alone, ${flags.jobs} walks at a time`,
])
const began = performance.now()
const figures = join(dir, 'figures')
const { exitCode } = await execa(
  process.execPath,
  ['test/run.ts', ...files(), '--grep', TITLES, '--jobs', flags.jobs],
  { cwd: ROOT, env: { PLUMB_CRASH: figures, PLUMB_TEST_LIMIT_S: '7200' }, stdio: 'inherit', reject: false },
)
const lines = existsSync(figures) ? readFileSync(figures, 'utf8').trim().split('\n') : []
rmSync(dir, { recursive: true })
const text = `${where}\n\n${report(
  lines.map((line) => JSON.parse(line) as Figures),
  (performance.now() - began) / 60_000,
)}\n`
process.stdout.write(`\n${text}`)
if (flags.write) write(text, 'crash matrix')
process.exitCode = exitCode ?? 1

function files(): string[] {
  const all = [...new Glob('test/**/*.test.ts').scanSync({ cwd: ROOT })].filter(
    (name) => CRASH.test(name) || WALKS.test(readFileSync(join(ROOT, name), 'utf8')),
  )
  return all.filter((name) => patterns.length === 0 || patterns.some((pattern) => name.includes(pattern))).sort()
}
