import { has } from '../../lib/os/exec.ts'
import { isThere } from '../../lib/os/nftables.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { ExecError } from '../../lib/text/errors.ts'

// The names of flannel's pkg/trafficmngr: iptables chains by their table, and one nft table per family.
const CHAINS = { nat: 'FLANNEL-POSTRTG', filter: 'FLANNEL-FWD' } as const
const TABLES = { ip: 'flannel-ipv4', ip6: 'flannel-ipv6' } as const

/**
 * Removes the rules that flanneld left on the node, from iptables and from nft (`--replace-flannel`). Gives the names
 * of the removed objects. Without such rules it starts no process. Throws ExecError.
 */
export async function removeFlannelRules(run: Run): Promise<string[]> {
  const done: string[] = []
  for (const family of ['ip', 'ip6'] as const) {
    if (isThere(family, TABLES[family])) {
      await must(['nft', 'delete', 'table', family, TABLES[family]], '', run)
      done.push(`nft table ${family} ${TABLES[family]}`)
    }
    for (const [table, chain] of Object.entries(CHAINS)) {
      const legacyTables = readText(`/proc/net/${family}_tables_names`) ?? ''
      const isLegacy = new RegExp(`^${table}$`, 'm').test(legacyTables)
      const tools = [
        ...(isThere(family, table, chain) ? [`${family}tables-nft`] : []),
        ...(isLegacy ? [`${family}tables-legacy`] : []),
      ]
      for (const tool of tools.filter((one) => has(`${one}-save`)))
        if (await removeChain(tool, table, chain, run)) done.push(`${tool} chain ${chain}`)
    }
  }
  return done
}

async function removeChain(tool: string, table: string, chain: string, run: Run): Promise<boolean> {
  const rules = (await listed([`${tool}-save`, '-t', table], run)).split('\n')
  if (!rules.some((rule) => rule.startsWith(`:${chain} `))) return false
  const jumps = rules
    .filter((rule) => rule.startsWith('-A ') && rule.endsWith(` -j ${chain}`))
    .map((rule) => rule.replace('-A ', '-D '))
  const lines = [`*${table}`, ...jumps, `-F ${chain}`, `-X ${chain}`, 'COMMIT', '']
  await must([`${tool}-restore`, '--noflush', '--wait'], lines.join('\n'), run)
  return true
}

async function must(argv: readonly string[], stdin: string, run: Run): Promise<void> {
  const { status, stderr } = await run(argv, stdin)
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
