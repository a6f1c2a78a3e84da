import { existsSync } from 'node:fs'
import { unpack } from './unpack.ts'

/** The folder of unpacked BGP daemons of other projects. Their programs and libraries are below `usr`. */
export const BGP_DAEMONS = process.env['PLUMB_BGP_DAEMONS'] ?? '/var/cache/plumb/bgp-daemons'

/**
 * Unpacks GoBGP, FRR and BIRD 1.6 outside the checkout, and prints a line on stderr. Does nothing when the folder
 * exists. Installed, FRR would start a service, and BIRD 1.6 would replace BIRD 2. Throws Error when the unpacking
 * fails.
 */
export async function unpackBgpDaemons(): Promise<void> {
  if (existsSync(BGP_DAEMONS)) return
  process.stderr.write(
    `setup: unpacking GoBGP, FRR and BIRD 1.6 in ${BGP_DAEMONS} (the tests have BGP sessions with them; they are not installed)\n`,
  )
  await unpack(BGP_DAEMONS, ['gobgpd', 'frr', 'libyang2', 'bird'])
}
