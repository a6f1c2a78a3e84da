import { PROBE_BUCKETS, type Probe } from '../backend/probes.ts'
import type { BgpSession } from '../bgp/view.ts'
import type { PolicyCounts } from '../policy/counters.ts'
import type { Durations } from '../scheduler/durations.ts'
import { nameOf } from '../state/reachability.ts'
import { BUCKETS, type KindCount, type Peer, PROGRAMMING_BUCKETS, type Status, SYNC_BUCKETS } from '../state/status.ts'
import { CALL_BUCKETS, type CallCount } from './calls.ts'
import type { SpanCounts } from './otlp.ts'

/** The resource usage of the agent's process. */
export interface Usage {
  readonly rssBytes: number
  readonly cpuSeconds: number
  readonly openFiles: number
}
/** What is read from the kernel and from files when somebody asks for metrics. */
export interface NodeFigures {
  /** The table of connections. Absent without connection tracking. */
  readonly conntrack?: {
    readonly entries: number
    readonly limit: number
    readonly insertFailed: number
    readonly dropped: number
  }
  /** Packets that the reverse path filter dropped since the start of the node. */
  readonly reversePathDrops: number
  /** The addresses of this node's subnets. Families whose subnet has more than 2^32 addresses are left out. */
  readonly pools: readonly { readonly family: 'ipv4' | 'ipv6'; readonly reserved: number; readonly free: number }[]
  readonly certificates: readonly Certificate[]
}
/** A certificate that the agent uses, and its end in milliseconds since 1970. */
export interface Certificate {
  /** Whom it is for. */
  readonly server: 'etcd' | 'api'
  readonly role: 'client' | 'authority'
  readonly expires: number
}
/** What metrics have besides the status. */
export interface Additions {
  /** The counters of policies. */
  readonly counts?: PolicyCounts | undefined
  readonly figures?: NodeFigures | undefined
  /** The plugin calls on this node. */
  readonly calls?: readonly CallCount[]
  /** The requests to the API server by HTTP status. */
  readonly requests?: ReadonlyMap<string, number>
  /** The spans that went to a collector. */
  readonly spans?: SpanCounts | undefined
  /** Series for every peer, not only for the worst. */
  readonly isPerPeer?: boolean
}
/** Without a wish for more, so many peers and BGP sessions have series of their own. */
const WORST = 100
type Labels = Readonly<Record<string, string | number>>
type Sample = readonly [labels: Labels, value: number, suffix?: string]

/** Formats a status in Prometheus' text exposition format 0.0.4. `now` is in milliseconds since 1970. */
export function metrics(status: Status, usage: Usage, now: number, additions: Additions = {}): string {
  const { counts, figures, calls = [], requests, spans, isPerPeer = false } = additions
  const most = isPerPeer ? Number.POSITIVE_INFINITY : WORST
  return [
    ...ofAgent(status, most),
    ...ofKinds(status),
    ...(figures ? ofFigures(figures) : []),
    ...(requests ? ofRequests(requests) : []),
    ...ofServices(status),
    ...ofPolicy(status),
    ...ofBgp(status, most),
    ...ofTunnels(status),
    ...(counts ? ofCounts(counts) : []),
    ...ofCalls(calls),
    ...(spans ? ofSpans(spans) : []),
    ...ofStore(status, now),
    ...ofProcess(status, usage),
  ].join('')
}

