import { Composer, type Document, isScalar, Parser, visit } from 'yaml'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type ClusterPolicy, clusterPolicyOf } from '../cluster/cluster-policy.ts'
import { checkDocument, withoutBlanks } from '../cluster/document.ts'
import { apiVersionsOf, KINDS, type ObjectKind } from '../cluster/kinds.ts'
import { type Policy, policyOf } from '../cluster/objects.ts'
import {
  alikeOf,
  type Group,
  type Judged,
  judgeOf,
  type Member,
  namespaceOf,
  type PairKnowledge,
  type Probe,
  pairCount,
  pairOf,
  pairsOf,
  selectedIn,
  wordsOf,
  worldOf,
} from './pairs.ts'
import { SIDES, type Side } from './table.ts'

// What policies would change that nobody has applied yet.

/** Policies that somebody thinks of. One with the name of a policy of the cluster stands instead of that one. */
export interface Drafts {
  readonly policies: readonly Policy[]
  readonly clusterPolicies: readonly ClusterPolicy[]
}
/** What would change between the pods of this node and all pods of the cluster. */
export interface Comparison {
  readonly drafts: readonly {
    /** `x/allow-web`, or `ClusterNetworkPolicy deny-all`. */
    readonly name: string
    /** A policy of the cluster has this name. */
    readonly isKnown: boolean
  }[]
  /** Pairs of namespaces, with the number of pairs of pods that could reach each other at more ports, or at fewer. */
  readonly namespaces: readonly {
    readonly from: string
    readonly to: string
    readonly opened: number
    readonly closed: number
  }[]
  /** The pairs of pods themselves, and how many are left out. */
  readonly pairs: readonly ChangedPair[]
  readonly more: number
  /** Pods of this node that no NetworkPolicy selects for a direction, and then one does. Or the other way round. */
  readonly isolation: readonly { readonly pod: string; readonly side: Side; readonly isIsolated: boolean }[]
}
/** The changes from one pod to another one. `passes` and `reason` are those of afterwards. */
interface ChangedPair {
  readonly from: string
  readonly to: string
  readonly ports: readonly {
    readonly ports: string
    readonly passes: boolean
    readonly reason: string
    readonly before: string
  }[]
}

const WANT = 'want NetworkPolicy or ClusterNetworkPolicy objects in YAML or JSON'
const MOST_PAIRS = 200
/** How much work a comparison may be, in milliseconds. The agent does it in pieces. */
const MOST_MS = 2000
/** The most characters of a text with policies. */
const MOST_TEXT = 262_144

/**
 * Reads policies from YAML or JSON, several documents too. Yields where the work may be left. Throws ValueError for what
 * the agent would refuse.
 */
export function* draftsOf(text: string): Generator<void, Drafts> {
  return yield* draftsFrom(yield* documentsOf(text))
}

/** Reads policies from their documents. Yields where the work may be left. Throws ValueError as `draftsOf`. */
export function* draftsFrom(documents: readonly unknown[]): Generator<void, Drafts> {
  const policies = new Map<string, Policy>()
  const clusterPolicies = new Map<string, ClusterPolicy>()
  for (const given of documents) {
    yield
    const { kind } = (given ?? {}) as { kind?: unknown }
    if (kind === 'NetworkPolicy') {
      const one = policyOf(documentOf(given, KINDS.policies))
      policies.set(keyOf(one), one)
    } else if (kind === 'ClusterNetworkPolicy') {
      const one = clusterPolicyOf(documentOf(given, KINDS.clusterPolicies))
      clusterPolicies.set(one.name, one)
    } else throw new ValueError(`Cannot compare ${JSON.stringify(kind) ?? 'an object without a kind'}: ${WANT}`)
  }
  if (policies.size + clusterPolicies.size === 0) throw new ValueError(`There is no policy in this text: ${WANT}`)
  return { policies: [...policies.values()], clusterPolicies: [...clusterPolicies.values()] }
}

function documentOf(given: unknown, kind: ObjectKind<unknown>): unknown {
  const raw = withoutBlanks(given, kind.custom !== undefined)
  checkDocument(raw, kind.manifest, apiVersionsOf(kind))
  return raw
}

