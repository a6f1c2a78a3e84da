// Which zones, and which nodes, the others do not reach. One sentence each, however many pairs it concerns.
import { isBad } from '../../agent/state/rows.ts'
import type { Summary } from '../../agent/state/summary.ts'
import { type Matrix, stateAt } from './matrix.ts'

/** The ways from the nodes of one zone to those of another, or of the same. */
export interface ZonePair {
  readonly from: string
  readonly to: string
  readonly pairs: number
  /** Those on which packets are lost, or some of them. */
  readonly bad: number
  /** The median of the medians of the nodes, in milliseconds. Absent without an answer. */
  readonly ms?: number
}
/** A zone or a node that the others do not reach. */
export interface Lost {
  readonly kind: 'zone' | 'node'
  readonly name: string
  /** The nodes that it concerns. */
  readonly nodes: readonly string[]
  readonly text: string
}

/** A zone or a node is lost when this share of the ways to it is bad. */
const NEARLY_ALL = 0.9
/** So many others must say so. */
const WITNESSES = 2

/** From each zone to each zone, from the summaries of the nodes that answer. The sort is by name. */
export function zonePairs(living: readonly Pick<Summary, 'zone' | 'zones'>[]): ZonePair[] {
  const found = new Map<string, { from: string; to: string; pairs: number; bad: number; ms: number[] }>()
  for (const { zone: from = '', zones } of living)
    for (const [to, { peers, bad, ms }] of Object.entries(zones)) {
      const key = JSON.stringify([from, to])
      const pair = found.get(key) ?? { from, to, pairs: 0, bad: 0, ms: [] }
      found.set(key, pair)
      pair.pairs += peers
      pair.bad += bad
      if (ms !== undefined) pair.ms.push(ms)
    }
  return [...found.values()]
    .sort((a, b) => (a.from === b.from ? (a.to < b.to ? -1 : 1) : a.from < b.from ? -1 : 1))
    .map(({ ms, ...pair }) => {
      const middle = ms.sort((a, b) => a - b)[Math.floor(ms.length / 2)]
      return { ...pair, ...(middle !== undefined && { ms: middle }) }
    })
}

/** The zones that nodes of the other zones do not reach, while other zones reach each other or nodes their own zone. */
export function lostZones(
  pairs: readonly ZonePair[],
  nodes: readonly { readonly name: string; readonly zone?: string; readonly state: string }[],
): Lost[] {
  const zones = [...new Set(pairs.flatMap(({ from, to }) => [from, to]))].filter((zone) => zone !== '')
  if (zones.length < 2 || isAllBad(pairs)) return []
  return zones.flatMap((zone): Lost[] => {
    const into = total(pairs.filter(({ from, to }) => to === zone && from !== zone))
    const out = total(pairs.filter(({ from, to }) => from === zone && to !== zone))
    const isInto = into.pairs >= WITNESSES && into.bad >= NEARLY_ALL * into.pairs
    if (!isInto || isRestLost(zone, zones, pairs)) return []
    const own = nodes.filter((one) => one.zone === zone)
    const silent = own.filter(({ state }) => state === 'dead').length
    const isOneWay = out.pairs > 0 && out.bad < NEARLY_ALL * out.pairs
    const way = isOneWay
      ? 'does not answer the others, but reaches them'
      : 'and the other zones do not reach each other'
    const count = `${own.length} ${own.length === 1 ? 'node' : 'nodes'}`
    const dead = silent > 0 ? `, ${silent} of them without an answer of the agent` : ''
    return [
      { kind: 'zone', name: zone, nodes: own.map(({ name }) => name), text: `zone ${zone} ${way}: ${count}${dead}` },
    ]
  })
}

// Of two zones without a way between them none is worse. The larger one is the rest of the network.
function isRestLost(zone: string, zones: readonly string[], pairs: readonly ZonePair[]): boolean {
  if (zones.length > 2) {
    const others = pairs.filter(({ from, to }) => from !== to && from !== zone && to !== zone)
    return isAllBad(others)
  }
  const size = (one: string) => total(pairs.filter(({ from, to }) => from === one && to === one)).pairs
  const other = zones.find((one) => one !== zone) as string
  return size(zone) > size(other) || (size(zone) === size(other) && zone < other)
}

function isAllBad(pairs: readonly ZonePair[]): boolean {
  const { pairs: all, bad } = total(pairs)
  return all > 0 && bad >= NEARLY_ALL * all
}

function total(pairs: readonly ZonePair[]): { readonly pairs: number; readonly bad: number } {
  return {
    pairs: pairs.reduce((sum, one) => sum + one.pairs, 0),
    bad: pairs.reduce((sum, one) => sum + one.bad, 0),
  }
}

/**
 * The nodes outside of `told` that nearly all others do not reach. Without a matrix the lists of the worst peers count,
 * which name 20 each.
 */
export function lostNodes(
  living: readonly Summary[],
  nodes: readonly { readonly name: string }[],
  matrix: Matrix | undefined,
  told: ReadonlySet<string>,
): Lost[] {
  const counts = matrix ? countsOf(matrix) : countsOfWorst(living, nodes)
  const lost = nodes.flatMap(({ name }): Lost[] => {
    const { all, bad } = counts.get(name) ?? { all: 0, bad: 0 }
    if (told.has(name) || all < WITNESSES || bad < NEARLY_ALL * all) return []
    return [{ kind: 'node', name, nodes: [name], text: `${name} is not reached by ${bad} of ${all}` }]
  })
  // When no node reaches another one, none of them is the cause.
  return lost.length > nodes.length / 2 ? [] : lost
}

function countsOf(matrix: Matrix): ReadonlyMap<string, { readonly all: number; readonly bad: number }> {
  const { names } = matrix
  return new Map(
    names.map((name, to) => {
      const states = names.flatMap((_, from) => stateAt(matrix, from, to) ?? [])
      const known = states.filter((state) => state !== 'unknown')
      return [name, { all: known.length, bad: known.filter((state) => isBad({ state })).length }] as const
    }),
  )
}

function countsOfWorst(
  living: readonly Summary[],
  nodes: readonly { readonly name: string }[],
): ReadonlyMap<string, { readonly all: number; readonly bad: number }> {
  const bad = new Map<string, number>()
  for (const { worst } of living)
    for (const peer of worst) if (isBad(peer)) bad.set(peer.name, (bad.get(peer.name) ?? 0) + 1)
  const alive = new Set(living.map(({ node }) => node))
  return new Map(
    nodes.map(({ name }) => [name, { all: alive.size - (alive.has(name) ? 1 : 0), bad: bad.get(name) ?? 0 }]),
  )
}
