import { existsSync } from 'node:fs'
import { unpack } from './unpack.ts'

/** The folder of the unpacked firewalld. Its program, its Python modules and its zones are below `usr`. */
export const FIREWALLD = process.env['PLUMB_FIREWALLD'] ?? '/var/cache/plumb/firewalld'

/**
 * Unpacks firewalld outside the checkout, and prints a line on stderr. Does nothing when the folder exists. An
 * installed firewalld would cut the machine off from the network at the next start. Throws Error when the unpacking
 * fails.
 */
export async function unpackFirewalld(): Promise<void> {
  if (existsSync(FIREWALLD)) return
  process.stderr.write(
    `setup: unpacking firewalld in ${FIREWALLD} (the tests have the plugin firewall work beside it; it is not installed)\n`,
  )
  await unpack(FIREWALLD, ['firewalld', 'python3-firewall', 'python3-nftables'])
}
