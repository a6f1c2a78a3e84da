// What many nodes say together: how each one is, which pairs lose packets, and one sentence for all. Pure.

import { collator } from '../../agent/state/reachability.ts'
import type { Severity } from '../../agent/state/status.ts'
import type { Summary, WorstPeer } from '../../agent/state/summary.ts'
import { firstOf } from '../../lib/text/listing.ts'
import { type Matrix, matrixOf, type OneWay, oneWayOf } from './matrix.ts'
import { type Lost, lostNodes, lostZones, type ZonePair, zonePairs } from './zones.ts'

/** What is known of one agent. Times are milliseconds since 1970 by the clock of who asks. */
export interface KnownAgent {
  readonly name: string
  readonly zone?: string
  /** The last answer, when it came, and how long it took in milliseconds. */
  readonly summary?: Summary
  readonly at?: number
  readonly tookMs?: number
  /** Why the agent did not answer when it was asked last, and since when. */
  readonly failure?: { readonly why: string; readonly since: number }
}
/** How a node is. `dead`: its agent does not answer. Its network may work all the same. */
export type NodeState = 'ready' | 'degraded' | 'not ready' | 'dead'
/** A node of the fleet. What its agent said last is there also when it is dead. */
export interface FleetNode
  extends Partial<
    Pick<
      Summary,
      | 'version'
      | 'backend'
      | 'started'
      | 'peers'
      | 'worst'
      | 'store'
      | 'drift'
      | 'repairs'
      | 'drops'
      | 'pods'
      | 'policies'
      | 'services'
      | 'findings'
    >
  > {
  readonly name: string
  readonly zone?: string
  readonly state: NodeState
  /** Why it is not ready. */
  readonly cause?: string
  /** When its agent answered last. Absent when it never did. */
  readonly at?: number
  /** Since when its agent does not answer. */
  readonly deadSince?: number
  /** How long the last answer took, in milliseconds. Only above a second. */
  readonly slowMs?: number
}
/** Nodes with the same trouble. */
export interface Group {
  readonly what: string
  readonly nodes: readonly string[]
}
/** A finding of the doctor, on one node or more. */
export interface FleetFinding extends Group {
  readonly code: string
  readonly severity: Severity
  readonly commands: readonly string[]
}
/** All nodes at one moment. */
export interface Fleet {
  readonly at: number
  /** How the fleet is, the numbers first, then the largest troubles. */
  readonly sentence: string
  /** Why agents are not known or cannot be asked. */
  readonly note?: string
  /** By zone, then by name. */
  readonly nodes: readonly FleetNode[]
  readonly counts: Readonly<Record<NodeState, number>>
  /** The number of nodes by version. */
  readonly versions: Readonly<Record<string, number>>
  /** Those that do not answer, by reason, the largest group first. */
  readonly dead: readonly Group[]
  /** Zones and nodes that (nearly) no other one reaches. */
  readonly lost: readonly Lost[]
  /** Pairs that lose packets in one direction only. */
  readonly oneWay: readonly OneWay[]
  readonly findings: readonly FleetFinding[]
  /** From each zone to each zone. */
  readonly zones: readonly ZonePair[]
  /** From each node to each node. Absent with more than `MATRIX_NODES` nodes. */
  readonly matrix?: Matrix
}

/** The largest fleet with a matrix of nodes. */
const MATRIX_NODES = 300
/** A slower answer is told. Milliseconds. */
const SLOW_MS = 1000
/** The names in one part of the sentence. */
const NAMED = 3

/** Judges a fleet. `note` says why agents are not known. `now` is in milliseconds since 1970. */
export function judge(known: readonly KnownAgent[], now: number, note?: string): Fleet {
  const names = namesOfAll(known)
  const nodes = known.map((one) => nodeOf(one, names)).sort(byZoneAndName)
  const counts = { ready: 0, degraded: 0, 'not ready': 0, dead: 0 }
  for (const { state } of nodes) counts[state]++
  const living = known.flatMap((one) => {
    const { summary, failure, zone } = one
    const node = names.get(one) as string
    return summary && !failure ? [{ ...summary, node, ...(zone !== undefined && { zone }) }] : []
  })
  const matrix = known.length <= MATRIX_NODES ? matrixOf(living, nodes) : undefined
  const zones = zonePairs(living)
  const lost = lostZones(zones, nodes)
  const more = lostNodes(living, nodes, matrix, new Set(lost.flatMap((one) => one.nodes)))
  const oneWay = matrix ? oneWayOf(matrix) : []
  const dead = groupsOf(
    nodes.filter(({ state }) => state === 'dead'),
    ({ cause }) => cause ?? '',
  )
  const all = { nodes, counts, dead, lost: [...lost, ...more], oneWay }
  return {
    at: now,
    sentence: sentenceOf(all, note),
    ...(note !== undefined && { note }),
    ...all,
    versions: versionsOf(nodes),
    findings: findingsOf(nodes),
    zones,
    ...(matrix && { matrix }),
  }
}

// An agent says the name of its node. Of several with one name, the one that is known by it has it, else the first one.
// So no agent takes the place of another one.
function namesOfAll(known: readonly KnownAgent[]): ReadonlyMap<KnownAgent, string> {
  const owners = new Map<string, KnownAgent>(known.map((one) => [one.name, one]))
  for (const one of known) {
    const said = one.summary?.node ?? one.name
    if (!owners.has(said)) owners.set(said, one)
  }
  return new Map(
    known.map((one) => {
      const said = one.summary?.node ?? one.name
      return [one, owners.get(said) === one ? said : one.name]
    }),
  )
}