function ofAgent(status: Status, most: number): string[] {
  const { version, ready, state, mtu, findings, peers, subnets, unreadable, steps, fightCount, probes, lastError } =
    status
  const lost = peers.filter(({ problem }) => problem !== undefined).length
  const of = (state: Probe['state']) =>
    peers.filter(({ problem, probe }) => problem === undefined && probe?.state === state).length
  const own = Object.keys(subnets).length > 0 ? 1 : 0
  const failedAt = (lastError?.at ?? 0) / 1000
  const byState: Sample[] = [
    [{ state: 'reachable' }, of('answers')],
    [{ state: 'narrow' }, of('narrow')],
    [{ state: 'silent' }, of('silent')],
    [{ state: 'unknown' }, peers.length - lost - of('answers') - of('narrow') - of('silent')],
    [{ state: 'unreachable' }, lost],
  ]
  return [
    gauge('plumb_build_info', 'What runs; always 1.', [[{ version, runtime: `bun ${Bun.version}` }, 1]]),
    gauge('plumb_ready', 'Whether the node serves its pods: /readyz is 200.', Number(ready)),
    gauge(
      'plumb_degraded',
      'Whether the node serves its pods though something is wrong: a peer, the store, another program.',
      Number(state === 'degraded'),
    ),
    gauge('plumb_leases', 'Leases of nodes, this one among them.', peers.length + own),
    gauge('plumb_leases_unreadable', 'Entries of the store that could not be read.', unreadable),
    gauge(
      'plumb_peers',
      'Other nodes: those that answer, that do not, that were not asked, and whose lease cannot be programmed.',
      byState,
    ),
    gauge('plumb_mtu_bytes', 'The largest packets of pods.', mtu),
    ...ofFindings(findings),
    ...ofProbes(peers, most),
    ...ofHandshakes(peers, most),
    ...(probes
      ? [histogram('plumb_peer_probe_seconds', 'How long answers of other nodes took.', PROBE_BUCKETS, probes)]
      : []),
    ...(fightCount === undefined
      ? []
      : [gauge('plumb_fights', 'Objects that another program changes again and again.', fightCount)]),
    histogram('plumb_step_duration_seconds', 'How long steps of the parts of the agent took.', BUCKETS, steps),
    gauge('plumb_last_error_timestamp_seconds', 'When something last failed; 0 when nothing has.', failedAt),
  ]
}

function ofFindings(findings: Status['findings']): string[] {
  const counts = new Map<string, Sample>()
  for (const { code, severity } of findings) counts.set(code, [{ code, severity }, (counts.get(code)?.[1] ?? 0) + 1])
  const about = 'What the checks of plumb doctor that the agent makes have found now.'
  return [gauge('plumb_doctor_findings', about, [...counts.values()])]
}

// A node with an old and a new lease appears once, with the worse probe result.
function ofProbes(peers: readonly Peer[], most: number): string[] {
  const all = new Map<string, Probe>()
  for (const peer of peers) {
    const [name, { probe }] = [nameOf(peer), peer]
    if (probe && probe.sent > 0 && probe.lost >= (all.get(name)?.lost ?? 0)) all.set(name, probe)
  }
  const nodes = [...all].sort(([, one], [, other]) => badness(other) - badness(one)).slice(0, most)
  const losses = nodes.map(([node, { lost, sent }]): Sample => [{ node }, lost / sent])
  const times = nodes.flatMap(([node, { ms }]): Sample[] => (ms === undefined ? [] : [[{ node }, ms / 1000]]))
  return [
    gauge('plumb_peer_probe_loss_ratio', 'How many of the last probes of a node were lost, 0 to 1.', losses),
    gauge('plumb_peer_round_trip_seconds', 'How long the last answer of a node took.', times),
    ...ofSizes(peers, most),
  ]
}

// A node with an old and a new lease appears once, with the smaller size.
function ofSizes(peers: readonly Peer[], most: number): string[] {
  const sizes = new Map<string, number>()
  for (const peer of peers) {
    const [name, mtu] = [nameOf(peer), peer.probe?.mtu]
    if (mtu !== undefined) sizes.set(name, Math.min(mtu, sizes.get(name) ?? mtu))
  }
  const smallest = [...sizes].sort(([, one], [, other]) => one - other).slice(0, most)
  const about = 'The largest packet that a node got, at most as large as those of pods.'
  return [
    gauge(
      'plumb_peer_mtu_bytes',
      about,
      smallest.map(([node, mtu]): Sample => [{ node }, mtu]),
    ),
  ]
}

