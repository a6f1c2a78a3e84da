import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { execa } from 'execa'
import { type Arch, compilePlugins, engineFiles } from './engine.ts'
import type { Runtime } from './package/runtime.ts'
import { tables } from './tables.ts'

const ROOT = join(import.meta.dir, '..')
const DIST = join(ROOT, 'dist')
const FLAGS =
  '--compile --bytecode --minify --format=esm --splitting --compile-jit-policy=30 --no-compile-autoload-dotenv --no-compile-autoload-bunfig'.split(
    ' ',
  )

/**
 * Makes dist/plumb, and the executable of the plugins with a hard link for each of them. Skips this when dist/ is
 * already made of these sources. Reports a finished build on stderr.
 */
async function build(): Promise<void> {
  const started = performance.now()
  const names = plugins()
  for (const { file, is, want } of tables()) if (is !== want) writeFileSync(join(ROOT, file), want)
  const hash = sources().digest('hex')
  const stamp = join(DIST, '.sources')
  const fresh =
    existsSync(stamp) &&
    readFileSync(stamp, 'utf8') === hash &&
    ['plumb', ...names].every((name) => existsSync(join(DIST, name)))
  if (fresh) return
  // Writes drafts, then renames them. So a test that runs meanwhile finds the old program or the new program.
  const draft = join(DIST, `.draft-${process.pid}`)
  mkdirSync(draft, { recursive: true })
  try {
    const [first = '', ...others] = names
    await compilePlugins(join(draft, first), names, process.arch as Arch)
    await compile(join(draft, 'plumb'), { path: process.execPath, arch: process.arch as Arch }, join(draft, first))
    for (const name of others) linkSync(join(draft, first), join(draft, name))
    for (const gone of readdirSync(DIST).filter(
      (file) => !file.startsWith('.') && file !== 'plumb' && !names.includes(file),
    ))
      rmSync(join(DIST, gone))
    for (const name of ['plumb', ...names]) renameSync(join(draft, name), join(DIST, name))
    writeFileSync(stamp, hash)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  process.stderr.write(
    `build: made dist/plumb for ${names.join(', ')} in ${Math.round(performance.now() - started)} ms\n`,
  )
}

/**
 * Compiles plumb onto a Bun program of any architecture, into one executable that holds the executable of the plugins,
 * `engine`. The generated tables must be up to date. Throws Error.
 */
export async function compile(to: string, runtime: Runtime, engine: string): Promise<void> {
  const names = plugins()
  const defines = { 'process.env.NODE_ENV': '"production"', PLUGINS: JSON.stringify(names) }
  const flags = [
    ...FLAGS,
    `--target=bun-linux-${runtime.arch}`,
    ...Object.entries(defines).flatMap(([name, value]) => ['--define', `${name}=${value}`]),
  ]
  const entries = ['cli/plumb.ts', ...names.map((name) => `plugins/${name}.ts`)]
  // Bun puts a file of an unknown kind into the executable as it is, by its name (agent/node/plugins.ts). The path of
  // the file goes into the executable too. So it is the same in every checkout.
  const held = `node_modules/.cache/plumb/held-${runtime.arch}/plugins.engine`
  mkdirSync(dirname(join(ROOT, held)), { recursive: true })
  copyFileSync(engine, join(ROOT, `${held}.${process.pid}`))
  renameSync(join(ROOT, `${held}.${process.pid}`), join(ROOT, held))
  await execa(
    process.execPath,
    [
      'build',
      ...flags,
      '--asset-naming=[name].[ext]',
      '--compile-executable-path',
      runtime.path,
      ...entries,
      held,
      '--root',
      '.',
      '--outfile',
      to,
    ],
    { cwd: ROOT },
  )
}

/** The names of the plugins: the files of plugins/. */
export function plugins(): string[] {
  return readdirSync(join(ROOT, 'plugins'))
    .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
    .sort()
}

function sources(): Bun.CryptoHasher {
  const hash = new Bun.CryptoHasher('sha256')
  const files = ['lib', 'plugins', 'agent', 'cli', 'conf', 'docs/plugins']
    .filter((room) => existsSync(join(ROOT, room)))
    .flatMap((room) =>
      readdirSync(join(ROOT, room), { recursive: true, withFileTypes: true }).flatMap((one) =>
        one.isFile() ? join(one.parentPath, one.name) : [],
      ),
    )
  for (const file of [
    ...files.sort(),
    join(ROOT, 'package.json'),
    join(ROOT, 'package-lock.json'),
    import.meta.path,
    ...engineFiles(),
  ])
    hash.update(`${file}\0`).update(readFileSync(file)).update('\0')
  return hash
}

if (import.meta.main) {
  try {
    await build()
  } catch (cause) {
    process.stderr.write(
      `build: ${basename(import.meta.path)} failed\n${(cause as { stderr?: string }).stderr || (cause as Error).stack}\n`,
    )
    process.exitCode = 1
  }
}
