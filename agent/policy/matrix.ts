import {
  groupsOf,
  type Judged,
  judgeOf,
  namespaceOf,
  type PairKnowledge,
  type Probe,
  pairCount,
  pairOf,
  pairsOf,
  wordsOf,
  worldOf,
} from './pairs.ts'

/**
 * Whether pods of one namespace reach pods of another one. `o`: all of them at all ports. `p`: some of them, or at some
 * ports. `c`: none. `-`: no pod of this node is at an end, or there are no two pods.
 */
export type Cell = 'o' | 'p' | 'c' | '-'
/** The namespaces of the cluster's pods, and a row of cells for each: from its pods to those of the other namespaces. */
export interface PolicyMatrix {
  readonly namespaces: readonly string[]
  readonly rows: readonly string[]
}
/** Whether one pod reaches another one. */
export interface PairView {
  readonly from: string
  readonly to: string
  /** The ports that are decided alike: `TCP 80`, `TCP 1-79, 81-65535`, or `ICMP and others`. */
  readonly ports: readonly { readonly ports: string; readonly passes: boolean; readonly reason: string }[]
}
/** The pods behind a cell. `more` is the number of pairs that are left out. */
export interface CellView {
  readonly pairs: readonly PairView[]
  readonly more: number
}

/** The most pairs of a cell that are shown one by one. */
const MOST_PAIRS = 200

/** Decides for all pods of this node and all pods of the cluster at once, by namespaces. Yields where it may be left. */
export function* matrixOf(known: PairKnowledge): Generator<void, PolicyMatrix> {
  const objects = worldOf(known)
  const groups = yield* groupsOf(known, objects)
  const judge = judgeOf(objects, groups)
  const namespaces = [...new Set(groups.map(namespaceOf))].sort()
  const cells = new Map<string, Set<boolean>>()
  for (const from of groups)
    for (const to of groups) {
      yield
      const name = `${namespaceOf(from)} ${namespaceOf(to)}`
      const seen = cells.get(name) ?? new Set()
      cells.set(name, seen)
      const [one, other] = pairOf(from, to)
      if (seen.size === 2 || !one || !other || !(from.isLocal || to.isLocal)) continue
      for (const { verdict } of judge([from, one], [to, other])) {
        yield
        seen.add(verdict.passes)
        if (seen.size === 2) break
      }
    }
  const letterOf = (from: string, to: string): Cell => {
    const seen = cells.get(`${from} ${to}`)
    if (!seen?.size) return '-'
    return seen.size === 2 ? 'p' : seen.has(true) ? 'o' : 'c'
  }
  return { namespaces, rows: namespaces.map((from) => namespaces.map((to) => letterOf(from, to)).join('')) }
}

/** The pods of two namespaces, with what decides at which ports. Yields where it may be left. */
export function* cellOf(known: PairKnowledge, from: string, to: string): Generator<void, CellView> {
  const objects = worldOf(known)
  const groups = yield* groupsOf(known, objects)
  const judge = judgeOf(objects, groups)
  const pairs: PairView[] = []
  let more = 0
  for (const one of groups.filter((group) => namespaceOf(group) === from))
    for (const other of groups.filter((group) => namespaceOf(group) === to)) {
      if (!one.isLocal && !other.isLocal) continue
      const before = pairs.length
      for (const [a, b] of pairsOf(one, other).take(MOST_PAIRS - before)) {
        yield
        pairs.push({ from: a.key, to: b.key, ports: portsOf(judge([one, a], [other, b])) })
      }
      more += pairCount(one, other) - (pairs.length - before)
    }
  return { pairs: pairs.sort((a, b) => (`${a.from} ${a.to}` < `${b.from} ${b.to}` ? -1 : 1)), more }
}

function portsOf(judged: Iterable<Judged>): PairView['ports'] {
  const alike = new Map<string, { passes: boolean; reason: string; probes: Probe[] }>()
  for (const { probe, verdict } of judged) {
    const { passes, reason } = verdict
    const same = alike.get(`${passes} ${reason}`) ?? { passes, reason, probes: [] }
    same.probes.push(probe)
    alike.set(`${passes} ${reason}`, same)
  }
  return [...alike.values()].map(({ passes, reason, probes }) => ({ ports: wordsOf(probes), passes, reason }))
}
