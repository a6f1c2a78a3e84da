import { existsSync, globSync } from 'node:fs'
import { execa } from 'execa'

const DIRS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']
const LISTS = '/var/lib/apt/lists'

/**
 * A Debian package. `shows` is a command or a path that exists when the package is installed. `why` says what plumb
 * needs the package for.
 */
export interface Need {
  readonly name: string
  readonly shows: string
  readonly why: string
}

/**
 * Installs the missing packages, and prints a line on stderr for each. Does nothing when no package is missing. Throws
 * Error that names the packages when they cannot be installed.
 */
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
    // Old package lists name files that are gone from the mirror.
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
  // The package of a server starts the server, but plumb needs only its program. SYSTEMD_OFFLINE=1 tells systemctl that
  // there is no systemd, so systemctl starts no service.
  const env = { DEBIAN_FRONTEND: 'noninteractive', SYSTEMD_OFFLINE: '1' }
  return execa('apt-get', ['-qq', '-y', '-o', 'Dpkg::Use-Pty=0', '--no-install-recommends', ...args], {
    env,
    all: true,
    reject: false,
    stdin: 'ignore',
  })
}