// A node with an old and a new lease appears once, with the older handshake.
function ofHandshakes(peers: readonly Peer[], most: number): string[] {
  const ages = new Map<string, number>()
  for (const peer of peers) {
    const [name, { handshakeAge: age }] = [nameOf(peer), peer]
    if (age !== undefined) ages.set(name, Math.max(age, ages.get(name) ?? 0))
  }
  const oldest = [...ages].sort(([, one], [, other]) => other - one).slice(0, most)
  const about = 'How old the last WireGuard handshake with a node is, as it was seen in the last 15 s.'
  return [
    gauge(
      'plumb_wireguard_handshake_age_seconds',
      about,
      oldest.map(([node, age]): Sample => [{ node }, age]),
    ),
  ]
}

// A lost probe is worse than any round trip, which is shorter than 2 s.
function badness({ lost, sent, ms = 0 }: Probe): number {
  return (lost / sent) * 100_000 + ms
}

function ofFigures({ conntrack, reversePathDrops, pools, certificates }: NodeFigures): string[] {
  const addresses = pools.flatMap(({ family, reserved, free }): Sample[] => [
    [{ family, state: 'reserved' }, reserved],
    [{ family, state: 'free' }, free],
  ])
  const ends = certificates.map(({ server, role, expires }): Sample => [{ server, role }, expires / 1000])
  return [
    ...(conntrack
      ? [
          gauge('plumb_conntrack_entries', 'Connections that the kernel tracks.', conntrack.entries),
          gauge('plumb_conntrack_limit', 'The most connections that the kernel tracks.', conntrack.limit),
          counter(
            'plumb_conntrack_insert_failed_total',
            'Connections that the kernel did not track, as another one was in the way.',
            conntrack.insertFailed,
          ),
          counter(
            'plumb_conntrack_dropped_total',
            'Packets that were dropped because the table of connections was full.',
            conntrack.dropped,
          ),
        ]
      : []),
    counter(
      'plumb_reverse_path_drops_total',
      'Packets that the reverse path filter of this node dropped.',
      reversePathDrops,
    ),
    gauge('plumb_pool_addresses', 'Addresses for pods in the subnet of this node.', addresses),
    gauge('plumb_certificate_expires_timestamp_seconds', 'When a certificate ends that the agent uses.', ends),
  ]
}

function ofRequests(requests: ReadonlyMap<string, number>): string[] {
  const samples = [...requests].map(([code, count]): Sample => [{ code }, count])
  const about = 'Requests to the API server by the HTTP status of the answer; none when there was no answer.'
  return [counter('plumb_api_requests_total', about, samples)]
}

function ofServices({ services: now }: Status): string[] {
  if (!now) return []
  const { services, frontends, endpoints, programming, forgotten, sync } = now
  const programmingAbout = 'How long it took from the change of an EndpointSlice to the kernel.'
  const seconds = (ms: number | undefined): readonly Sample[] => (ms === undefined ? [] : [[{}, ms / 1000]])
  return [
    gauge('plumb_services', 'Services that this node serves.', services),
    gauge('plumb_service_frontends', 'Addresses and ports at which clients ask for Services.', frontends),
    gauge('plumb_service_endpoints', 'Endpoints of Services, once for each frontend that leads to them.', endpoints),
    counter(
      'plumb_service_connections_forgotten_total',
      'UDP connections to former endpoints that were deleted.',
      forgotten,
    ),
    histogram('plumb_network_programming_duration_seconds', programmingAbout, PROGRAMMING_BUCKETS, programming),
    // Dashboards and alerts for kube-proxy ask for these. Both families are one step.
    histogram('kubeproxy_network_programming_duration_seconds', programmingAbout, PROGRAMMING_BUCKETS, programming),
    histogram(
      'kubeproxy_sync_proxy_rules_duration_seconds',
      'How long steps took that brought changes of Services to the kernel.',
      SYNC_BUCKETS,
      sync.took,
    ),
    gauge(
      'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
      'When the kernel had all Services last.',
      seconds(sync.doneAt),
    ),
    gauge(
      'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds',
      'When the last change of Services came.',
      seconds(sync.queuedAt),
    ),
    counter('kubeproxy_sync_proxy_rules_service_changes_total', 'Changed Services so far.', sync.services),
    counter('kubeproxy_sync_proxy_rules_endpoint_changes_total', 'Changed EndpointSlices so far.', sync.slices),
  ]
}

