import { type Cidr, format, split } from '../../lib/text/ip.ts'
import type { ClusterPolicy, TierRule } from '../cluster/cluster-policy.ts'
import type { Peer, Policy } from '../cluster/objects.ts'
import type { Port, Selector } from '../cluster/reading.ts'
import { digest } from './digest.ts'
import type { Item } from './items.ts'
import type { PeerSelector, PeerSets } from './peer-sets.ts'
import { DENIED, FAMILIES, type Family, NAME, PASSES, type Side, TYPE } from './table.ts'

// The rules of policies as chains of nft. A chain never changes: its name is the digest of its lines.

/** A match of nft, for one family or for both, and the sets that it names. */
interface Match {
  readonly text: string
  readonly family?: Family
  readonly needs?: readonly Item[]
}

const WORD = { 4: 'ip', 6: 'ip6' } as const
const SHORT = { ingress: 'in', egress: 'out' } as const
/** nft keeps 128 bytes of a comment. */
const COMMENT = 120

/** The chain of one NetworkPolicy in one direction. It ends the way of what it allows, and returns for the rest. */
export function policyChain(policy: Policy, side: Side, sets: PeerSets): Item {
  const { namespace } = policy
  const name = `${namespace}/${policy.name}`
  const counter = counterOf('allow', side, name)
  const verdict = `counter name ${counter.name} ${PASSES} comment "${name.slice(0, COMMENT)}"`
  const needs: Item[] = []
  const lines = (policy[side] ?? []).flatMap(({ peers, ports }) => {
    const all = peers?.map((peer) => ofPolicy(peer, namespace))
    return linesOf(all, ports, { side, verdict, sets, needs, isOfTier: false })
  })
  return chain(`np_${SHORT[side]}`, lines, lines.length === 0 ? [] : [counter, ...needs])
}

/** The chain of the rules of one tier in one direction, of these policies in this order. Undefined without any. */
export function tierChain(policies: readonly ClusterPolicy[], side: Side, sets: PeerSets): Item | undefined {
  const needs: Item[] = []
  const lines = policies.flatMap((policy) =>
    policy[side].flatMap((rule, i) => {
      const comment = `${policy.name} ${side}[${i}]`.slice(0, COMMENT)
      const verdict = `${verdictOf(policy, side, rule, needs)} comment "${comment}"`
      return linesOf(rule.peers, rule.ports, { side, verdict, sets, needs, isOfTier: true })
    }),
  )
  return lines.length === 0 ? undefined : chain(`tier_${SHORT[side]}`, lines, needs)
}

// Pass ends the tier: its chain returns.
function verdictOf({ name }: ClusterPolicy, side: Side, { action }: TierRule, needs: Item[]): string {
  if (action === 'Pass') return 'return'
  const counter = counterOf(action === 'Accept' ? 'allow' : 'deny', side, name)
  needs.push(counter)
  return `counter name ${counter.name} ${action === 'Accept' ? PASSES : `goto ${DENIED[side]}`}`
}

/**
 * The chain of all pods with the same policies: the tiers before, NetworkPolicy, the tier after. A pod that reaches itself
 * by a Service meets the tiers alone: no NetworkPolicy blocks a pod from itself.
 */
export function setChain(
  side: Side,
  admin: Item | undefined,
  policies: readonly { readonly name: string; readonly chain: Item }[],
  baseline: Item | undefined,
): Item {
  const jump = ({ name }: Item) => `jump ${name}`
  if (policies.length === 0) {
    const tiers = [admin, baseline].filter((one) => one !== undefined)
    return chain(SHORT[side], [...tiers.map(jump), PASSES], tiers)
  }
  const denied = counterOf('deny', side, policies.map(({ name }) => name).join(' '))
  const chains = [...(admin ? [admin] : []), ...policies.map(({ chain }) => chain)]
  const rest = baseline ? `goto ${baseline.name}` : PASSES
  const toItself = FAMILIES.map((family) => `${WORD[family]} saddr . ${WORD[family]} daddr @self${family} ${rest}`)
  const lines = [
    ...(admin ? [jump(admin)] : []),
    ...toItself,
    ...policies.map(({ chain }) => jump(chain)),
    `counter name ${denied.name} goto ${DENIED[side]}`,
  ]
  return chain(SHORT[side], lines, [...chains, ...(baseline ? [baseline] : []), denied])
}

/** What a counter of the table counts. */
export interface Counted {
  readonly what: 'allow' | 'deny'
  readonly side: Side
  /**
   * The policies: `namespace/name` of a NetworkPolicy, the name alone of a ClusterNetworkPolicy. Several isolate a pod
   * together.
   */
  readonly policies: readonly string[]
}
/** A counter, with what it counts. */
export interface CounterItem extends Item {
  readonly counted: Counted
}

// A counter outlives the chains that name it, so that a change of a policy does not begin at zero.
function counterOf(what: Counted['what'], side: Side, names: string): CounterItem {
  const name = `${what}_${SHORT[side]}_${digest(names)}`
  return {
    name,
    kind: 'counter',
    make: [`add counter ${NAME} ${name}`],
    needs: [],
    counted: { what, side, policies: names.split(' ') },
  }
}

function chain(prefix: string, lines: readonly string[], needs: readonly Item[]): Item {
  const name = `${prefix}_${digest(lines.join('\n'))}`
  return {
    name,
    kind: 'chain',
    make: [`add chain ${NAME} ${name}`, ...lines.map((line) => `add rule ${NAME} ${name} ${line}`)],
    needs,
  }
}

type BlockPeer = { readonly cidr: Cidr; readonly except?: readonly Cidr[] }
type AnyPeer = PeerSelector | BlockPeer | { readonly nodes: Selector }