/** The documents of a text, and the items of lists among them. Yields after each document. Throws ValueError. */
export function* documentsOf(text: string): Generator<void, unknown[]> {
  if (text.length > MOST_TEXT)
    throw new ValueError(`The policies have ${text.length} characters: want ${MOST_TEXT} at most`)
  const all: unknown[] = []
  // With its own search for equal keys, and with lines for each error, the parser takes half a minute for 260 kB.
  const composer = new Composer({ uniqueKeys: false, prettyErrors: false })
  const documents: Document[] = []
  for (const document of composer.compose(new Parser().parse(text))) {
    documents.push(document)
    yield
  }
  const fault = documents.flatMap(({ errors }) => errors)[0]
  if (fault) {
    const line = text.slice(0, fault.pos[0]).split('\n').length
    throw new ValueError(`Cannot read the policies: line ${line}: ${fault.message.split('\n', 1)[0]}`)
  }
  for (const document of documents) {
    yield
    const raw = rawOf(document)
    const { kind, items } = (raw ?? {}) as { kind?: unknown; items?: unknown }
    if (typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items))
      for (const one of items) all.push(one)
    else if (raw !== null) all.push(raw)
  }
  return all
}

function rawOf(document: Document): unknown {
  try {
    refuseEqualKeys(document)
    return document.toJS()
  } catch (cause) {
    throw new ValueError(`Cannot read the policies: ${(cause as Error).message}`)
  }
}

function refuseEqualKeys(document: Document): void {
  visit(document, {
    Map(_, { items }) {
      const keys = new Set<unknown>()
      for (const { key } of items) {
        const name = isScalar(key) ? String(key.value) : key
        if (keys.has(name)) throw new ValueError(`the key ${shown(String(name))} is there twice`)
        keys.add(name)
      }
    },
  })
}

/** The most work of a comparison, for `inPieces`. */
export const MOST = {
  ms: MOST_MS,
  error: () =>
    new ValueError(`This comparison takes longer than ${MOST_MS / 1000} s: want fewer policies or ports at a time`),
}

/**
 * Compares what the policies of the cluster decide with what they would decide with the drafts. Yields where the work may
 * be left.
 */
export function* comparisonOf(known: PairKnowledge, drafts: Drafts): Generator<void, Comparison> {
  const before = worldOf(known)
  const isDraft = (one: Policy) => drafts.policies.some((draft) => keyOf(draft) === keyOf(one))
  const isClusterDraft = (one: ClusterPolicy) => drafts.clusterPolicies.some(({ name }) => name === one.name)
  const after = {
    ...before,
    policies: [...before.policies.filter((one) => !isDraft(one)), ...drafts.policies],
    clusterPolicies: [...before.clusterPolicies.filter((one) => !isClusterDraft(one)), ...drafts.clusterPolicies],
  }
  // What one of both worlds tells apart, so that both have the same groups in the same order.
  const both = {
    ...before,
    policies: [...before.policies, ...drafts.policies],
    clusterPolicies: [...before.clusterPolicies, ...drafts.clusterPolicies],
  }
  const alike = yield* alikeOf(known, both)
  const groups = yield* selectedIn(alike, before)
  const groupsAfter = yield* selectedIn(alike, after)
  const [judge, judgeAfter] = [judgeOf(before, groups), judgeOf(after, groupsAfter)]
  const changed = new Set<unknown>([...drafts.policies, ...before.policies.filter(isDraft)])
  const isTouched = (index: number) =>
    drafts.clusterPolicies.length > 0 ||
    [groups, groupsAfter].some((all) => all[index]?.policies.some((one) => changed.has(one)))
  const touched = groups.map((_, index) => isTouched(index))
  const namespaces = new Map<string, { from: string; to: string; opened: number; closed: number }>()
  const pairs: ChangedPair[] = []
  let more = 0
  for (const [i, from] of groups.entries())
    for (const [j, to] of groups.entries()) {
      yield
      const [fromAfter, toAfter] = [groupsAfter[i], groupsAfter[j]]
      if (!(touched[i] || touched[j]) || !(from.isLocal || to.isLocal) || !fromAfter || !toAfter) continue
      function* changesOf(one: Member, other: Member): Generator<void, ChangedPair['ports']> {
        const then = judgeAfter([fromAfter as Group, one], [toAfter as Group, other])
        return changes(yield* overlay(judge([from, one], [to, other]), then))
      }
      const [first, second] = pairOf(from, to)
      // All other pairs of both groups change alike.
      const ports = first && second ? yield* changesOf(first, second) : []
      if (ports.length === 0) continue
      const counted = pairs.length
      count(namespaces, from, to, ports, pairCount(from, to))
      for (const [one, other] of pairsOf(from, to).take(MOST_PAIRS - counted))
        pairs.push({ from: one.key, to: other.key, ports: yield* changesOf(one, other) })
      more += pairCount(from, to) - (pairs.length - counted)
    }
  return {
    drafts: [
      ...drafts.policies.map((one) => ({ name: keyOf(one), isKnown: before.policies.some(isSame(one)) })),
      ...drafts.clusterPolicies.map(({ name }) => ({
        name: `ClusterNetworkPolicy ${name}`,
        isKnown: before.clusterPolicies.some((one) => one.name === name),
      })),
    ],
    namespaces: [...namespaces.values()].sort(byEnds),
    pairs: pairs.sort(byEnds),
    more,
    isolation: groups.flatMap((group, i) => isolationOf(group, groupsAfter[i])),
  }
}

