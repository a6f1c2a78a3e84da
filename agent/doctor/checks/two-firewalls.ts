import { defineCheck } from '../check.ts'

/** The old tables of iptables decide beside nftables. `iptables -S` shows only one of the two. */
export const check = defineCheck({
  code: 'DR12',
  title: 'two firewalls decide',
  severity: 'warning',
  reads: ['legacyRules', 'ruleset'],
  detect({ legacyRules, ruleset }) {
    if (legacyRules.length === 0 || ruleset.chains.length === 0) return []
    const tools = [...new Set(legacyRules.map(({ tool }) => tool))]
    const tables = legacyRules.map(({ tool, table, count }) => `${tool} ${table}: ${count}`).join(', ')
    return [
      {
        what: `The old tables of iptables have rules beside those of nftables (${tables})`,
        effect: 'both decide, and iptables -S does not show the old ones',
        commands: [
          ...tools.map((tool) => `${tool}-save >/var/tmp/${tool}.rules`),
          ...legacyRules.map(({ tool, table }) => withoutOthers(tool, table)),
        ],
      },
    ]
  },
})

// Empties a table, except of the rules by which the agent lets pods pass there. Policies of chains stay.
function withoutOthers(tool: string, table: string): string {
  return `${tool}-save -t ${table} | grep -E '^[*:]|^COMMIT|PLUMB-' | ${tool}-restore -T ${table}`
}
