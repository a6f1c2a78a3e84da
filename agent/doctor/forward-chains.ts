import { isSix } from '../../lib/text/cidr.ts'
import { type Cidr, parseCidr, parseIp, split } from '../../lib/text/ip.ts'

// Which chains of other programs drop what pods forward, or give it another address. Here are the rules that
// `nft -j` prints, and a packet that is followed through them. A rule whose condition is not understood counts as one that does not drop, so that nothing is
// told that is not so.

/** A chain as `nft -j list chains` has it. */
export interface ForwardChain {
  readonly family: 'ip' | 'ip6' | 'inet'
  readonly table: string
  readonly name: string
  readonly hook?: string
  readonly type?: string
  readonly policy?: string
}
/** The first packet of a connection: from a pod of this node to a pod of another one, or from a node to this one. */
export interface Forwarded {
  readonly from: Cidr
  readonly to: Cidr
  /** The destination port of a packet of UDP or of TCP. Without both of them, it is a packet of any protocol. */
  readonly udp?: number
  readonly tcp?: number
  /** The links by which it may come in, and those by which it may go out. */
  readonly iif: readonly string[]
  readonly oif: readonly string[]
}
/** A part of a rule, by its word: `{"match": …}`, `{"drop": null}`. */
export type Expression = Readonly<Record<string, unknown>>
/** The rules of a chain by its name, each as its parts. */
export type RulesOf = (chain: string) => readonly (readonly Expression[])[]

type Answer = 'yes' | 'no' | 'unknown'
type Verdict = 'drops' | 'translates' | 'passes' | 'goes on'
/** Chains that lead to each other deeper than this are not followed. The kernel allows 16. */
const DEEPEST = 16

/** Whether a chain of the hook `forward` or `input` drops the packet. */
export function drops(chain: ForwardChain, packet: Forwarded, rulesOf: RulesOf): boolean {
  if (chain.family === (isSix(packet.from) ? 'ip' : 'ip6')) return false
  const verdict = follow(chain.name, packet, rulesOf, 0)
  return verdict === 'drops' || (verdict === 'goes on' && chain.policy === 'drop')
}

/** Whether a chain of nat gives the packet another source address (hook `postrouting`) or destination (`prerouting`). */
export function translates(chain: ForwardChain, packet: Forwarded, rulesOf: RulesOf): boolean {
  if (chain.family === (isSix(packet.from) ? 'ip' : 'ip6')) return false
  return follow(chain.name, packet, rulesOf, 0) === 'translates'
}

function follow(chain: string, packet: Forwarded, rulesOf: RulesOf, depth: number): Verdict {
  if (depth > DEEPEST) return 'passes'
  // A rule that may be for the packet has left the chain, perhaps.
  let isReached = true
  for (const rule of rulesOf(chain)) {
    const answers = rule.map((part): Answer => {
      if ('match' in part) return isMatch(part['match'], packet)
      return 'xt' in part && !isTranslation(part) && !isRejection(part) ? 'unknown' : 'yes'
    })
    if (answers.includes('no')) continue
    const isSure: boolean = isReached && !answers.includes('unknown')
    const [verdict] = rule.flatMap((part) =>
      ['drop', 'reject', 'accept', 'return', 'jump', 'goto', 'vmap'].filter((word) => word in part),
    )
    if (verdict === 'return' && isSure) return 'goes on'
    if (rule.some(isRejection) && isSure) return 'drops'
    if ((verdict === 'drop' || verdict === 'reject') && isSure) return 'drops'
    if (rule.some(isTranslation) && isSure) return 'translates'
    // It may be for these packets.
    if (verdict === 'accept' || verdict === 'vmap') return 'passes'
    if (verdict === 'return' || verdict === 'goto') isReached &&= isSure
    if (verdict !== 'jump' && verdict !== 'goto') continue
    const target = (rule.find((part) => verdict in part)?.[verdict] as { target?: unknown })?.target
    const found = follow(String(target), packet, rulesOf, depth + 1)
    if (found === 'passes' || (found !== 'goes on' && isSure)) return found
    if (verdict === 'goto' && isSure) return 'goes on'
  }
  return 'goes on'
}

const TRANSLATIONS: readonly string[] = ['masquerade', 'snat', 'redirect', 'dnat']

// nft shows the target of iptables as an expression of xtables.
function isTranslation(part: Expression): boolean {
  const { name } = (part['xt'] ?? {}) as { name?: unknown }
  return TRANSLATIONS.some((word) => word in part || name === word.toUpperCase())
}

