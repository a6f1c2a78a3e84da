import { chainUses, isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { readSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { LOCALNET, MARTIANS, REMOVE, SOURCES, TABLE } from './table.ts'

/**
 * Closes 127.0.0.0/8 to other machines, where NodePorts on 127.0.0.1 had opened it. Call it before the table goes, whose
 * chain keeps them out. `isKnown`: NodePorts were there, whatever is left of the table. Gives what it does, one line.
 */
export function closeLoopback(isKnown: boolean, { dryRun = false } = {}): string[] {
  const isOpen = chainUses('inet', TABLE).has(MARTIANS) || (isKnown && readSysctl(LOCALNET) === '1')
  if (!isOpen) return []
  if (!dryRun) writeSysctl(LOCALNET, '0')
  return [`${dryRun ? 'would set' : 'set'} ${sysctlName(LOCALNET)} to 0`]
}

/** Removes the tables of Services. Gives one line for each thing that it did. Throws ExecError. */
export async function removeServices(run: Run): Promise<string[]> {
  const done = closeLoopback(false)
  const tables = [TABLE, SOURCES].filter((table) => isThere('inet', table))
  const argv = ['nft', '-f', '-']
  const { status, stderr } = await run(argv, REMOVE)
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
  return [...done, ...tables.map((table) => `removed nft table inet ${table}`)]
}