function keyOf({ namespace, name }: Policy): string {
  return `${namespace}/${name}`
}

function isSame(one: Policy): (other: Policy) => boolean {
  return (other) => keyOf(one) === keyOf(other)
}

function byEnds(a: { from: string; to: string }, b: { from: string; to: string }): number {
  return `${a.from} ${a.to}` < `${b.from} ${b.to}` ? -1 : 1
}

interface Both {
  readonly probe: Probe
  readonly before: Judged['verdict']
  readonly after: Judged['verdict']
}

// Both have ranges of all ports. A range of the result is decided alike in each of both.
function* overlay(before: Iterable<Judged>, after: Iterable<Judged>): Generator<void, Both[]> {
  const others: Judged[] = []
  for (const one of after) {
    yield
    others.push(one)
  }
  const all: Both[] = []
  for (const { probe, verdict } of before) {
    yield
    for (const { probe: other, verdict: then } of others) {
      const [from, to] = [Math.max(probe.from, other.from), Math.min(probe.to, other.to)]
      if (probe.protocol !== other.protocol || from > to) continue
      all.push({ probe: { protocol: probe.protocol, from, to }, before: verdict, after: then })
    }
  }
  return all
}

function changes(judged: readonly Both[]): ChangedPair['ports'] {
  const changed = judged.filter(({ before, after }) => before.passes !== after.passes)
  const alike = Map.groupBy(changed, ({ before, after }) => JSON.stringify([after.passes, after.reason, before.reason]))
  return [...alike.values()].map((all) => {
    const { before, after } = all[0] as Both
    return { ports: wordsOf(all.map(({ probe }) => probe)), ...after, before: before.reason }
  })
}

function count(
  namespaces: Map<string, { from: string; to: string; opened: number; closed: number }>,
  one: Group,
  other: Group,
  ports: ChangedPair['ports'],
  pairs: number,
): void {
  const [from, to] = [namespaceOf(one), namespaceOf(other)]
  const counted = namespaces.get(`${from} ${to}`) ?? { from, to, opened: 0, closed: 0 }
  namespaces.set(`${from} ${to}`, counted)
  if (ports.some(({ passes }) => passes)) counted.opened += pairs
  if (ports.some(({ passes }) => !passes)) counted.closed += pairs
}

function isolationOf(before: Group, after: Group | undefined): Comparison['isolation'] {
  if (!before.isLocal || !after) return []
  const isIsolated = ({ policies }: Group, side: Side) => policies.some((one) => one[side] !== undefined)
  return SIDES.filter((side) => isIsolated(before, side) !== isIsolated(after, side)).flatMap((side) =>
    before.members.map(({ key }) => ({ pod: key, side, isIsolated: isIsolated(after, side) })),
  )
}