function ofPolicy({ policy: now }: Status): string[] {
  if (!now) return []
  const { policies, clusterPolicies, pods, selected, closed, refused, steps } = now
  return [
    gauge('plumb_policies', 'Policies of the cluster that could be read.', [
      [{ kind: 'NetworkPolicy' }, policies],
      [{ kind: 'ClusterNetworkPolicy' }, clusterPolicies],
    ]),
    gauge('plumb_policy_pods', 'Pods of this node that NetworkPolicy knows.', pods),
    gauge('plumb_policy_selected_pods', 'Pods of this node that a policy selects, by direction.', [
      [{ direction: 'ingress' }, selected.ingress],
      [{ direction: 'egress' }, selected.egress],
    ]),
    gauge(
      'plumb_policy_closed_pods',
      'Pods of this node whose object is not known yet: all of their packets are refused.',
      closed,
    ),
    gauge('plumb_policy_objects_refused', 'Objects that could not be read. All others are enforced.', refused),
    histogram(
      'plumb_policy_step_duration_seconds',
      'How long it took from changed objects to the kernel.',
      BUCKETS,
      steps,
    ),
  ]
}

function ofBgp({ bgp: now }: Status, most: number): string[] {
  if (!now) return []
  const { pid, restarts, announced } = now
  const away = now.sessions.filter(({ state }) => state !== 'Established')
  const established = now.sessions.filter(({ state }) => state === 'Established')
  const sessions = [...away, ...established].slice(0, most)
  const of = (value: (one: BgpSession) => number) =>
    sessions.map((one): Sample => [{ kind: one.kind, peer: one.name, address: one.address }, value(one)])
  return [
    gauge('plumb_bgp_running', 'Whether BIRD runs.', Number(pid !== undefined)),
    counter('plumb_bgp_restarts_total', 'How often BIRD was started again.', restarts),
    gauge('plumb_bgp_sessions', 'Sessions by whether they are established.', [
      [{ state: 'established' }, established.length],
      [{ state: 'away' }, away.length],
    ]),
    gauge('plumb_bgp_announced_prefixes', 'Prefixes that this node announces.', announced),
    gauge(
      'plumb_bgp_session_up',
      'Whether a session is established.',
      of(({ state }) => Number(state === 'Established')),
    ),
    gauge(
      'plumb_bgp_received_prefixes',
      'Prefixes that were taken from a peer.',
      of(({ received }) => received),
    ),
    gauge(
      'plumb_bgp_sent_prefixes',
      'Prefixes that were announced to a peer.',
      of(({ sent }) => sent),
    ),
  ]
}

function ofTunnels({ tunnels: now }: Status): string[] {
  if (!now) return []
  return [
    gauge('plumb_tunnel_sources', 'Addresses of nodes from which tunnelled packets are taken.', now.nodes),
    counter(
      'plumb_tunnel_refused_packets_total',
      'Tunnelled packets that were dropped, as no lease has the address of their sender.',
      now.refused,
    ),
  ]
}

// Only the first packet of a connection meets a policy.
function ofCounts({ counts, unknownAddress }: PolicyCounts): string[] {
  const of = (value: 'packets' | 'bytes') =>
    counts.map((one): Sample => {
      const labels = { direction: one.side, action: one.what, policies: one.policies.join(' ') }
      return [labels, one[value]]
    })
  return [
    counter(
      'plumb_policy_packets_total',
      'First packets of connections that policies decided. Several policies refuse together.',
      of('packets'),
    ),
    counter('plumb_policy_bytes_total', 'Bytes of these packets.', of('bytes')),
    counter(
      'plumb_policy_unknown_address_packets_total',
      "Packets from and to addresses of the node's subnet that belong to no known pod.",
      unknownAddress,
    ),
  ]
}

