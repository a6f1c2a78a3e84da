import type { Probe } from '../backend/probes.ts'
import type { PolicyCounts } from '../policy/counters.ts'
import { nameOf } from './reachability.ts'
import { BUCKETS, type Peer, PROGRAMMING_BUCKETS, type Status } from './status.ts'

/** The resource usage of the agent's process. */
export interface Usage {
  readonly rssBytes: number
  readonly cpuSeconds: number
  readonly openFiles: number
}
type Labels = Readonly<Record<string, string | number>>
type Sample = readonly [labels: Labels, value: number, suffix?: string]

/**
 * Formats a status in Prometheus' text exposition format 0.0.4. `now` is in milliseconds since 1970. `counts` are the
 * counters of policies.
 */
export function metrics(status: Status, usage: Usage, now: number, counts?: PolicyCounts): string {
  return [
    ...ofAgent(status),
    ...ofKinds(status),
    ...ofServices(status),
    ...ofPolicy(status),
    ...(counts ? ofCounts(counts) : []),
    ...ofStore(status, now),
    ...ofProcess(status, usage),
  ].join('')
}

function ofAgent({ version, ready, state, peers, subnets, unreadable, steps, lastError }: Status): string[] {
  const lost = peers.filter(({ problem }) => problem !== undefined).length
  const of = (state: Probe['state']) =>
    peers.filter(({ problem, probe }) => problem === undefined && probe?.state === state).length
  const own = Object.keys(subnets).length > 0 ? 1 : 0
  return [
    family('plumb_build_info', 'gauge', 'What runs; always 1.', [[{ version, runtime: `bun ${Bun.version}` }, 1]]),
    family('plumb_ready', 'gauge', 'Whether the node serves its pods: /readyz is 200.', [[{}, Number(ready)]]),
    family(
      'plumb_degraded',
      'gauge',
      'Whether the node serves its pods though something is wrong: a peer, the store, another program.',
      [[{}, Number(state === 'degraded')]],
    ),
    family('plumb_leases', 'gauge', 'Leases of nodes, this one among them.', [[{}, peers.length + own]]),
    family('plumb_leases_unreadable', 'gauge', 'Entries of the store that could not be read.', [[{}, unreadable]]),
    family(
      'plumb_peers',
      'gauge',
      'Other nodes: those that answer, that do not, that were not asked, and whose lease cannot be programmed.',
      [
        [{ state: 'reachable' }, of('answers')],
        [{ state: 'narrow' }, of('narrow')],
        [{ state: 'silent' }, of('silent')],
        [{ state: 'unknown' }, peers.length - lost - of('answers') - of('narrow') - of('silent')],
        [{ state: 'unreachable' }, lost],
      ],
    ),
    ...ofProbes(peers),
    family('plumb_step_duration_seconds', 'histogram', 'How long steps of the parts of the agent took.', [
      ...BUCKETS.map((le, i): Sample => [{ le }, steps.buckets[i] ?? 0, '_bucket']),
      [{ le: '+Inf' }, steps.count, '_bucket'],
      [{}, steps.sum, '_sum'],
      [{}, steps.count, '_count'],
    ]),
    family('plumb_last_error_timestamp_seconds', 'gauge', 'When something last failed; 0 when nothing has.', [
      [{}, (lastError?.at ?? 0) / 1000],
    ]),
  ]
}

// A node with an old and a new lease appears once, with the worse probe result.
function ofProbes(peers: readonly Peer[]): string[] {
  const nodes = new Map<string, Probe>()
  for (const peer of peers) {
    const [name, { probe }] = [nameOf(peer), peer]
    if (probe && probe.sent > 0 && probe.lost >= (nodes.get(name)?.lost ?? 0)) nodes.set(name, probe)
  }
  const all = [...nodes]
  return [
    family(
      'plumb_peer_probe_loss_ratio',
      'gauge',
      'How many of the last probes of a node were lost, 0 to 1.',
      all.map(([node, { lost, sent }]) => [{ node }, lost / sent]),
    ),
    family(
      'plumb_peer_round_trip_seconds',
      'gauge',
      'How long the last answer of a node took.',
      all.flatMap(([node, { ms }]): Sample[] => (ms === undefined ? [] : [[{ node }, ms / 1000]])),
    ),
  ]
}

// kube-proxy's kubeproxy_network_programming_duration_seconds, with its buckets.
function ofServices({ services: now }: Status): string[] {
  if (!now) return []
  const { services, frontends, endpoints, programming, forgotten } = now
  return [
    family('plumb_services', 'gauge', 'Services that this node serves.', [[{}, services]]),
    family('plumb_service_frontends', 'gauge', 'Addresses and ports at which clients ask for Services.', [
      [{}, frontends],
    ]),
    family('plumb_service_endpoints', 'gauge', 'Endpoints of Services, once for each frontend that leads to them.', [
      [{}, endpoints],
    ]),
    family(
      'plumb_service_connections_forgotten_total',
      'counter',
      'UDP connections to former endpoints that were deleted.',
      [[{}, forgotten]],
    ),
    family(
      'plumb_network_programming_duration_seconds',
      'histogram',
      'How long it took from the change of an EndpointSlice to the kernel.',
      [
        ...PROGRAMMING_BUCKETS.map((le, i): Sample => [{ le }, programming.buckets[i] ?? 0, '_bucket']),
        [{ le: '+Inf' }, programming.count, '_bucket'],
        [{}, programming.sum, '_sum'],
        [{}, programming.count, '_count'],
      ],
    ),
  ]
}