function nodeOf(one: KnownAgent, names: ReadonlyMap<KnownAgent, string>): FleetNode {
  const { zone, summary, at, tookMs = 0, failure } = one
  const { node: _node, zone: own, state, cause, at: _, zones, row, ...rest } = summary ?? ({} as Partial<Summary>)
  const place = zone ?? own
  const why = failure?.why ?? (state === undefined ? 'not asked yet' : cause)
  return {
    ...rest,
    name: names.get(one) as string,
    ...(place !== undefined && { zone: place }),
    state: failure || state === undefined ? 'dead' : state,
    ...(why !== undefined && { cause: why }),
    ...(at !== undefined && { at }),
    ...(failure && { deadSince: failure.since }),
    ...(!failure && tookMs > SLOW_MS && { slowMs: Math.round(tookMs) }),
  }
}

function byZoneAndName(a: FleetNode, b: FleetNode): number {
  return collator.compare(a.zone ?? '', b.zone ?? '') || collator.compare(a.name, b.name)
}

function groupsOf(nodes: readonly FleetNode[], what: (node: FleetNode) => string): Group[] {
  const groups = [...Map.groupBy(nodes, what)].map(([text, all]) => ({
    what: text,
    nodes: all.map(({ name }) => name),
  }))
  return groups.sort((a, b) => b.nodes.length - a.nodes.length)
}

function versionsOf(nodes: readonly FleetNode[]): Readonly<Record<string, number>> {
  const versions = Map.groupBy(nodes, ({ version }) => version)
  const counted = [...versions].flatMap(([version, all]) =>
    version === undefined ? [] : [[version, all.length] as const],
  )
  return Object.fromEntries(counted.sort(([a], [b]) => collator.compare(b, a)))
}

function findingsOf(nodes: readonly FleetNode[]): FleetFinding[] {
  const all = nodes.flatMap(({ name, state, findings = [] }) =>
    state === 'dead' ? [] : findings.map((finding) => ({ name, finding })),
  )
  const found = [...Map.groupBy(all, ({ finding }) => finding.code).values()].map((group): FleetFinding => {
    const { code, severity, text, commands } = (group[0] as (typeof group)[number]).finding
    return { code, severity, what: text, commands, nodes: group.map(({ name }) => name) }
  })
  return found.sort((a, b) => a.severity.localeCompare(b.severity) || b.nodes.length - a.nodes.length)
}

function sentenceOf(
  { nodes, counts, dead, lost, oneWay }: Pick<Fleet, 'nodes' | 'counts' | 'dead' | 'lost' | 'oneWay'>,
  note: string | undefined,
): string {
  if (nodes.length === 0) return note ?? 'no agent is known yet'
  const [first] = dead
  const isOneReason = dead.length === 1 && first !== undefined
  const deadWords = isOneReason
    ? `${firstOf(first.nodes, NAMED)}: ${first.what}`
    : firstOf(
        dead.flatMap((one) => one.nodes),
        NAMED,
      )
  const [one] = oneWay
  const parts = [
    `${counts.ready} of ${nodes.length} ${nodes.length === 1 ? 'node is' : 'nodes are'} ready`,
    ...(counts['not ready'] > 0 ? [`${counts['not ready']} not ready (${notReady(nodes)})`] : []),
    ...(counts.degraded > 0 ? [`${counts.degraded} degraded`] : []),
    ...(counts.dead > 0 ? [`${counts.dead} ${counts.dead === 1 ? 'does' : 'do'} not answer (${deadWords})`] : []),
    ...lost.slice(0, NAMED).map(({ text }) => text),
    ...(lost.length > NAMED ? [`${lost.length - NAMED} more are not reached`] : []),
    ...(one ? [oneWayWords(one, oneWay.length)] : []),
    ...(note === undefined ? [] : [note]),
  ]
  return parts.join('; ')
}

function notReady(nodes: readonly FleetNode[]): string {
  const all = nodes.filter(({ state }) => state === 'not ready')
  const [first] = all
  return all.length === 1 && first?.cause !== undefined
    ? `${first.name}: ${first.cause}`
    : firstOf(
        all.map(({ name }) => name),
        NAMED,
      )
}

function oneWayWords({ from, to }: OneWay, count: number): string {
  const more = count > 1 ? `, and so ${count - 1} more ${count === 2 ? 'pair' : 'pairs'}` : ''
  return `packets from ${from} to ${to} are lost one way only${more}`
}

/** The peers that one node loses packets to, with the node, the worst first. */
export interface BadPair extends WorstPeer {
  readonly from: string
}

/** All pairs that agents name as bad, at most 20 per node, the worst first. */
export function badPairs({ nodes }: Fleet): BadPair[] {
  const order = { unreachable: 0, silent: 1, narrow: 2, away: 3, reachable: 4, unknown: 5 }
  return nodes
    .filter(({ state }) => state !== 'dead')
    .flatMap(({ name, worst = [] }) => worst.map((peer): BadPair => ({ from: name, ...peer })))
    .sort((a, b) => order[a.state] - order[b.state] || collator.compare(a.from, b.from))
}
