import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'

/** A Bun program that plumb can be compiled onto. `arch` is a name of Node's `process.arch`. */
export interface Runtime {
  readonly path: string
  readonly arch: 'x64' | 'arm64'
}

const ROOT = join(import.meta.dir, '../..')
/** The folder of what is downloaded for packages. */
export const CACHE = process.env['PLUMB_PACKAGES'] ?? '/var/cache/plumb/packages'
/** The npm package of Bun for each architecture. */
const NAMES = { x64: '@oven/bun-linux-x64', arm64: '@oven/bun-linux-aarch64' } as const

/**
 * The Bun program for an architecture: the running one, or that of another architecture from npm, in the version of
 * package-lock.json. Throws Error when npm has no such package, or when its bytes are not those that package-lock.json
 * names.
 */
export async function runtime(arch: Runtime['arch']): Promise<Runtime> {
  if (arch === process.arch) return { path: process.execPath, arch }
  const name = NAMES[arch]
  const { version, integrity } = locked(name)
  const path = join(CACHE, `bun-${version}-${arch}`)
  if (existsSync(path)) return { path, arch }
  process.stderr.write(`package: downloading ${name} ${version} to ${CACHE} (plumb for ${arch} is compiled onto it)\n`)
  mkdirSync(CACHE, { recursive: true })
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    const { stdout } = await execa('npm', ['pack', '--silent', `${name}@${version}`], { cwd: draft })
    const archive = join(draft, stdout.trim().split('\n').at(-1) as string)
    const found = `sha512-${new Bun.CryptoHasher('sha512').update(readFileSync(archive)).digest('base64')}`
    if (found !== integrity)
      throw new Error(`Cannot use ${name} ${version}: it is ${found}, and package-lock.json names ${integrity}`)
    await execa('tar', ['-xzf', archive, '-C', draft, 'package/bin/bun'])
    renameSync(join(draft, 'package/bin/bun'), path)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  return { path, arch }
}

// The version and the checksum that package-lock.json names.
function locked(name: string): { readonly version: string; readonly integrity: string } {
  return JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages[`node_modules/${name}`]
}

/** The npm packages of Bun that executables of plumb hold. */
export const RUNTIMES: readonly string[] = Object.values(NAMES)
