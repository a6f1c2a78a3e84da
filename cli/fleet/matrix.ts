// From each node to each node: the rows of all agents side by side.
import { isBad, type PeerState } from '../../agent/state/rows.ts'
import type { Summary } from '../../agent/state/summary.ts'
import { stateOfLetter } from './answer.ts'

/** From × to. Rows and columns have the order of `names`: by zone, then by name, so that a lost zone is a block. */
export interface Matrix {
  readonly names: readonly string[]
  /** The zone of each node, empty for unknown. */
  readonly zones: readonly string[]
  readonly rows: readonly MatrixRow[]
}
/** What one node sees of all. */
export interface MatrixRow {
  /** A letter per node, as in the row of a summary. `-` is the node itself, a space is unknown. */
  readonly states: string
  /** The share of lost probes in percent. Null for unknown. */
  readonly lost: readonly (number | null)[]
  /** The last round trip in milliseconds. Null for unknown. */
  readonly ms: readonly (number | null)[]
}
/** Packets from one node to another are lost, while the other way they are not. */
export interface OneWay {
  readonly from: string
  readonly to: string
}

/** Makes the matrix of these nodes from the rows of those that answer. */
export function matrixOf(
  living: readonly Pick<Summary, 'node' | 'row'>[],
  nodes: readonly { readonly name: string; readonly zone?: string }[],
): Matrix {
  const names = nodes.map(({ name }) => name)
  const places = new Map(names.map((name, i) => [name, i]))
  const rows = names.map((): MatrixRow => emptyRow(names.length))
  for (const { node, row } of living) {
    const own = places.get(node)
    if (own === undefined || !row) continue
    const { lost, ms } = emptyRow(names.length)
    const states = Array.from({ length: names.length }, () => ' ')
    states[own] = '-'
    for (const [i, name] of row.name.entries()) {
      const to = places.get(name)
      if (to === undefined || to === own) continue
      states[to] = row.state[i] as string
      lost[to] = row.lost[i] as number | null
      ms[to] = row.ms[i] as number | null
    }
    rows[own] = { states: states.join(''), lost, ms }
  }
  return { names, zones: nodes.map(({ zone = '' }) => zone), rows }
}

function emptyRow(length: number): { states: string; lost: (number | null)[]; ms: (number | null)[] } {
  return { states: ' '.repeat(length), lost: new Array(length).fill(null), ms: new Array(length).fill(null) }
}

/** What the node in row `from` knows of the way to the node in column `to`. Undefined for nothing. */
export function stateAt({ rows }: Matrix, from: number, to: number): PeerState | undefined {
  return stateOfLetter(rows[from]?.states[to])
}

/** The pairs that lose packets in one direction, while the other one answers. */
export function oneWayOf(matrix: Matrix): OneWay[] {
  const { names } = matrix
  const found: OneWay[] = []
  for (const [i, from] of names.entries())
    for (const [j, to] of names.entries()) {
      const there = stateAt(matrix, i, j)
      if (there === undefined || !isBad({ state: there })) continue
      if (stateAt(matrix, j, i) === 'reachable') found.push({ from, to })
    }
  return found
}
