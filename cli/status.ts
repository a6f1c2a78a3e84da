import type { BgpStatus } from '../agent/bgp/view.ts'
import { durationWords, fastPathWords, line, span, storeWords } from '../agent/state/phrases.ts'
import { drift, total, unreachable } from '../agent/state/reachability.ts'
import type { PolicyStatus, ServicesStatus, Status, TunnelsStatus } from '../agent/state/status.ts'
import { andMore, firstOf } from '../lib/text/listing.ts'
import { ask } from './ask.ts'
import type { Entry } from './options.ts'
import { table } from './output.ts'

/** Its row in the list of commands. */
export const entry: Entry = { place: 3, about: 'tell whether this node’s agent has connected its pods, and why not' }

/** What may follow this command. */
export { grammar } from './ask.ts'

/** The number of recent repairs in the text. `--json` has a hundred. */
const REPAIRS = 5
/** The number of addresses in the text whose packets were refused. */
const STRANGERS = 5

/**
 * Runs `plumb status ARGV` and returns the exit status. The status is 0 when the node is ready, 1 when it is not ready,
 * 3 when it is degraded. Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  return ask(
    {
      name: 'status',
      about: 'whether this node’s pods are connected, and why not',
      text: statusText,
      json: (status) => status,
    },
    argv,
  )
}

/** Formats a status for people. `now` is in milliseconds since 1970. */
export function statusText(status: Status, now: number): string {
  const { node, state, ready, reasons, degraded, repairs } = status
  const why = ready || reasons.length > 0 ? reasons : ['the first full sync is not done']
  const head =
    state === 'ready'
      ? `${node} is ready`
      : [`${node} is ${state}:`, ...[...why, ...degraded].map((reason) => `  ${reason}`)].join('\n')
  const last = repairs
    .slice(-REPAIRS)
    .reverse()
    .map(({ at, what }) => [`  ${span(now - at)} ago`, what])
  const rows = kinds(status)
  return [
    head,
    table([], facts(status, now)),
    ...(rows.length > 0 ? [table(['KIND', 'WANTED', 'PROGRAMMED', 'REPAIRED'], rows)] : []),
    ...(last.length > 0 ? [`last repairs:\n${table([], last)}`] : []),
  ].join('\n\n')
}

function facts(status: Status, now: number): string[][] {
  const { version, started, network, subnets, backend, mtu, uplink, store } = status
  const { peers, unreadable, kinds, steps, bgp, tunnels, lastError } = status
  const count = unreachable(peers).length
  const lost = count > 0 ? `, ${count} unreachable (see: plumb leases)` : ''
  const unread = unreadable > 0 ? `, ${unreadable} more that cannot be read` : ''
  const heard = store.connected && store.heard !== undefined ? `, heard of ${span(now - store.heard)} ago` : ''
  const off = drift(kinds)
  const fast = fastPathWords(status.fastPath)
  return [
    ['agent', `plumb ${version}, up ${span(now - started)}`],
    ['subnets', `${line(subnets)} of ${line(network)}`],
    ['backend', `${backend}, MTU of pods ${mtu}`],
    ['uplink', uplink ? `${uplink.name}: ${uplink.why}` : 'none'],
    ...(uplink?.checksumOffload ? [['checksums', `offload ${uplink.checksumOffload.why}`]] : []),
    ['store', `${store.name}, ${storeWords(status, now)}${heard}`],
    ['peers', `${peers.length}${lost}${unread}`],
    ['policy', policyWords(status.policy)],
    ['services', servicesWords(status.services)],
    ...(fast === undefined ? [] : [['fast path', fast]]),
    ...(bgp ? [['bgp', bgpWords(bgp)]] : []),
    ...(tunnels && tunnels.strangers.length > 0 ? [['refused', refusedWords(tunnels)]] : []),
    ['drift', off > 0 ? `${off} of ${total(kinds).wanted} not as wanted` : 'none'],
    ...(steps.count > 0 ? [['steps', `${steps.count}: ${durationWords(steps)}`]] : []),
    ...(lastError ? [['error', `${span(now - lastError.at)} ago: ${lastError.what}`]] : []),
  ]
}

function policyWords(policy: PolicyStatus | undefined): string {
  if (!policy) return 'not enforced by this agent (--network-policy)'
  const { policies, clusterPolicies, pods, selected, closed, refused } = policy
  const counts = `${counted(policies + clusterPolicies, 'policy', 'policies')} for ${counted(pods, 'pod', 'pods')}`
  const isolated = `${selected.ingress} isolated for ingress, ${selected.egress} for egress`
  const unknown = closed > 0 ? `; all packets of ${counted(closed, 'pod', 'pods')} are refused, unknown to the API` : ''
  const unread = refused > 0 ? `; ${counted(refused, 'object', 'objects')} cannot be read` : ''
  return `${counts}: ${isolated}${unknown}${unread}`
}

function servicesWords(services: ServicesStatus | undefined): string {
  if (!services) return 'not served by this agent (--service-proxy)'
  const { services: count, frontends, endpoints } = services
  const ways = counted(frontends, 'address and port', 'addresses and ports')
  return `${counted(count, 'Service', 'Services')} at ${ways}, ${counted(endpoints, 'endpoint', 'endpoints')}`
}

function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`
}

function bgpWords({ asn, pid, sessions }: BgpStatus): string {
  if (asn === 0) return 'no configuration yet'
  if (pid === undefined) return `AS ${asn}, BIRD does not run`
  const away = sessions.filter(({ state }) => state !== 'Established')
  const [first] = away
  const up = `AS ${asn}, ${sessions.length - away.length} of ${sessions.length} sessions established`
  if (!first) return up
  const why = first.reason === undefined ? '' : ` (${first.reason})`
  return `${up}; away: ${first.name}, ${first.state}${why}${andMore(away.length - 1)} (see: plumb bgp)`
}

function refusedWords({ lately, strangers }: TunnelsStatus): string {
  return `${lately} tunnelled packets in the last ten minutes, from addresses without a lease: ${firstOf(strangers, STRANGERS)}`
}

// A kind without an object says nothing.
function kinds(status: Status): string[][] {
  return Object.entries({ ...status.kinds, all: total(status.kinds) })
    .filter(([, { wanted, programmed, repaired }]) => wanted + programmed + repaired > 0)
    .map(([kind, { wanted, programmed, repaired }]) => [kind, `${wanted}`, `${programmed}`, `${repaired}`])
}
