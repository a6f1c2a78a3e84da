import { existsSync, globSync } from 'node:fs'
import { execa } from 'execa'

const DIRS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']
const LISTS = '/var/lib/apt/lists'

/** A Debian package, what shows that it is there (a command or a path), and what plumb wants it for. */
export interface Need {
  readonly name: string
  readonly shows: string
  readonly why: string
}

/** Installs the packages that are missing, one line on stderr for each, and nothing when none is. Throws Error naming them when it cannot. */
export async function install(needs: readonly Need[]): Promise<void> {
  const missing = needs.filter(({ shows }) => !present(shows))
  if (missing.length === 0) return
  const names = missing.map(({ name }) => name)
  const byHand = `install them by hand: ${names.join(' ')}`
  if (process.getuid?.() !== 0) throw new Error(`Cannot install packages without root; ${byHand}`)
  if (!present('apt-get')) throw new Error(`Cannot install packages without apt-get; ${byHand}`)
  for (const { name, why } of missing) process.stderr.write(`setup: installing ${name} (${why})\n`)
  if (globSync(`${LISTS}/*_Packages*`).length === 0) await update()
  const first = await apt('install', ...names)
  if (first.failed) {
    // Lists older than the mirror name files that are gone from it.
    await update()
    const second = await apt('install', ...names)
    if (second.failed) throw new Error(`Cannot install ${names.join(' ')}: apt-get said\n${second.all}`)
  }
}

/** Whether a command is installed, or a path exists. */
export function present(shows: string): boolean {
  return shows.startsWith('/') ? existsSync(shows) : DIRS.some((dir) => existsSync(`${dir}/${shows}`))
}

async function update(): Promise<void> {
  const { failed, all } = await apt('update')
  if (failed) throw new Error(`Cannot read the package lists: apt-get update said\n${all}`)
}

async function apt(...args: string[]): Promise<{ failed: boolean; all: string }> {
  // The package of a server starts it: what is wanted here is its program, and systemctl leaves services alone when it is told that there is no systemd.
  const env = { DEBIAN_FRONTEND: 'noninteractive', SYSTEMD_OFFLINE: '1' }
  return execa('apt-get', ['-qq', '-y', '-o', 'Dpkg::Use-Pty=0', '--no-install-recommends', ...args], { env, all: true, reject: false, stdin: 'ignore' })
}
