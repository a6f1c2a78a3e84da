import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { tables } from './tables.ts'
import { type Runtime, template } from './template.ts'

const ROOT = join(import.meta.dir, '..')
const DIST = join(ROOT, 'dist')
const CACHE = join(ROOT, 'node_modules/.cache/plumb')
/** `--align=off` leaves the code where Bun has it in the file (docs/decisions/0021). */
const ALIGN = !process.argv.includes('--align=off')
const FLAGS = '--compile --bytecode --minify --format=esm --splitting --compile-jit-policy=30 --no-compile-autoload-dotenv --no-compile-autoload-bunfig'.split(' ')

/**
 * Makes dist/plumb, and a second copy with a hard link for every plugin. Skips this when dist/ is already made of these sources. Reports a
 * finished build on stderr.
 */
async function build(): Promise<void> {
  const started = performance.now()
  const names = plugins()
  for (const { file, is, want } of tables()) if (is !== want) writeFileSync(join(ROOT, file), want)
  const hash = sources().digest('hex')
  const stamp = join(DIST, '.sources')
  const fresh = existsSync(stamp) && readFileSync(stamp, 'utf8') === hash && ['plumb', ...names].every((name) => existsSync(join(DIST, name)))
  if (fresh) return
  // Writes drafts, then renames them. So a test that runs meanwhile finds the old program or the new program.
  const draft = join(DIST, `.draft-${process.pid}`)
  mkdirSync(draft, { recursive: true })
  try {
    await compile(join(draft, 'plumb'), { path: process.execPath, arch: process.arch as Runtime['arch'] })
    // A file that is written in one piece lies in huge pages of the page cache (docs/decisions/0021). So the plugins' file is written in
    // one piece.
    const [first = '', ...others] = names
    writeFileSync(join(draft, first), readFileSync(join(draft, 'plumb')), { mode: 0o755 })
    for (const name of others) linkSync(join(draft, first), join(draft, name))
    for (const gone of readdirSync(DIST).filter((file) => !file.startsWith('.') && file !== 'plumb' && !names.includes(file))) rmSync(join(DIST, gone))
    for (const name of ['plumb', ...names]) renameSync(join(draft, name), join(DIST, name))
    writeFileSync(stamp, hash)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  process.stderr.write(`build: made dist/plumb for ${names.join(', ')} in ${Math.round(performance.now() - started)} ms\n`)
}

/** Compiles plumb onto a Bun program of any architecture, into one executable. The generated tables must be up to date. Throws Error. */
export async function compile(to: string, runtime: Runtime): Promise<void> {
  const names = plugins()
  const defines = { 'process.env.NODE_ENV': '"production"', PLUGINS: JSON.stringify(names) }
  const flags = [...FLAGS, `--target=bun-linux-${runtime.arch}`, ...Object.entries(defines).flatMap(([name, value]) => ['--define', `${name}=${value}`])]
  const entries = ['index', ...names].map((name) => `plugins/${name}.ts`)
  await execa(process.execPath, ['build', ...flags, '--compile-executable-path', template(CACHE, ALIGN, runtime), ...entries, '--root', 'plugins', '--outfile', to], { cwd: ROOT })
}

function plugins(): string[] {
  return readdirSync(join(ROOT, 'plugins'))
    .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
    .sort()
}

function sources(): Bun.CryptoHasher {
  const hash = new Bun.CryptoHasher('sha256').update(`align ${ALIGN}\0`)
  const files = ['lib', 'plugins', 'agent', 'cli', 'conf', 'docs/plugins']
    .filter((room) => existsSync(join(ROOT, room)))
    .flatMap((room) => readdirSync(join(ROOT, room), { recursive: true, withFileTypes: true }).flatMap((one) => (one.isFile() ? join(one.parentPath, one.name) : [])))
  for (const file of [...files.sort(), join(ROOT, 'package.json'), join(ROOT, 'package-lock.json'), import.meta.path, join(import.meta.dir, 'template.ts')]) hash.update(`${file}\0`).update(readFileSync(file)).update('\0')
  return hash
}

if (import.meta.main) {
  try {
    await build()
  } catch (cause) {
    process.stderr.write(`build: ${basename(import.meta.path)} failed\n${(cause as { stderr?: string }).stderr || (cause as Error).stack}\n`)
    process.exitCode = 1
  }
}
