import type { Handler, Line } from '../handler.ts'

/**
 * An iptables chain that lets packets with the mark of lib/nft/firewall.nft pass the FORWARD chain. It is made once for
 * all pods. `admin` is an iptables chain that decides before.
 */
export interface Passage {
  readonly kind: 'passage'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly admin: string
  /** The bit of the packet mark that plumb's nft rules set (lib/nft/ruleset.ts). */
  readonly bit: number
  /** Makes the chain also when no FORWARD chain exists. A FORWARD chain that Docker makes later then finds it. */
  readonly always?: true
}

/** The iptables chain that lets pods' packets pass. */
export const CHAIN = 'PLUMB-PODS'

/** The parts of a passage that exist. */
export interface PassageState {
  readonly isJumped: boolean
  readonly isAdminThere: boolean
  /** The chain asks the admin's chain and checks the mark. */
  readonly isWhole: boolean
  /** The chain has more than one rule: a jump to some admin's chain and the mark rule. Only a missing jump is added. */
  readonly isThere: boolean
}
const NOTHING: PassageState = { isJumped: false, isAdminThere: false, isWhole: false, isThere: false }

/**
 * A way through the FORWARD chain of iptables that all pods share. It is never removed, because other pods need it. The
 * chains of reference plugins stay too.
 */
export const passage: Handler<Passage> = {
  tool: 'iptables',
  title: ({ family, admin }) => `iptables chain PLUMB-PODS, IPv${family}, with ${admin} in it and the jump to it,`,
  purpose,
  key: ({ family, admin }) => `passage ${family} ${admin}`,
  put: (want) => scripted(missing(want, NOTHING)).map((text) => ({ text })),
  drop: () => [],
  ask: () => '',
  // lib/state/observe.ts asks the kernel.
  read: (_row, want) => want,
}

/** The missing parts of a passage, as lines of iptables-restore. */
export function missing({ admin, bit }: Passage, { isJumped, isAdminThere, isWhole, isThere }: PassageState): string[] {
  // iptables-restore empties a chain that a `:` line names. So the admin's chain gets such a line only when missing.
  const mark = `0x${((1 << bit) >>> 0).toString(16)}`
  const chain = isThere
    ? [`-I ${CHAIN} 1 -j ${admin}`]
    : [`:${CHAIN} - [0:0]`, `-A ${CHAIN} -j ${admin}`, `-A ${CHAIN} -m mark --mark ${mark}/${mark} -j ACCEPT`]
  return [
    ...(isAdminThere ? [] : [`:${admin} - [0:0]`]),
    ...(isWhole ? [] : chain),
    ...(isJumped ? [] : [`-I FORWARD 1 -j ${CHAIN}`]),
  ]
}

/** Wraps lines into one transaction of iptables-restore. */
export function scripted(lines: readonly string[]): string[] {
  return ['*filter', ...lines, 'COMMIT']
}

function purpose({ admin }: Passage, { text }: Line): string {
  if (text === '*filter' || text === 'COMMIT') return 'all or nothing'
  if (text.startsWith(':'))
    return text.includes('PLUMB-PODS')
      ? "the chain of iptables that lets pods' packets pass"
      : `the admin's chain in iptables, for rules as a reference plugin's node has them`
  if (text.startsWith('-I')) return 'it comes before what Docker, say, drops there'
  return text.endsWith(` -j ${admin}`)
    ? "the admin's own rules come first"
    : 'what the chain `forward` of table inet plumb marked passes'
}