function ofPolicy({ policy: now }: Status): string[] {
  if (!now) return []
  const { policies, clusterPolicies, pods, selected, closed, refused, steps } = now
  return [
    family('plumb_policies', 'gauge', 'Policies of the cluster that could be read.', [
      [{ kind: 'NetworkPolicy' }, policies],
      [{ kind: 'ClusterNetworkPolicy' }, clusterPolicies],
    ]),
    family('plumb_policy_pods', 'gauge', 'Pods of this node that NetworkPolicy knows.', [[{}, pods]]),
    family('plumb_policy_selected_pods', 'gauge', 'Pods of this node that a policy selects, by direction.', [
      [{ direction: 'ingress' }, selected.ingress],
      [{ direction: 'egress' }, selected.egress],
    ]),
    family(
      'plumb_policy_closed_pods',
      'gauge',
      'Pods of this node whose object is not known yet: all of their packets are refused.',
      [[{}, closed]],
    ),
    family('plumb_policy_objects_refused', 'gauge', 'Objects that could not be read. All others are enforced.', [
      [{}, refused],
    ]),
    family('plumb_policy_step_duration_seconds', 'histogram', 'How long it took from changed objects to the kernel.', [
      ...BUCKETS.map((le, i): Sample => [{ le }, steps.buckets[i] ?? 0, '_bucket']),
      [{ le: '+Inf' }, steps.count, '_bucket'],
      [{}, steps.sum, '_sum'],
      [{}, steps.count, '_count'],
    ]),
  ]
}

// Only the first packet of a connection meets a policy.
function ofCounts({ counts, unknownAddress }: PolicyCounts): string[] {
  const of = (value: 'packets' | 'bytes') =>
    counts.map(
      (one): Sample => [{ direction: one.side, action: one.what, policies: one.policies.join(' ') }, one[value]],
    )
  return [
    family(
      'plumb_policy_packets_total',
      'counter',
      'First packets of connections that policies decided. Several policies refuse together.',
      of('packets'),
    ),
    family('plumb_policy_bytes_total', 'counter', 'Bytes of these packets.', of('bytes')),
    family(
      'plumb_policy_unknown_address_packets_total',
      'counter',
      "Packets from and to addresses of the node's subnet that belong to no known pod.",
      [[{}, unknownAddress]],
    ),
  ]
}

function ofKinds({ kinds }: Status): string[] {
  const rows = Object.entries(kinds).sort(([a], [b]) => (a < b ? -1 : 1))
  return [
    family(
      'plumb_objects_wanted',
      'gauge',
      'Kernel objects that there are to be.',
      rows.map(([kind, { wanted }]) => [{ kind }, wanted]),
    ),
    family(
      'plumb_objects_programmed',
      'gauge',
      'Kernel objects that there are.',
      rows.map(([kind, { programmed }]) => [{ kind }, programmed]),
    ),
    family(
      'plumb_repairs_total',
      'counter',
      'Kernel objects that had to be put right since the start.',
      rows.map(([kind, { repaired }]) => [{ kind }, repaired]),
    ),
  ]
}

function ofStore({ store, stale, started }: Status, now: number): string[] {
  const labels = { store: store.name }
  const { connected, heard } = store
  return [
    family('plumb_store_connected', 'gauge', 'Whether the store answers.', [[labels, Number(connected)]]),
    family(
      'plumb_store_lag_seconds',
      'gauge',
      'By how much what is known of the network may be out of date: 0 while the store answers.',
      [[labels, connected && stale === undefined ? 0 : Math.max(now - (stale ?? heard ?? started), 0) / 1000]],
    ),
    family('plumb_stale', 'gauge', 'Whether the network is still as it was known before the start of the agent.', [
      [{}, Number(stale !== undefined)],
    ]),
    family(
      'plumb_store_last_heard_timestamp_seconds',
      'gauge',
      'When the store was last heard of; 0 when it never was.',
      [[labels, (heard ?? 0) / 1000]],
    ),
  ]
}

// The metric names are the same as in Prometheus' client libraries.
function ofProcess({ started }: Status, { rssBytes, cpuSeconds, openFiles }: Usage): string[] {
  return [
    family('process_start_time_seconds', 'gauge', 'When the agent started.', [[{}, started / 1000]]),
    family('process_resident_memory_bytes', 'gauge', 'Memory in use.', [[{}, rssBytes]]),
    family(
      'process_cpu_seconds_total',
      'counter',
      'CPU time used, user and system, without that of the tools it ran.',
      [[{}, cpuSeconds]],
    ),
    family('process_open_fds', 'gauge', 'Open file descriptors.', [[{}, openFiles]]),
  ]
}

// Leaves out a family without samples.
function family(
  name: string,
  type: 'gauge' | 'counter' | 'histogram',
  help: string,
  samples: readonly Sample[],
): string {
  if (samples.length === 0) return ''
  return [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...samples.map(([labels, value, suffix = '']) => `${name}${suffix}${braces(labels)} ${value}`),
    '',
  ].join('\n')
}

function braces(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${String(value).replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n')}"`,
  )
  return pairs.length > 0 ? `{${pairs.join(',')}}` : ''
}
