// One node, by the socket of its agent: its peers, its pods and what was refused.

import type { PodSummary } from '../../agent/policy/view.ts'
import type { Happening } from '../../agent/state/happenings.ts'
import { known, type Patch, patched, type ReaderState, type Whole } from '../../agent/state/messages.ts'
import { collator, reach } from '../../agent/state/reachability.ts'
import { isBad, type PeerState, peerOf, type Row, rowName } from '../../agent/state/rows.ts'
import { causeOf } from '../../agent/state/sentence.ts'
import type { Status } from '../../agent/state/status.ts'
import type { Watched } from './draw.ts'
import type { Line, Table } from './table.ts'
import { factLines, lostCell, msCell, timeCell, titled } from './words.ts'

/** What is known of a node. */
export interface NodeKnown {
  readonly state?: ReaderState
  /** Null when the agent enforces no NetworkPolicy. Undefined before the first answer. */
  readonly pods?: readonly PodSummary[] | null
  readonly log?: readonly Happening[]
  /** Why nothing new comes. */
  readonly error?: string
}

const WORST: readonly PeerState[] = ['unreachable', 'silent', 'narrow', 'away', 'unknown', 'reachable']

/** What a message of `/events` makes of what was known. Undefined before the first whole message. */
export function afterMessage(before: ReaderState | undefined, event: string, data: string): ReaderState | undefined {
  if (event === 'whole') return known(JSON.parse(data) as Whole)
  return event === 'patch' && before ? patched(before, JSON.parse(data) as Patch) : before
}

/** A node as it is shown. `now` is in milliseconds since 1970. */
export function watchedNode({ state, pods, log, error }: NodeKnown, now: number): Watched {
  if (!state) {
    const tables = { nodes: none(PEERS), pairs: none(PAIRS), pods: none(PODS), drops: none(DROPS) }
    return { title: 'this node', sentence: error ?? 'waiting for the agent', tone: 'warning', tables }
  }
  const { status, peers, at } = state
  const rows = [...peers.values()].sort(
    (a, b) => WORST.indexOf(a.state) - WORST.indexOf(b.state) || collator.compare(rowName(a), rowName(b)),
  )
  const bad = rows.filter(isBad).length
  const cause = status.state === 'ready' ? '' : `: ${causeOf(status) ?? 'the first full sync is not done'}`
  const away = error === undefined ? '' : `; as of ${new Date(at).toTimeString().slice(0, 8)}: ${error}`
  const count = `${rows.length} ${rows.length === 1 ? 'peer' : 'peers'}, ${bad} with a problem`
  return {
    title: status.node,
    sentence: `${status.node} is ${status.state}${cause}; ${count}${away}`,
    tone: error !== undefined ? 'warning' : toneOf(status.state),
    at,
    tables: {
      nodes: { headings: PEERS, lines: [ownLine(status), ...rows.map((row) => peerLine(row, now))], empty: 'no node' },
      pairs: pairsOf(status.node, rows, now),
      pods: podsOf(pods),
      drops: dropsOf(log, now),
    },
  }
}

const PEERS = ['NODE', 'STATE', 'LOST', 'RTT', 'ZONE', 'VERSION', 'ADDRESS', 'SINCE', 'WHY']
const PAIRS = ['FROM', 'TO', 'STATE', 'LOST', 'RTT', 'SINCE']
const PODS = ['POD', 'ADDRESSES', 'STATE', 'INGRESS', 'EGRESS']
const DROPS = ['TIME', 'COUNT', 'PACKET']

function none(headings: readonly string[]): Table {
  return { headings, lines: [], empty: 'nothing is known yet' }
}

function toneOf(state: Status['state']): Line['tone'] {
  return state === 'ready' ? 'good' : state === 'degraded' ? 'warning' : 'error'
}

