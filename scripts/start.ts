// The scripts that set up, build, generate and start things for developers. Begin with TASKS below.
// package.json starts every npm script through this file.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** What every commit passes. The lanes that it leaves out are those of `test:all` in `.ci/run`. */
const LEFT_OUT = ['--without', 'long,crash,fuzz,peers,vm'] as const
const GATE = [
  ['scripts/setup.ts', 'test', ...LEFT_OUT, '--'],
  ['test/run.ts', ...LEFT_OUT],
] as const
/**
 * The commands of each npm script, in order. The last command gets the arguments of the user, as does a command that
 * ends in `--`. Bun runs a file that ends in .ts.
 */
const TASKS: Readonly<Record<string, readonly (readonly [string, ...string[]])[]>> = {
  setup: [['scripts/setup.ts']],
  build: [['scripts/build.ts']],
  docs: [['scripts/schemas.ts'], ['scripts/docs.ts']],
  tables: [['scripts/tables.ts']],
  pictures: [['scripts/setup.ts', 'test', 'docs/pictures'], ['scripts/pictures.ts']],
  demo: [['scripts/setup.ts', 'demo', '--'], ['scripts/build.ts'], ['dist/plumb', 'demo']],
  bench: [['scripts/setup.ts', 'bench'], ['scripts/peers.ts'], ['scripts/build.ts'], ['bench/index.ts']],
  image: [['scripts/build.ts'], ['scripts/image.ts']],
  chart: [['tools/k8s/build.ts', 'helm'], ['scripts/chart.ts']],
  package: [['scripts/build.ts'], ['scripts/package.ts']],
  'test:crash': [['scripts/setup.ts', 'test'], ['test/lib/verbs/crash/index.ts']],
  ok: GATE,
  test: GATE,
  'test:all': [['scripts/setup.ts', 'test', '--'], ['scripts/peers.ts'], ['test/run.ts']],
  'test:kubelet': [
    ['scripts/setup.ts', 'test', '--only', 'kubelet'],
    ['scripts/kubernetes.ts'],
    ['test/run.ts', '--only', 'kubelet'],
  ],
  'test:kubernetes': [
    ['scripts/setup.ts', 'test', '--only', 'kubernetes'],
    ['scripts/peers.ts', 'flanneld'],
    ['tools/k8s/build.ts', 'e2e'],
    ['scripts/build.ts'],
    ['scripts/image.ts'],
    ['test/run.ts', '--only', 'kubernetes', '--jobs', '1'],
  ],
  'test:storm': [
    ['scripts/setup.ts', 'test', '--only', 'storm'],
    ['test/run.ts', '--only', 'storm'],
  ],
  'test:soak': [
    ['scripts/setup.ts', 'test', '--only', 'soak'],
    ['test/run.ts', '--only', 'soak'],
  ],
  'test:fuzz': [['scripts/setup.ts', 'test', '--only', 'fuzz'], ['test/fuzz/campaign.ts']],
}
const ROOT = join(import.meta.dir, '..')
const AGAIN = 'PLUMB_PACKAGES_INSTALLED'

// The line of shell in package.json has already made sure that Bun exists. This file does the rest.
const [task = '', ...rest] = process.argv.slice(2)
process.exitCode = await start(task, rest)

async function start(task: string, rest: readonly string[]): Promise<number> {
  const steps = Object.hasOwn(TASKS, task) ? TASKS[task] : undefined
  if (!steps) return fail(`Cannot run ${JSON.stringify(task)}: want one of ${Object.keys(TASKS).join(', ')}`)
  if (!installed()) return install(task, rest)
  for (const [i, [file, ...args]] of steps.entries()) {
    const given = i === steps.length - 1 || args.at(-1) === '--' ? rest : []
    const status = await run([
      ...(file.endsWith('.ts') ? [process.execPath, file] : [join(ROOT, file)]),
      ...args,
      ...given,
    ])
    if (status !== 0) return status
  }
  return 0
}

// npm keeps a lock file of the packages that it put into node_modules. Optional packages for other machines are not in
// that file.
function installed(): boolean {
  const [have, want] = [packages('node_modules/.package-lock.json'), packages('package-lock.json')]
  return Object.entries(want).every(
    ([path, { version, optional }]) => path === '' || optional || have[path]?.version === version,
  )
}

function packages(name: string): Readonly<Record<string, { readonly version: string; readonly optional?: boolean }>> {
  const path = join(ROOT, name)
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : {}
}

// Installs the packages. Then starts the task again, with the Bun that the lock file names.
async function install(task: string, rest: readonly string[]): Promise<number> {
  if (process.env[AGAIN])
    return fail(
      'Cannot install the packages of package-lock.json: npm ci left others in node_modules; remove it and try again',
    )
  process.stderr.write(
    'setup: installing the packages of package-lock.json, which are not those in node_modules (npm ci)\n',
  )
  const status = await run(['npm', 'ci', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error'])
  return status === 0 ? run(['npm', 'run', '--silent', 'bun', '--', task, ...rest], { [AGAIN]: '1' }) : status
}

// Ctrl-C reaches the command too, and the command ends in its own way. This process waits for that end.
async function run(argv: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<number> {
  const child = Bun.spawn([...argv], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['inherit', 'inherit', 'inherit'],
  })
  const ignore = () => {}
  const pass = () => child.kill('SIGTERM')
  process.on('SIGINT', ignore).on('SIGTERM', pass)
  try {
    await child.exited
    return child.exitCode ?? 1
  } finally {
    process.off('SIGINT', ignore).off('SIGTERM', pass)
  }
}

function fail(message: string): 1 {
  process.stderr.write(`${message}\n`)
  return 1
}
