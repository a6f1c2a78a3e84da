import type { Handler, Line } from '../handler.ts'

/** Lets what lib/nft/firewall.nft marks pass the FORWARD chain of iptables, made once for all pods; `admin` is a chain of iptables that is asked before. */
export interface Passage {
  readonly kind: 'passage'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly admin: string
  /** The bit of the packet mark that says so (lib/nft/ruleset.ts). */
  readonly bit: number
  /** Where there is no FORWARD chain, too: one that is made later, by Docker say, then finds it. */
  readonly always?: true
}

/** The chain of iptables that lets pods' packets pass. */
export const CHAIN = 'PLUMB-PODS'

/** What of a passage stands. */
export interface Standing {
  readonly isJumped: boolean
  readonly isAdminThere: boolean
  /** The admin's chain is asked, and the mark is. */
  readonly isWhole: boolean
  /** The chain holds more than one admin's: only what is missing is added. */
  readonly isThere: boolean
}
const NOTHING: Standing = { isJumped: false, isAdminThere: false, isWhole: false, isThere: false }

/** A way through the FORWARD chain of iptables, shared by all pods: never removed, since other pods need it, as a reference plugin's chains are not. */
export const passage: Handler<Passage> = {
  tool: 'iptables',
  title: ({ family, admin }) => `iptables chain PLUMB-PODS, IPv${family}, with ${admin} in it and the jump to it,`,
  purpose,
  key: ({ family, admin }) => `passage ${family} ${admin}`,
  put: (want) => scripted(missing(want, NOTHING)).map((text) => ({ text })),
  drop: () => [],
  ask: () => '',
  // Asked of the kernel (lib/state/observe.ts).
  read: (_row, want) => want,
}

/** What is missing of it, as lines of iptables-restore. */
export function missing({ admin, bit }: Passage, { isJumped, isAdminThere, isWhole, isThere }: Standing): string[] {
  // A chain that is named so is emptied: an admin's only where there is none.
  const mark = `0x${((1 << bit) >>> 0).toString(16)}`
  const chain = isThere ? [`-I ${CHAIN} 1 -j ${admin}`] : [`:${CHAIN} - [0:0]`, `-A ${CHAIN} -j ${admin}`, `-A ${CHAIN} -m mark --mark ${mark}/${mark} -j ACCEPT`]
  return [...(isAdminThere ? [] : [`:${admin} - [0:0]`]), ...(isWhole ? [] : chain), ...(isJumped ? [] : [`-I FORWARD 1 -j ${CHAIN}`])]
}

/** Lines as one transaction of iptables-restore. */
export function scripted(lines: readonly string[]): string[] {
  return ['*filter', ...lines, 'COMMIT']
}

function purpose({ admin }: Passage, { text }: Line): string {
  if (text === '*filter' || text === 'COMMIT') return 'all or nothing'
  if (text.startsWith(':')) return text.includes('PLUMB-PODS') ? "the chain of iptables that lets pods' packets pass" : `the admin's chain in iptables, for rules as a reference plugin's node has them`
  if (text.startsWith('-I')) return 'it comes before what Docker, say, drops there'
  return text.endsWith(` -j ${admin}`) ? "the admin's own rules come first" : 'what the chain `forward` of table inet plumb marked passes'
}
