import { appendFileSync, readFileSync, rmSync, statSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { chosen, type TestFile, testFiles, wishOf } from './lanes.ts'
import type { Outcome } from './reporter.ts'
import { slowness } from './slowness.ts'
import { inMachine, type Line, missing } from './support/machine/machine.ts'

const ROOT = join(import.meta.dir, '..')
const BIN = join(ROOT, 'node_modules/.bin')
const isRoot = process.getuid?.() === 0
/** Set in the virtual machine: where the runner outside hears of each file. */
const GUEST = process.env['PLUMB_GUEST']
// Its own network, mounts and processes: whatever a test leaves, or dies from, goes with the namespaces. /etc and
// /var/lib are seen as they are, and written to memory.
const SCRIPT = `
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /mnt
for dir in etc opt var/lib; do
  mkdir -p /mnt/$dir/up /mnt/$dir/work
  mount -t overlay -o lowerdir=/$dir,upperdir=/mnt/$dir/up,workdir=/mnt/$dir/work overlay /$dir
done
rm -rf /etc/cni /opt/cni /var/lib/cni
ip link set lo up
exec "$@"`
const SANDBOX = [
  ...'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec'.split(' '),
  SCRIPT,
  'sandbox',
]

/** The checks of the sources, by their names. */
const TOOLS: Readonly<Record<string, readonly string[]>> = {
  types: ['tsc', '-p', '.'],
  'types of the page': ['tsc', '-p', 'agent/page'],
  lint: ['biome', 'check', '--colors=off', '--error-on-warnings', '.'],
  'dead code': ['knip', '--no-progress'],
}

/** What runs in one process: a file of tests, or a check of the sources. */
interface Job {
  readonly name: string
  readonly file?: TestFile
  readonly argv: readonly string[]
  readonly report?: string
  /** What it draws numbers from; another one in each run when left out. */
  readonly seed?: string
}
interface Report {
  readonly job: Job
  readonly outcomes: readonly Outcome[]
  readonly ms: number
  /** What the process printed, shown beside its failures. */
  readonly said: string
}

const wish = wishOf(process.argv.slice(2))
/**
 * By how much all limits are longer than they say (test/support/patience.ts). Each test process inherits it, and so does
 * the guest.
 */
process.env['PLUMB_PATIENCE'] ??= String(slowness())
const PATIENCE = Number(process.env['PLUMB_PATIENCE'])
if (PATIENCE > 1) process.stdout.write(`Limits are ${PATIENCE} times as long: this machine is busy or slow\n`)
/**
 * A test file in which no test begins or ends for so long is stuck; its processes are killed. A file as a whole may take
 * as long as it needs: the machine may be busy. Overridden by PLUMB_TEST_LIMIT_S.
 */
const LIMIT_MS = Number(process.env['PLUMB_TEST_LIMIT_S'] ?? (wish.isLong ? 7200 : GUEST ? 900 : 300 * PATIENCE)) * 1000
/** How often a report is looked at. */
const LOOK_MS = 1000
const jobs = [...checks(), ...files()]
if (jobs.length === 0) {
  process.stderr.write(`No test matches ${wish.words.join(' ')}\n`)
  process.exit(1)
}
// First and alone: the other tests call what it makes.
const made = GUEST ? [] : await all([{ name: 'build', argv: [process.execPath, 'scripts/build.ts'] }], 1)
/** As many files may fail and be tried again. */
const FEW = 5
/** Tests that failed, and passed when they ran alone. */
const unsteady: string[] = []
/** Files at a time. They wait for timers, for the kernel and for each other's processes for more than half of their time. */
const WIDTH = wish.jobs ?? 2 * availableParallelism()
const isHere = ({ file }: Job) => GUEST !== undefined || !(file?.lane === 'vm' || file?.lane === 'vmlong')
const isTimed = ({ file }: Job) => file?.lane === 'timed'
const reports = [
  ...made,
  ...(await all(
    jobs.filter((job) => isHere(job) && !isTimed(job)),
    WIDTH,
  )),
]
reports.push(...(await all(jobs.filter(isTimed), 1)))
// Last and alone: a machine in software wants all processors, and time that is not another test's.
reports.push(...(await there(jobs.filter((job) => !isHere(job)))))
const again = await secondTry(reports)
process.exitCode = summary([...reports.filter(({ job }) => !again.some((one) => one.job === job)), ...again])

/**
 * The files of a whole run that failed, once more, alone and with the same seed, with what came of it. What ran beside
 * it has disturbed a file that passes now: its tests count as passed, and the end of the run names each that failed
 * before. More than `FEW` files are no disturbance. A run of named files has no second try.
 */
async function secondTry(done: readonly Report[]): Promise<Report[]> {
  const failed = done.filter(({ job, outcomes }) => job.file && outcomes.some(({ state }) => state === 'failed'))
  if (wish.words.length > 0 || wish.isLong || GUEST || failed.length > FEW) return []
  const again: Report[] = []
  for (const { job, outcomes } of failed) {
    process.stdout.write(`once more, alone: ${job.name}\n`)
    const seed = outcomes.map(({ text }) => /^seed (\d+);/m.exec(text)?.[1]).find((one) => one !== undefined)
    const same = { ...job, ...(seed !== undefined && { seed }) }
    const [report] = isHere(job) ? await all([same], 1) : await there([job])
    if (!report) continue
    if (!report.outcomes.some(({ state }) => state === 'failed'))
      unsteady.push(...outcomes.filter(({ state }) => state === 'failed').map(({ title }) => `${job.name}: ${title}`))
    again.push({ ...report, job })
  }
  return again
}

// The gate's other half, which a word names by its beginning. Run by Bun, so that the age of the machine's Node does not
// matter.
function checks(): Job[] {
  return Object.entries(wish.only ? {} : TOOLS)
    .filter(([name]) => wish.words.length === 0 || wish.words.some((word) => name.startsWith(word)))
    .map(([name, [tool = '', ...args]]) => ({ name, argv: [process.execPath, '--bun', join(BIN, tool), ...args] }))
}

function files(): Job[] {
  const all = testFiles(ROOT)
  // A word that names a check means no file. The guest has paths.
  const words = wish.words.filter((word) => !Object.keys(TOOLS).some((name) => name.startsWith(word)))
  const wanted = GUEST
    ? all.filter(({ path }) => words.includes(path))
    : wish.words.length > 0 && words.length === 0
      ? []
      : chosen(all, { ...wish, words })
  return wanted.map((file, i) => {
    const mocha = [
      process.execPath,
      '--bun',
      join(BIN, 'mocha'),
      '--timeout',
      GUEST ? '100000' : '60000',
      '--require',
      join(ROOT, 'test/timeouts.ts'),
      '--reporter',
      join(ROOT, 'test/reporter.ts'),
      ...(wish.grep ? ['--grep', wish.grep] : []),
      file.path,
    ]
    return {
      name: file.name,
      file,
      argv: isRoot ? [...SANDBOX, ...mocha] : mocha,
      report: join(tmpdir(), `plumb-test-${process.pid}-${i}.jsonl`),
    }
  })
}

async function all(queue: readonly Job[], width: number): Promise<Report[]> {
  const left = [...queue]
  const done: Report[] = []
  async function work(): Promise<void> {
    for (let job = left.shift(); job; job = left.shift()) {
      const report = await run(job)
      done.push(report)
      show(report)
      if (GUEST)
        appendFileSync(
          GUEST,
          `${JSON.stringify({ name: job.name, outcomes: report.outcomes, ms: report.ms, said: report.said } satisfies Line)}\n`,
        )
    }
  }
  await Promise.all(Array.from({ length: width }, work))
  return done
}

/** What needs another kernel, in a machine that has it; where there can be none, each test of it is skipped. */
async function there(wanted: readonly Job[]): Promise<Report[]> {
  if (wanted.length === 0) return []
  const why = missing()
  if (!why) {
    const done: Report[] = []
    await inMachine(
      wanted.flatMap(({ file }) => file ?? []),
      ({ name, ...rest }) => {
        const report = { job: wanted.find((job) => job.name === name) ?? { name, argv: [] }, ...rest }
        done.push(report)
        show(report)
      },
    )
    return done
  }
  // Named, and not run.
  const named = await Promise.all(wanted.map((job) => run({ ...job, argv: [...job.argv, '--dry-run'] })))
  return named.map((one) => ({
    ...one,
    outcomes: one.outcomes.map((outcome) =>
      outcome.state === 'passed' ? { ...outcome, state: 'skipped', text: `no virtual machine: ${why}` } : outcome,
    ),
  }))
}

async function run(job: Job): Promise<Report> {
  if (!isRoot && job.file && job.file.lane !== 'quick')
    return {
      job,
      ms: 0,
      said: '',
      outcomes: [{ state: 'skipped', title: 'the file', ms: 0, text: 'it needs root, for namespaces' }],
    }
  const started = performance.now()
  const [file = '', ...args] = job.argv
  const env = {
    NODE_ENV: 'test',
    ...(job.report && { PLUMB_REPORT: job.report }),
    ...(job.seed && { PLUMB_SEED: job.seed }),
    ...(isRoot && { PLUMB_SANDBOX: '1' }),
  }
  const shown = wish.isLong ? (['pipe', 'inherit'] as const) : 'pipe'
  const running = execa(file, args, {
    cwd: ROOT,
    env,
    all: true,
    reject: false,
    stdin: 'ignore',
    stdout: shown,
    stderr: shown,
    killSignal: 'SIGKILL',
  })
  const watch = watchSilence(job.report, () => running.kill('SIGKILL'))
  const child = await running
  watch.end()
  const ms = performance.now() - started
  const said = child.all.trimEnd()
  if (!job.report)
    return {
      job,
      ms,
      said: '',
      outcomes: [
        {
          state: child.failed ? 'failed' : 'passed',
          title: job.name,
          ms,
          text: child.failed
            ? `${said || child.shortMessage}${watch.isSilent ? `\nkilled after ${LIMIT_MS / 1000} s` : ''}`
            : '',
        },
      ],
    }
  const lines = read(job.report)
  const outcomes = lines.filter((line): line is Outcome => line.state !== 'begun' && line.state !== 'end')
  const last = lines.at(-1)
  const reason = `${watch.isSilent ? `it was killed: no test began or ended for ${LIMIT_MS / 1000} s` : `it ended with status ${child.exitCode ?? child.signal}`}${last?.state === 'begun' ? ` in: ${last.title}` : ''}`
  if (last?.state !== 'end') outcomes.push({ state: 'failed', title: 'the process did not finish', ms, text: reason })
  else if (outcomes.length === 0) outcomes.push({ state: 'failed', title: 'no tests', ms, text: 'the file has none' })
  else if (child.failed && !outcomes.some(({ state }) => state === 'failed'))
    outcomes.push({ state: 'failed', title: 'the process failed', ms, text: `${reason}, though no test failed` })
  return {
    job,
    ms,
    said,
    outcomes: outcomes.map((one) =>
      one.state === 'skipped' && one.text === ''
        ? { ...one, state: 'failed', text: 'skipped without a reason (see test/support/skip.ts)' }
        : one,
    ),
  }
}

// Calls back when nothing was written to a report for LIMIT_MS. Without a report that is the time since the start.
function watchSilence(report: string | undefined, stuck: () => void) {
  let [size, since, isSilent] = [-1, performance.now(), false]
  const timer = setInterval(() => {
    const now = report === undefined ? -1 : (statSync(report, { throwIfNoEntry: false })?.size ?? 0)
    if (now !== size) [size, since] = [now, performance.now()]
    if (isSilent || performance.now() - since < LIMIT_MS) return
    isSilent = true
    stuck()
  }, LOOK_MS)
  return {
    get isSilent() {
      return isSilent
    },
    end: () => clearInterval(timer),
  }
}

function read(report: string): (Outcome | { state: 'begun'; title: string } | { state: 'end' })[] {
  try {
    return readFileSync(report, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
  } catch {
    return []
  } finally {
    rmSync(report, { force: true })
  }
}

function show({ job, outcomes, ms, said }: Report): void {
  const failed = outcomes.filter(({ state }) => state === 'failed')
  process.stdout.write(
    `${failed.length > 0 ? 'FAIL' : 'ok  '} ${job.name}  ${outcomes.length} in ${(ms / 1000).toFixed(1)} s\n`,
  )
  for (const { title, text } of failed)
    process.stdout.write(`\n  ${job.name}: ${title}\n${text.replace(/^/gm, '    ')}\n\n`)
  if (failed.length > 0 && said && !wish.isLong)
    process.stdout.write(
      `  ${job.name} printed:\n${said.split('\n').slice(-100).join('\n').replace(/^/gm, '    ')}\n\n`,
    )
}

function summary(done: readonly Report[]): number {
  const every = done.flatMap(({ job, outcomes }) => outcomes.map((one) => ({ ...one, file: job.name })))
  const count = (state: Outcome['state']) => every.filter((one) => one.state === state)
  const [passed, failed, skipped] = [count('passed'), count('failed'), count('skipped')]
  const lines = [
    `\nlanes: ${lanes(done)}`,
    `slowest: ${[...done]
      .sort((a, b) => b.ms - a.ms)
      .slice(0, 5)
      .map(({ job, ms }) => `${job.name} ${(ms / 1000).toFixed(1)} s`)
      .join(', ')}`,
    ...skipped.map(({ file, title, text }) => `skipped ${file}: ${title}: ${text}`),
    ...unsteady.map((one) => `passed only alone ${one}`),
    ...failed.map(({ file, title }) => `failed ${file}: ${title}`),
    `${passed.length} passed, ${failed.length} failed, ${skipped.length} skipped`,
  ]
  process.stdout.write(`${lines.join('\n')}\n`)
  return failed.length > 0 ? 1 : 0
}

/** How long the files of each lane took, one after the other; several ran at a time. */
function lanes(done: readonly Report[]): string {
  const took = new Map<string, number>()
  for (const { job, ms } of done) {
    const lane = job.file?.lane ?? 'checks'
    took.set(lane, (took.get(lane) ?? 0) + ms)
  }
  return [...took].map(([lane, ms]) => `${lane} ${Math.round(ms / 1000)} s`).join(', ')
}