function ofCalls(calls: readonly CallCount[]): string[] {
  const took = calls.flatMap(({ plugin, verb, took }) => histogramSamples({ plugin, verb }, CALL_BUCKETS, took))
  const errors = calls.flatMap(({ plugin, verb, errors }) =>
    [...errors].map(([code, count]): Sample => [{ plugin, verb, code }, count]),
  )
  return [
    family('plumb_cni_seconds', 'histogram', 'How long calls of plugins on this node took.', took),
    counter('plumb_cni_errors_total', 'Failed calls of plugins on this node, by the CNI code of the error.', errors),
  ]
}

function ofSpans({ sent, dropped }: SpanCounts): string[] {
  const samples: Sample[] = [
    [{ outcome: 'sent' }, sent],
    [{ outcome: 'dropped' }, dropped],
  ]
  return [counter('plumb_spans_total', 'Spans for the collector, by whether it took them.', samples)]
}

function ofKinds({ kinds }: Status): string[] {
  const rows = Object.entries(kinds).sort(([a], [b]) => (a < b ? -1 : 1))
  const of = (what: keyof KindCount) => rows.map(([kind, counts]): Sample => [{ kind }, counts[what]])
  return [
    gauge('plumb_objects_wanted', 'Kernel objects that there are to be.', of('wanted')),
    gauge('plumb_objects_programmed', 'Kernel objects that there are.', of('programmed')),
    counter('plumb_repairs_total', 'Kernel objects that had to be put right since the start.', of('repaired')),
  ]
}

function ofStore({ store, stale, started }: Status, now: number): string[] {
  const labels = { store: store.name }
  const { connected, heard } = store
  const isStale = stale !== undefined
  const lagMs = connected && !isStale ? 0 : Math.max(now - (stale ?? heard ?? started), 0)
  return [
    gauge('plumb_store_connected', 'Whether the store answers.', [[labels, Number(connected)]]),
    gauge(
      'plumb_store_lag_seconds',
      'By how much what is known of the network may be out of date: 0 while the store answers.',
      [[labels, lagMs / 1000]],
    ),
    gauge(
      'plumb_stale',
      'Whether the network is still as it was known before the start of the agent.',
      Number(isStale),
    ),
    gauge('plumb_store_last_heard_timestamp_seconds', 'When the store was last heard of; 0 when it never was.', [
      [labels, (heard ?? 0) / 1000],
    ]),
  ]
}

// The metric names are the same as in Prometheus' client libraries.
function ofProcess({ started }: Status, { rssBytes, cpuSeconds, openFiles }: Usage): string[] {
  return [
    gauge('process_start_time_seconds', 'When the agent started.', started / 1000),
    gauge('process_resident_memory_bytes', 'Memory in use.', rssBytes),
    counter(
      'process_cpu_seconds_total',
      'CPU time used, user and system, without that of the tools it ran.',
      cpuSeconds,
    ),
    gauge('process_open_fds', 'Open file descriptors.', openFiles),
  ]
}

function gauge(name: string, help: string, value: number | readonly Sample[]): string {
  return family(name, 'gauge', help, value)
}

function counter(name: string, help: string, value: number | readonly Sample[]): string {
  return family(name, 'counter', help, value)
}

function histogram(name: string, help: string, bounds: readonly number[], durations: Durations): string {
  return family(name, 'histogram', help, histogramSamples({}, bounds, durations))
}

function histogramSamples(labels: Labels, bounds: readonly number[], { buckets, count, sum }: Durations): Sample[] {
  return [
    ...bounds.map((le, i): Sample => [{ ...labels, le }, buckets[i] ?? 0, '_bucket']),
    [{ ...labels, le: '+Inf' }, count, '_bucket'],
    [labels, sum, '_sum'],
    [labels, count, '_count'],
  ]
}

// One value has no labels. Leaves out a family without samples.
function family(name: string, type: string, help: string, value: number | readonly Sample[]): string {
  const samples: readonly Sample[] = typeof value === 'number' ? [[{}, value]] : value
  if (samples.length === 0) return ''
  return [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...samples.map(([labels, value, suffix = '']) => `${name}${suffix}${braces(labels)} ${value}`),
    '',
  ].join('\n')
}

function braces(labels: Labels): string {
  const escaped = (value: string | number) => String(value).replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n')
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`)
  return pairs.length > 0 ? `{${pairs.join(',')}}` : ''
}