function ofPolicy(peer: Peer, namespace: string): PeerSelector | BlockPeer {
  return 'cidr' in peer ? peer : { pods: peer.pods, namespaces: peer.namespaces ?? namespace }
}

/** What the lines of a rule are made with. */
interface Making {
  readonly side: Side
  readonly verdict: string
  readonly sets: PeerSets
  /** Gets the items that the lines name. */
  readonly needs: Item[]
  readonly isOfTier: boolean
}

function linesOf(peers: readonly AnyPeer[] | undefined, ports: readonly Port[] | undefined, making: Making): string[] {
  const { verdict, needs } = making
  const who: readonly Match[] = peers === undefined ? [{ text: '' }] : whoMatches(peers, making)
  const where: readonly Match[] = ports === undefined ? [{ text: '' }] : whereMatches(ports, making)
  return who.flatMap((one) =>
    where.flatMap((other) => {
      if (one.family !== undefined && other.family !== undefined && one.family !== other.family) return []
      needs.push(...(one.needs ?? []), ...(other.needs ?? []))
      return [[one.text, other.text, verdict].filter(Boolean).join(' ')]
    }),
  )
}

function whoMatches(peers: readonly AnyPeer[], { side, sets, isOfTier }: Making): Match[] {
  const end = side === 'ingress' ? 'saddr' : 'daddr'
  const named = new Map<string, Match>()
  for (const peer of peers) {
    if ('cidr' in peer) continue
    for (const family of FAMILIES) {
      const set = 'nodes' in peer ? sets.nodes(peer.nodes, family) : sets.pods(peer, family, isOfTier)
      named.set(set.name, { text: `${WORD[family]} ${end} @${set.name}`, family, needs: [set] })
    }
  }
  const blocks = peers.flatMap((peer) => ('cidr' in peer ? [peer] : []))
  return [...named.values(), ...FAMILIES.flatMap((family) => blockMatches(blocks, family, end))]
}

// All blocks of a rule are one set of ranges: its cost does not depend on their number.
function blockMatches(blocks: readonly BlockPeer[], family: Family, end: string): Match[] {
  const ranges = union(blocks.filter(({ cidr }) => split(cidr).family === family).flatMap(rangesOf))
  if (ranges.length === 0) return []
  const field = `${WORD[family]} ${end}`
  const texts = ranges.map(([first, last]) => {
    const [from, to] = [address(first, family), address(last, family)]
    return first === last ? from : `${from}-${to}`
  })
  if (ranges.length > 1) {
    const name = `blocks${family}_${digest(texts.join(' '))}`
    return [{ text: `${field} @${name}`, family, needs: [listed(name, TYPE[family], texts)] }]
  }
  const [first, last] = ranges[0] as Range
  const isAll = first === 0n && last === (1n << (family === 4 ? 32n : 128n)) - 1n
  return [{ text: isAll ? `meta nfproto ipv${family}` : `${field} ${texts[0]}`, family }]
}

// A set that never changes, named by its content, so that all rules with that content share it. The kernel takes longer
// for each set of a table: with a set in each rule, a thousand policies took four seconds.
function listed(name: string, type: string, texts: readonly string[]): Item {
  return {
    name,
    kind: 'set',
    make: [`add set ${NAME} ${name} { type ${type}; flags interval; elements = { ${texts.join(', ')} } }`],
    needs: [],
  }
}

type Range = readonly [first: bigint, last: bigint]

// What is left of a block without its exceptions. Each of them is a part of the block.
function rangesOf({ cidr, except = [] }: BlockPeer): Range[] {
  const { first, last } = split(cidr)
  const left: Range[] = []
  let from = first
  for (const [begin, end] of union(except.map((one): Range => [split(one).first, split(one).last]))) {
    if (from < begin) left.push([from, begin - 1n])
    from = end + 1n
  }
  if (from <= last) left.push([from, last])
  return left
}

function union(ranges: readonly Range[]): Range[] {
  const out: Range[] = []
  for (const [first, last] of ranges.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))) {
    const before = out.at(-1)
    if (before && first <= before[1] + 1n) out[out.length - 1] = [before[0], later(last, before[1])]
    else out.push([first, last])
  }
  return out
}

function later(one: bigint, other: bigint): bigint {
  return one < other ? other : one
}

function address(bits: bigint, family: Family): string {
  return format({ family, bits })
}

// A few lines for each protocol, however many ports there are: each peer of the rule gets each of them.
function whereMatches(ports: readonly Port[], { sets, isOfTier }: Making): Match[] {
  return [...Map.groupBy(ports, ({ protocol }) => protocol)].flatMap(([protocol, all]): Match[] => {
    const word = protocol.toLowerCase()
    if (all.some(({ from, name }) => from === undefined && name === undefined))
      return [{ text: `meta l4proto ${word}` }]
    const names = all.flatMap(({ name }) => name ?? [])
    const named = FAMILIES.map((family): Match => {
      const set = sets.ports(names, protocol, family, isOfTier)
      return { text: `meta l4proto ${word} ${WORD[family]} daddr . th dport @${set.name}`, family, needs: [set] }
    })
    const ranges = all.flatMap(({ from, to = from }): Range[] =>
      from === undefined || to === undefined ? [] : [[BigInt(from), BigInt(to)]],
    )
    return [...(names.length > 0 ? named : []), ...(ranges.length > 0 ? [portMatch(word, ranges)] : [])]
  })
}

function portMatch(word: string, ranges: readonly Range[]): Match {
  const texts = union(ranges).map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`))
  if (texts.length === 1) return { text: `${word} dport ${texts[0]}` }
  const name = `dports_${digest(texts.join(' '))}`
  return { text: `${word} dport @${name}`, needs: [listed(name, 'inet_service', texts)] }
}
