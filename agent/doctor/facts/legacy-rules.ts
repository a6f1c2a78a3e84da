import { has } from '../../../lib/os/exec.ts'
import { readText } from '../../../lib/os/reading.ts'
import type { Run } from '../../../lib/os/run.ts'
import { ExecError } from '../../../lib/text/errors.ts'
import type { Fact } from './facts.ts'

/** A table of the old iptables that has rules of other programs. The agent lets pods pass there, too. */
export interface LegacyRules {
  readonly tool: 'iptables-legacy' | 'ip6tables-legacy'
  readonly table: string
  readonly count: number
}

const TOOLS = [
  { tool: 'iptables-legacy', names: 'ip_tables_names' },
  { tool: 'ip6tables-legacy', names: 'ip6_tables_names' },
] as const

/** The rules in old tables of iptables, which nftables does not show. */
export const legacyRules: Fact<readonly LegacyRules[]> = {
  read: ({ run }) => readLegacyRules(run),
  inAgent: { missing: 'the old tables of iptables' },
}

/**
 * Reads the old tables of iptables. Starts no tool when the kernel has none of them, because the tool would make them.
 * Throws Error when a tool fails.
 */
export async function readLegacyRules(run: Run): Promise<LegacyRules[]> {
  const found = await Promise.all(
    TOOLS.map(async ({ tool, names }) => {
      const tables = (readText(`/proc/thread-self/net/${names}`) ?? '').split('\n').filter((name) => name !== '')
      if (tables.length === 0 || !has(`${tool}-save`)) return []
      const argv = [`${tool}-save`]
      const { status, stdout, stderr } = await run(argv, '')
      if (status !== 0) throw new ExecError(argv, undefined, stderr.split('\n', 1)[0] ?? '')
      return tables.flatMap((table): LegacyRules[] => {
        const [, body = ''] = new RegExp(`^\\*${table}\\n([\\s\\S]*?)^COMMIT`, 'm').exec(stdout) ?? []
        const count = [...body.matchAll(/^-A (?!PLUMB-)(?!.* -j PLUMB-)/gm)].length
        return count === 0 ? [] : [{ tool, table, count }]
      })
    }),
  )
  return found.flat()
}