function isRejection(part: Expression): boolean {
  return ((part['xt'] ?? {}) as { name?: unknown }).name === 'REJECT'
}

interface Match {
  readonly op?: unknown
  readonly left?: {
    readonly payload?: { readonly protocol?: unknown; readonly field?: unknown }
    readonly meta?: { readonly key?: unknown }
    readonly ct?: { readonly key?: unknown }
  }
  readonly right?: unknown
}

function isMatch(match: unknown, packet: Forwarded): Answer {
  const { op, left, right } = (match ?? {}) as Match
  const answer = answerOf(left ?? {}, right, packet)
  if (op === '!=') return answer === 'yes' ? 'no' : answer === 'no' ? 'yes' : 'unknown'
  return op === '==' || op === 'in' ? answer : 'unknown'
}

function answerOf({ payload, meta, ct }: NonNullable<Match['left']>, right: unknown, packet: Forwarded): Answer {
  const isV6 = isSix(packet.from)
  if (payload?.protocol === 'ip' || payload?.protocol === 'ip6') {
    if ((payload.protocol === 'ip6') !== isV6) return 'no'
    if (payload.field === 'saddr') return isAmong(packet.from, right)
    if (payload.field === 'daddr') return isAmong(packet.to, right)
  }
  if (meta?.key === 'nfproto') return right === (isV6 ? 'ipv6' : 'ipv4') ? 'yes' : 'no'
  if (meta?.key === 'iifname') return isLink(packet.iif, right)
  if (meta?.key === 'oifname') return isLink(packet.oif, right)
  if (ct?.key === 'state') return listOf(right).includes('new') ? 'yes' : 'no'
  // Nobody has translated it, and no answer has come.
  if (ct?.key === 'status') return 'no'
  const port = packet.udp ?? packet.tcp
  if (port === undefined) return 'unknown'
  const protocol = packet.udp === undefined ? 'tcp' : 'udp'
  if (meta?.key === 'l4proto') return listOf(right).includes(protocol) ? 'yes' : 'no'
  if (payload?.protocol === protocol && payload.field === 'dport') return isPort(port, right)
  // Rules of other protocols.
  if (/^(tcp|udp|sctp|icmp|icmpv6)$/.test(String(payload?.protocol)) && payload?.protocol !== protocol) return 'no'
  return 'unknown'
}

// Whether addresses or networks contain all of a network.
function isAmong(network: Cidr, right: unknown): Answer {
  const { first, last, family } = split(network)
  const answers = listOf(right).map((one): Answer => {
    try {
      const { prefix } = one as { prefix?: { addr: string; len: number } }
      const single = () => `${parseIp(one)}/${family === 4 ? 32 : 128}` as Cidr
      const cidr = prefix ? parseCidr(`${prefix.addr}/${prefix.len}`) : single()
      const { first: from, last: to, family: other } = split(cidr)
      if (other !== family || last < from || first > to) return 'no'
      return from <= first && to >= last ? 'yes' : 'unknown'
    } catch {
      return 'unknown'
    }
  })
  return answers.includes('yes') ? 'yes' : answers.every((one) => one === 'no') ? 'no' : 'unknown'
}

function isLink(links: readonly string[], right: unknown): Answer {
  const names = listOf(right)
  if (names.some((one) => typeof one !== 'string')) return 'unknown'
  const isOne = (link: string) =>
    (names as string[]).some((name) => (name.endsWith('*') ? link.startsWith(name.slice(0, -1)) : name === link))
  return links.some(isOne) ? 'yes' : 'no'
}

function isPort(port: number, right: unknown): Answer {
  const answers = listOf(right).map((one): Answer => {
    if (typeof one === 'number') return one === port ? 'yes' : 'no'
    const { range } = (one ?? {}) as { range?: readonly [number, number] }
    if (range === undefined) return 'unknown'
    return range[0] <= port && port <= range[1] ? 'yes' : 'no'
  })
  return answers.includes('yes') ? 'yes' : answers.every((one) => one === 'no') ? 'no' : 'unknown'
}

function listOf(right: unknown): readonly unknown[] {
  if (Array.isArray(right)) return right
  const { set } = (typeof right === 'object' && right !== null ? right : {}) as { set?: unknown }
  return Array.isArray(set) ? set : [right]
}
