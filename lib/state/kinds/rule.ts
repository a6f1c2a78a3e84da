import { inside } from '../../os/netns.ts'
import { rulesNow } from '../../os/route-tables.ts'
import { hostCidr, isSix } from '../../text/cidr.ts'
import type { Ip } from '../../text/ip.ts'
import type { Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'

/** A rule of policy routing (ip-rule(8)): packets from this address go by that table. */
export interface Rule {
  readonly kind: 'rule'
  readonly ns: Netns
  readonly from: Ip
  readonly table: number
  /** Rules are tried from the lowest on. Without one the kernel would take another each time, and make the same rule twice. */
  readonly priority: number
}

// Of IPv6 it takes a process of its own: a line of a batch cannot say the family, and rules need it.
const four: Handler<Rule> = {
  tool: 'ip',
  title: ({ ns, from, table }) => `rule from ${from} to table ${table}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, from, table }) => `rule ${ns} ${from} ${table}`,
  put: ({ from, table, priority }) => [{ text: `rule add from ${hostCidr(from)} table ${table} priority ${priority}`, unless: /File exists/ }],
  drop: ({ from, table, priority }) => [{ text: `rule delete from ${hostCidr(from)} table ${table} priority ${priority}`, unless: /No such file|does not exist/ }],
  ask: () => '',
  // Asked of the kernel: `ip` tells a table by the name that somebody may have given it.
  read: (_row, want) => (inside(want.ns, rulesNow).some(({ from, table }) => from === want.from && table === want.table) ? want : undefined),
}

/** Rules by the source of packets. */
export const rule: Handler<Rule> = { ...four, toolOf: ({ from }) => (isSix(from) ? 'ip6' : 'ip') }

function purpose({ from, table }: Rule, _: Line, gone: boolean): string {
  return gone ? `what ${from} sends goes by the usual tables` : `what ${from} sends goes by table ${table}`
}
