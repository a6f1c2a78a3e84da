// The first sentence about a node, on its page, in its terminal and for readers without a script.
import { printable } from '../../lib/text/printable.ts'
import { isBad, type PeerState, type Row, rowName, zoneWords } from './rows.ts'
import type { Finding, Status } from './status.ts'

/** The names that a sentence has. More are counted. */
const NAMED = 3

/** Words about several peers in a state, and about one. */
const WORDS: Readonly<Record<Exclude<PeerState, 'reachable' | 'unknown'>, readonly [many: string, one: string]>> = {
  silent: ['do not answer', 'does not answer'],
  away: ['are away', 'is away'],
  narrow: ['lose packets of full size', 'loses packets of full size'],
  unreachable: ['cannot be reached', 'cannot be reached'],
}

/** The cause that stands before all others: what keeps the node from being ready, what the doctor found, or the rest. */
export function causeOf({
  reasons,
  degraded,
  findings,
}: Pick<Status, 'reasons' | 'degraded' | 'findings'>): string | undefined {
  const worst: Finding | undefined = findings.find(({ severity }) => severity === 'error') ?? findings[0]
  const isWhy = worst && [...reasons, ...degraded].some((text) => text.startsWith(worst.text))
  return isWhy ? worst.text : (reasons[0] ?? worst?.text ?? degraded[0])
}

/**
 * One sentence about a node and its peers, such as `node-7 is degraded: node-2 and node-3 do not answer since 12:03,
 * both in zone b`. `clock` writes a time (milliseconds since 1970).
 */
export function headline(
  status: Pick<Status, 'node' | 'state' | 'reasons' | 'degraded' | 'findings'>,
  peers: readonly Row[],
  clock: (at: number) => string,
): string {
  const { node, state, findings } = status
  const bad = peers.filter(isBad)
  const cause = causeOf(status)
  const isFound = findings.length > 0 || status.reasons.length > 0
  const why = bad.length > 0 && !isFound ? lostWords(bad, peers.length, clock) : cause
  if (state === 'ready' && why === undefined) return `${node} is ready: ${calmWords(peers)}`
  return `${node} is ${state}${why === undefined ? '' : `: ${why}`}`
}

// Which peers are lost, how, and since when. `bad` has one at least. `all` is the number of all peers.
function lostWords(bad: readonly Row[], all: number, clock: (at: number) => string): string {
  const states = Map.groupBy(bad, ({ state }) => state as keyof typeof WORDS)
  const since = Math.min(...bad.map((row) => row.since ?? Number.POSITIVE_INFINITY))
  const when = Number.isFinite(since) ? ` since ${clock(since)}` : ''
  const [first, ...others] = [...states]
  const isOne = bad.length === 1
  if (first && others.length === 0 && bad.length <= NAMED) {
    const names = bad.map((row) => printable(rowName(row)))
    const who = isOne ? names[0] : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
    return `${who} ${WORDS[first[0]][isOne ? 1 : 0]}${when}${zoneWords(bad)} (${all} ${all === 1 ? 'peer' : 'peers'})`
  }
  const counted = `${bad.length} of ${all} peers`
  if (first && others.length === 0) return `${counted} ${WORDS[first[0]][0]}${when}${zoneWords(bad)}`
  const parts = [...states].map(([state, rows]) => `${rows.length} ${WORDS[state][rows.length === 1 ? 1 : 0]}`)
  return `${counted} are lost${when}${zoneWords(bad)}: ${parts.join(', ')}`
}

function calmWords(peers: readonly Row[]): string {
  const { length } = peers
  if (length === 0) return 'no other node has a subnet yet'
  const silent = peers.filter(({ state }) => state === 'unknown').length
  if (length === 1) return silent === 0 ? 'its peer answers' : 'its peer is programmed'
  if (silent === length) return `all ${length} peers are programmed`
  return silent === 0
    ? `all ${length} peers answer`
    : `all ${length} peers are programmed, and ${length - silent} answer`
}
