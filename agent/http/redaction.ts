// What `--status-redact` leaves out of everything that the status server sends over TCP. The parts that know of pods,
// policies and Services are not asked at all. Of the status, a judged copy is made from redacted input, so that the
// server has no text to hide. What is new in a status or a source is left out until it is listed here. A check says it
// itself (`isOfNode`).
import { CHECKS } from '../doctor/checks/index.ts'
import type { Count, PolicyCounts } from '../policy/counters.ts'
import type { Failure, Failures } from '../scheduler/failures.ts'
import type { NodeState } from '../state/condition.ts'
import { sentenceOf } from '../state/phrases.ts'
import type { Finding, Status } from '../state/status.ts'
import type { Source } from './server.ts'

/** What a redacted status says of itself. */
export const REDACTED =
  'This server leaves out the names of pods, namespaces, policies and Services, and the addresses of pods ' +
  '(--status-redact). On the node, plumb status, plumb policy and plumb services have them'
const ON_NODE = 'plumb status on the node names'
/** The log's entry for refused packets. */
export const REFUSED = 'a packet that policy refuses'

/** The reporters and parts whose texts are about the node's own network. Of all others, only the number is told. */
const OF_NODE: ReadonlySet<string> = new Set([
  'uplink',
  'lease',
  'files',
  'table',
  'forward',
  'tunnels',
  'fast path',
  'peers',
  'left tables',
  'installation',
  'default route',
  'sessions of BGP',
  'another BIRD',
  'probes',
  'configuration',
  'announcement',
  'last known',
  'status port',
])
/** The checks whose findings are about settings and links of the node. Of all others, code and title are told. */
const CHECKS_OF_NODE: ReadonlySet<string> = new Set(CHECKS.flatMap(({ code, isOfNode }) => (isOfNode ? [code] : [])))

/** The failures of the agent's parts. The text of a finding changes as in `redactedState`. */
export function redactedFailures(
  failures: Pick<Failures, 'byPart'>,
  findings: readonly Finding[],
): Pick<Failures, 'all'> {
  const sentences = new Map(findings.map((one) => [sentenceOf(one), sentenceOf(redactedFinding(one))]))
  const all = [...failures.byPart()].flatMap(([part, those]): readonly Failure[] => {
    if (OF_NODE.has(part)) return those
    const known = those.flatMap(({ scope, text }) => {
      const said = sentences.get(text)
      return said === undefined ? [] : [{ scope, text: said }]
    })
    const others = those.filter(({ text }) => !sentences.has(text))
    return [...known, ...counted(part, others, 'node'), ...counted(part, others, 'part')]
  })
  return { all: () => all }
}

function counted(part: string, failures: readonly Failure[], scope: Failure['scope']): Failure[] {
  const { length } = failures.filter((one) => one.scope === scope)
  const words = length === 1 ? `1 problem; ${ON_NODE} it` : `${length} problems; ${ON_NODE} them`
  return length === 0 ? [] : [{ scope, text: `${part}: ${words}` }]
}

function redactedFinding(finding: Finding): Finding {
  const { code, title, severity } = finding
  if (CHECKS_OF_NODE.has(code)) return finding
  return { code, title, severity, text: `The check ${code} finds: ${title}`, commands: [`plumb doctor ${code}`] }
}

/** The state from which a redacted status is made. */
export function redactedState(state: NodeState): NodeState {
  const { choice, lease, served, refusal, snapshot, stale, isSynced, mtu, unreached, lost, probe, silent } = state
  const { probeTimes, handshakes, fights, fightCount = fights.length, findings, kinds, repairs, lastError } = state
  const { services, policy, bgp, programs, tunnels, fastPath, steps } = state
  const objects = `${fightCount} ${fightCount === 1 ? 'object is' : 'objects are'}`
  return {
    ...(choice && { choice }),
    ...(lease && { lease }),
    ...(served && { served }),
    refusal,
    ...(snapshot && { snapshot }),
    ...(stale !== undefined && { stale }),
    isSynced,
    mtu,
    unreached,
    lost,
    ...(probe && { probe }),
    silent,
    ...(probeTimes && { probeTimes }),
    ...(handshakes && { handshakes }),
    fights: fights.length === 0 ? [] : [`${objects} changed by another program again and again; ${ON_NODE} them`],
    ...(state.fightCount !== undefined && { fightCount }),
    findings: findings.map(redactedFinding),
    kinds,
    repairs: repairs.map((one) => (OF_NODE.has(one.part) ? one : { ...one, what: `object of ${one.part}` })),
    lastError: lastError && { at: lastError.at, what: `${ON_NODE} what failed` },
    ...(services && { services }),
    ...(policy && { policy }),
    ...(bgp && { bgp }),
    ...(programs && { programs }),
    // Pods of this node may be among the senders.
    ...(tunnels && { tunnels: () => withoutStrangers(tunnels()) }),
    ...(fastPath && { fastPath }),
    steps,
  }
}

function withoutStrangers(tunnels: Status['tunnels']): Status['tunnels'] {
  return tunnels && { ...tunnels, strangers: [] }
}

/** What the server answers from over TCP. `status` and `recorder` are those that are redacted. */
export function redactedSource(
  { changes, peer, policyCounts, calls, spans, figures, isPerPeer, busy }: Source,
  { status, recorder }: Required<Pick<Source, 'status' | 'recorder'>>,
): Source {
  return {
    status,
    recorder,
    async *changes(signal) {
      for await (const _ of changes(signal)) yield status()
    },
    ...(peer && { peer }),
    ...(policyCounts && { policyCounts: () => policyCounts()?.then(withoutPolicies) }),
    ...(calls && { calls }),
    ...(spans && { spans }),
    ...(figures && { figures }),
    ...(isPerPeer !== undefined && { isPerPeer }),
    busy,
  }
}

// One counter for each direction and decision.
function withoutPolicies({ counts, unknownAddress }: PolicyCounts): PolicyCounts {
  const groups = Map.groupBy(counts, ({ side, what }) => `${side} ${what}`)
  const sum = (of: (one: Count) => number, those: readonly Count[]) => those.reduce((n, one) => n + of(one), 0)
  return {
    counts: [...groups.values()].map((those) => ({
      ...(those[0] as Count),
      policies: [],
      packets: sum(({ packets }) => packets, those),
      bytes: sum(({ bytes }) => bytes, those),
    })),
    unknownAddress,
  }
}
