import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'

// `npm run test:fuzz [-- CASES [SEED [MINUTES]]]`: as many cases as are asked for over all targets, or as many as each
// file gets through in the time, and what came of each as a table.
const [cases = '1000000', seed = '1', minutes = ''] = process.argv.slice(2)
const dir = mkdtempSync(join(tmpdir(), 'plumb-fuzz-'))
const figures = join(dir, 'figures')
try {
  const env = {
    PLUMB_FUZZ_CASES: cases,
    PLUMB_FUZZ_SEED: seed,
    PLUMB_FUZZ_MINUTES: minutes,
    PLUMB_FUZZ_FIGURES: figures,
    PLUMB_TEST_LIMIT_S: '86400',
  }
  const started = performance.now()
  const { exitCode } = await execa(process.execPath, ['test/run.ts', '--only', 'fuzz'], {
    cwd: join(import.meta.dir, '../..'),
    env,
    stdio: 'inherit',
    reject: false,
  })
  process.stdout.write(
    `\n${table(readFileSync(figures, 'utf8'))}\n\nseed ${seed}, ${cases} cases asked for, in ${Math.round((performance.now() - started) / 60_000)} minutes\n`,
  )
  process.exitCode = exitCode ?? 1
} finally {
  rmSync(dir, { recursive: true, force: true })
}

interface Row {
  readonly target: string
  readonly cases: number
  readonly answered: number
  readonly refused: number
  readonly slowestMs: number
  readonly failures: number
}

function table(lines: string): string {
  const rows: Row[] = lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const sum = (of: Exclude<keyof Row, 'target'>) => rows.reduce((all, row) => all + row[of], 0)
  const total: Row = {
    target: 'all',
    cases: sum('cases'),
    answered: sum('answered'),
    refused: sum('refused'),
    slowestMs: Math.max(...rows.map(({ slowestMs }) => slowestMs)),
    failures: sum('failures'),
  }
  const shown = [...rows, total].map(
    ({ target, ...rest }) => `| ${[target, ...Object.values(rest).map((n) => n.toLocaleString('en'))].join(' | ')} |`,
  )
  return [
    '| target | cases | answered | refused | slowest ms | failures |',
    '| --- | ---: | ---: | ---: | ---: | ---: |',
    ...shown,
  ].join('\n')
}
