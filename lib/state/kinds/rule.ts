import { inside } from '../../os/netns.ts'
import { rulesNow } from '../../os/route-tables.ts'
import { hostCidr, isSix } from '../../text/cidr.ts'
import type { Ip } from '../../text/ip.ts'
import type { Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'

/** A rule of policy routing (ip-rule(8)). Packets from this address use the given table. */
export interface Rule {
  readonly kind: 'rule'
  readonly ns: Netns
  readonly from: Ip
  readonly table: number
  /**
   * The kernel tries rules from the lowest priority upwards. Without a priority the kernel takes another priority each
   * time, and makes the same rule twice.
   */
  readonly priority: number
}

// IPv6 rules need a separate process, because a line of a batch cannot name the family, and rules need the family.
const four: Handler<Rule> = {
  tool: 'ip',
  title: ({ ns, from, table }) => `rule from ${from} to table ${table}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, from, table }) => `rule ${ns} ${from} ${table}`,
  put: (want) => [{ text: `rule add ${line(want)}`, unless: /File exists/ }],
  drop: (want) => [{ text: `rule delete ${line(want)}`, unless: /No such file|does not exist/ }],
  ask: () => '',
  // Asks the kernel directly. `ip` prints a table by its name when an admin gave it a name.
  read: (_row, want) =>
    inside(want.ns, rulesNow).some(({ from, table }) => from === want.from && table === want.table) ? want : undefined,
}

/** Policy rules by the source address of packets. */
export const rule: Handler<Rule> = { ...four, toolOf: ({ from }) => (isSix(from) ? 'ip6' : 'ip') }

function line({ from, table, priority }: Rule): string {
  return `from ${hostCidr(from)} table ${table} priority ${priority}`
}

function purpose({ from, table }: Rule, _: Line, gone: boolean): string {
  return gone ? `what ${from} sends goes by the usual tables` : `what ${from} sends goes by table ${table}`
}
