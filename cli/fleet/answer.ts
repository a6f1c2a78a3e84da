// What agents answer, read with care: another version may say it differently, and a stranger may answer at the address.
import * as v from 'valibot'
import { isNodeName } from '../../agent/lease/node-name.ts'
import { type PeerState, type Row, rowOf } from '../../agent/state/rows.ts'
import type { Peer, Status } from '../../agent/state/status.ts'
import { type RowSummary, type Summary, summaryOf } from '../../agent/state/summary.ts'
import { printable } from '../../lib/text/printable.ts'

const HOUR_MS = 3_600_000
/** The most milliseconds of a Date (ECMA-262, section 21.4.1.1). */
const LAST_DATE = 8_640_000_000_000_000
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const time = v.pipe(v.number(), v.minValue(0), v.maxValue(LAST_DATE))
const ms = v.pipe(v.number(), v.minValue(0), v.maxValue(HOUR_MS))
const LONGEST_NAME = 253
/** Summaries have less than half of each. Newer versions may have some more. */
const [MOST, MOST_PEERS] = [50, 1000]
const name = v.pipe(v.string(), v.maxLength(LONGEST_NAME))
// It is part of commands that the page shows.
const node = v.pipe(name, v.check(isNodeName))
const text = v.pipe(v.string(), v.maxLength(10_000))
// Who copies a command must get what he sees, and no second line.
const commands = v.pipe(
  v.array(text),
  v.maxLength(MOST),
  v.filterItems((one) => one === printable(one)),
)
const peerState = v.picklist(['reachable', 'narrow', 'silent', 'away', 'unknown', 'unreachable'])
const state = v.picklist(['ready', 'degraded', 'not ready'])
const finding = v.object({ code: name, severity: v.picklist(['error', 'warning']), text, commands })
const SUMMARY = v.object({
  at: time,
  node,
  version: name,
  started: time,
  zone: v.exactOptional(name),
  backend: name,
  state,
  cause: v.exactOptional(text),
  findings: v.pipe(v.array(finding), v.maxLength(MOST)),
  peers: v.object(
    v.entriesFromList(
      ['reachable', 'narrow', 'silent', 'away', 'unknown', 'unreachable'] as const,
      v.exactOptional(count),
    ),
  ),
  worst: v.pipe(
    v.array(
      v.object({
        name,
        state: peerState,
        zone: v.exactOptional(name),
        sent: v.exactOptional(count),
        lost: v.exactOptional(count),
        ms: v.exactOptional(ms),
        since: v.exactOptional(time),
      }),
    ),
    v.maxLength(MOST),
  ),
  zones: v.pipe(
    v.record(
      name,
      v.object({
        peers: count,
        bad: count,
        lost: v.exactOptional(v.pipe(v.number(), v.minValue(0), v.maxValue(1))),
        ms: v.exactOptional(ms),
      }),
    ),
    v.check((zones) => Object.keys(zones).length <= MOST),
  ),
  store: v.object({ name, connected: v.boolean(), error: v.exactOptional(text) }),
  drift: count,
  repairs: count,
  drops: v.exactOptional(count),
  pods: v.exactOptional(v.object({ all: count, closed: count })),
  policies: v.exactOptional(count),
  services: v.exactOptional(v.object({ services: count, endpoints: count })),
  // A check, and no schema of arrays: those are copied, 90,000 values for 300 nodes.
  row: v.exactOptional(v.custom<RowSummary>(isRow)),
})

function isRow(value: unknown): boolean {
  const { name: names, state: letters, lost, ms } = (value ?? {}) as { readonly [key in keyof RowSummary]?: unknown }
  const isNumbers = (one: unknown) =>
    Array.isArray(one) && one.every((number) => number === null || (typeof number === 'number' && number >= 0))
  const isNames =
    Array.isArray(names) &&
    names.length <= MOST_PEERS &&
    names.every((one) => typeof one === 'string' && one.length <= LONGEST_NAME)
  return isNames && typeof letters === 'string' && isNumbers(lost) && isNumbers(ms)
}

// The keys of a status that a summary needs. Versions before the summary had no findings and no zones.
const both = v.looseObject({ v4: v.exactOptional(name), v6: v.exactOptional(name) })
const STATUS = v.looseObject({
  node,
  version: name,
  started: time,
  backend: name,
  state,
  reasons: v.array(text),
  degraded: v.array(text),
  findings: v.optional(v.array(finding), []),
  peers: v.array(
    v.looseObject({
      subnets: both,
      ips: both,
      problem: v.exactOptional(text),
      probe: v.exactOptional(
        v.looseObject({
          state: v.picklist(['unknown', 'answers', 'narrow', 'silent']),
          sent: count,
          lost: count,
          ms: v.exactOptional(ms),
        }),
      ),
    }),
  ),
  store: v.looseObject({ name, connected: v.boolean(), error: v.exactOptional(text) }),
  kinds: v.record(name, v.looseObject({ wanted: count, programmed: count, repaired: count })),
  repairs: v.optional(v.array(v.looseObject({ at: time })), []),
})

/** Reads the answer of `/summary`. Throws Error that says what is wrong with it. */
export function readSummary(body: string): Summary {
  const summary = valid(SUMMARY, body) as Summary
  const { row } = summary
  const isWhole = !row || [row.state, row.lost, row.ms].every(({ length }) => length === row.name.length)
  if (!isWhole) throw new Error('its answer is no summary of plumb: the columns of its row differ in length')
  return summary
}

/** Makes the summary of an agent that has none, from its answer of `/status`. Throws Error as `readSummary`. */
export function summaryFromStatus(body: string, now: number): Summary {
  const status = valid(STATUS, body) as unknown as Status
  const rows: Row[] = status.peers.map((peer: Peer, i) => rowOf(i + 1, peer, undefined))
  const recent = status.repairs.filter(({ at }) => at > now - HOUR_MS).length
  const past = { lately: (what: 'repairs' | 'refused') => (what === 'repairs' ? recent : undefined) }
  return summaryOf(status, rows, past, { now, withRow: true })
}

function valid(schema: v.GenericSchema, body: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(body)
  } catch (cause) {
    throw new Error('its answer is no JSON: another program answers there', { cause })
  }
  const { success, issues, output } = v.safeParse(schema, value, { abortEarly: true })
  if (success) return output
  const [issue] = issues
  const key = issue ? (v.getDotPath(issue) ?? '') : ''
  throw new Error(`its answer is no summary of plumb: ${key || 'it'} is ${issue?.received ?? 'wrong'}`)
}

/** The state of a letter of a row. Undefined for any other letter. */
export function stateOfLetter(letter: string | undefined): PeerState | undefined {
  return letter === undefined ? undefined : LETTERS[letter]
}

const LETTERS: Readonly<Record<string, PeerState>> = {
  r: 'reachable',
  n: 'narrow',
  s: 'silent',
  a: 'away',
  '?': 'unknown',
  u: 'unreachable',
}
