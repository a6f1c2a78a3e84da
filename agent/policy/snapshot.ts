import type { Ip } from '../../lib/text/ip.ts'
import type { PairKnowledge } from './pairs.ts'
import { type Cluster, POLICY_KINDS } from './state.ts'

// What the agent hands over to the process that answers a question about all pairs of pods: the question and the objects
// of one moment, as lines of JSON.

/** Policies that nobody has applied: a text of YAML or JSON, or the documents in it. */
export type DraftTexts = { readonly text: string } | { readonly documents: readonly unknown[] }
/** A question about all pairs of pods. */
export type PairQuestion =
  | { readonly about: 'matrix' }
  | { readonly about: 'cell'; readonly from: string; readonly to: string }
  | ({ readonly about: 'comparison' } & DraftTexts)

/** So many objects are in one line. */
const AT_ONCE = 64

/**
 * The lines of a question. The objects are those of this call, whatever changes while the lines are read: an object is
 * replaced and never changed.
 */
export function linesOf(question: PairQuestion, { cluster, state }: PairKnowledge): Generator<string> {
  const locals = [...state.locals].map(([key, { ips, isClosed }]) => [key, { ips, isClosed }] as const)
  return lines(question, [...POLICY_KINDS.map((kind) => [kind, [...cluster[kind]]] as const), ['locals', locals]])
}

function* lines(
  question: PairQuestion,
  lists: readonly (readonly [name: string, entries: readonly unknown[]])[],
): Generator<string> {
  yield JSON.stringify(question)
  for (const [name, entries] of lists)
    for (let i = 0; i < entries.length; i += AT_ONCE) yield JSON.stringify([name, entries.slice(i, i + AT_ONCE)])
}

/** Reads the lines of a question. Throws SyntaxError for what `linesOf` did not write. */
export function readLines(text: string): { readonly question: PairQuestion; readonly known: PairKnowledge } {
  const [first = '', ...rest] = text.trimEnd().split('\n')
  const maps = new Map<string, Map<string, unknown>>([...POLICY_KINDS, 'locals'].map((name) => [name, new Map()]))
  for (const line of rest) {
    const [name, entries] = JSON.parse(line) as [name: string, entries: [key: string, value: unknown][]]
    for (const [key, value] of entries) maps.get(name)?.set(key, value)
  }
  const locals = maps.get('locals') as Map<string, { readonly ips: readonly Ip[]; readonly isClosed: boolean }>
  return {
    question: JSON.parse(first),
    known: { cluster: Object.fromEntries(maps) as unknown as Cluster, state: { locals } },
  }
}
