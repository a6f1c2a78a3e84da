import { inside } from '../../os/netns.ts'
import { rulesNow } from '../../os/route-tables.ts'
import { hostCidr, isSix } from '../../text/cidr.ts'
import type { Rule } from '../policy-routing.ts'
import type { Handler } from '../resource.ts'

// Of IPv6 it takes a process of its own: a line of a batch cannot say the family, and rules need it.
const four: Handler<Rule> = {
  tool: 'ip',
  key: ({ ns, from, table }) => `rule ${ns} ${from} ${table}`,
  put: ({ from, table, priority }) => [{ text: `rule add from ${hostCidr(from)} table ${table} priority ${priority}`, unless: /File exists/ }],
  drop: ({ from, table, priority }) => [{ text: `rule delete from ${hostCidr(from)} table ${table} priority ${priority}`, unless: /No such file|does not exist/ }],
  ask: () => '',
  // Asked of the kernel: `ip` tells a table by the name that somebody may have given it.
  read: (_row, want) => (inside(want.ns, rulesNow).some(({ from, table }) => from === want.from && table === want.table) ? want : undefined),
}

/** Rules by the source of packets. */
export const rule: Handler<Rule> = { ...four, toolOf: ({ from }) => (isSix(from) ? 'ip6' : 'ip') }