function ownLine(status: ReaderState['status']): Line {
  const { node, state, version, zone = '', uplink, reasons, degraded, findings } = status
  const { v4, v6 } = uplink?.advertise ?? {}
  const commands = findings.flatMap((one) => one.commands)
  return {
    key: node,
    tone: toneOf(state),
    cells: [node, state, '', '', zone, version, v4 ?? v6 ?? '', '', 'this node'],
    details: () => [
      ...factLines([
        ['state', state],
        ['version', version],
        ['zone', zone],
        ['backend', status.backend],
        ['uplink', uplink && `${uplink.name}: ${uplink.why}`],
        ['store', `${status.store.name}, ${status.store.connected ? 'connected' : (status.store.error ?? 'away')}`],
      ]),
      ...titled('Reasons', [...reasons, ...degraded]),
      ...titled('Commands that mend it', commands),
    ],
  }
}

function peerLine(row: Row, now: number): Line {
  const { state, lost, sent, ms, zone = '', version = '', ip4, ip6, since, problem = '', v4, v6, backend } = row
  const name = rowName(row)
  const tone = isBad(row) ? 'error' : (lost ?? 0) > 0 ? 'warning' : 'good'
  const sinceCell = timeCell(since, now)
  const address = ip4 ?? ip6 ?? ''
  return {
    key: name,
    tone,
    cells: [name, state, lostCell(lost, sent), msCell(ms), zone, version, address, sinceCell, problem],
    details: () => [
      ...factLines([
        ['state', reach(peerOf(row))],
        ['since', typeof sinceCell === 'object' ? sinceCell.text : undefined],
        ['subnets', [v4, v6].filter(Boolean).join(', ')],
        ['addresses', [ip4, ip6].filter(Boolean).join(', ')],
        ['zone', zone],
        ['version', version],
        ['backend', backend],
      ]),
      ...(tone === 'good' ? [] : titled('Look closer', ['plumb doctor DR17', 'plumb leases'])),
    ],
  }
}

function pairsOf(node: string, rows: readonly Row[], now: number): Table {
  const lines = rows.map((row): Line => {
    const { cells, details, tone, key } = peerLine(row, now)
    const [name = '', state = '', lost = '', ms = '', , , , since = ''] = cells
    return { key: `${node} to ${key}`, tone, details, cells: [node, name, state, lost, ms, since] }
  })
  return { headings: PAIRS, lines, empty: 'this node has no peers' }
}

function podsOf(pods: NodeKnown['pods']): Table {
  const empty = pods === null ? 'NetworkPolicy is not enforced here, so the agent knows no pods' : 'no pod is known yet'
  const lines = (pods ?? []).map((one): Line => {
    const { pod, addresses, isClosed, ingress, egress } = one
    const policies = (names: readonly string[]) => (names.length === 0 ? 'open' : names.join(', '))
    return {
      key: pod,
      tone: isClosed ? 'error' : 'good',
      cells: [pod, addresses.join(', '), isClosed ? 'closed' : 'known', policies(ingress), policies(egress)],
      details: () => [
        ...factLines([
          ['addresses', addresses.join(', ')],
          ['state', isClosed ? 'closed: the cluster has no object of it yet' : 'known'],
        ]),
        ...titled('Policies for what comes in', ingress.length > 0 ? ingress : ['none: everything may come in']),
        ...titled('Policies for what goes out', egress.length > 0 ? egress : ['none: everything may go out']),
        ...titled('Look closer', [`plumb policy show ${pod}`]),
      ],
    }
  })
  return { headings: PODS, lines: sortedBad(lines), empty }
}

function sortedBad(lines: readonly Line[]): readonly Line[] {
  return [...lines.filter(({ tone }) => tone !== 'good'), ...lines.filter(({ tone }) => tone === 'good')]
}

function dropsOf(log: NodeKnown['log'], now: number): Table {
  const drops = (log ?? []).filter(({ kind }) => kind === 'drop').reverse()
  const lines = drops.map(({ n, at, until, count = 1, text }): Line => {
    const time = timeCell(until ?? at, now)
    return {
      key: `drop ${n}`,
      tone: 'warning',
      cells: [time, { text: `${count}`, value: count }, text],
      details: () => [text, '', `${count} ${count === 1 ? 'packet' : 'packets'}, the last one at ${textOfCell(time)}`],
    }
  })
  return { headings: DROPS, lines, empty: 'no refused packet in the log; the agent logs them with --policy-log=on' }
}

function textOfCell(cell: Line['cells'][number]): string {
  return typeof cell === 'object' ? cell.text : cell
}
