import { existsSync } from 'node:fs'
import { unpack } from './unpack.ts'

/** Where firewalld lies when it was unpacked: its program, its Python modules and its zones, below `usr`. */
export const FIREWALLD = process.env['PLUMB_FIREWALLD'] ?? '/var/cache/plumb/firewalld'

/** Unpacks firewalld outside the checkout, one line on stderr, unless it is there: installed, it would shut the machine off when that starts the next time. Throws Error when it cannot be had. */
export async function unpackFirewalld(): Promise<void> {
  if (existsSync(FIREWALLD)) return
  process.stderr.write(`setup: unpacking firewalld in ${FIREWALLD} (the tests have the plugin firewall work beside it; it is not installed)\n`)
  await unpack(FIREWALLD, ['firewalld', 'python3-firewall', 'python3-nftables'])
}
