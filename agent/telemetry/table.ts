import { PROBE_BUCKETS } from '../backend/probes.ts'
import { BUCKETS, type KindCount, PROGRAMMING_BUCKETS, SYNC_BUCKETS } from '../state/status.ts'
import { CALL_BUCKETS } from './calls.ts'
import { histogramOf, type Metric, type Sample, type Scene } from './metric.ts'
import { handshakes, losses, peersByState, roundTrips, routeMtus, sessions, sizes } from './peer-samples.ts'

const KUBE_PROXY = 'for dashboards and alerts of kube-proxy'
const PROCESS = 'of the process, as Prometheus’ client libraries have it'

/**
 * All metrics of the agent, in the order of its answer. The rows of docs/ are made of this table. A test asks for a row
 * there, and for a place on the page or a reason.
 */
export const METRICS: readonly Metric[] = [
  {
    name: 'plumb_build_info',
    type: 'gauge',
    help: 'What runs; always 1.',
    labels: ['version', 'runtime'],
    docs: { page: 'status', tells: 'always 1' },
    shown: { on: 'overview', as: 'plumb' },
    read: ({ status: { version } }) => [[{ version, runtime: `bun ${Bun.version}` }, 1]],
  },
  {
    name: 'plumb_ready',
    type: 'gauge',
    help: 'Whether the node serves its pods: /readyz is 200.',
    docs: { page: 'status', tells: '1 when `/readyz` is 200' },
    shown: { on: 'overview', as: '✓ Ready' },
    read: ({ status }) => Number(status.ready),
  },
  {
    name: 'plumb_degraded',
    type: 'gauge',
    help: 'Whether the node serves its pods though something is wrong: a peer, the store, another program.',
    docs: { page: 'status', tells: '1 when the node is degraded' },
    shown: { on: 'overview', as: '▲ Degraded' },
    read: ({ status }) => Number(status.state === 'degraded'),
  },
  {
    name: 'plumb_leases',
    type: 'gauge',
    help: 'Leases of nodes, this one among them.',
    docs: { page: 'status', tells: 'number of nodes with a subnet, including this node' },
    shown: { on: 'peers', as: 'peers' },
    read: ({ status: { peers, subnets } }) => peers.length + (Object.keys(subnets).length > 0 ? 1 : 0),
  },
  {
    name: 'plumb_leases_unreadable',
    type: 'gauge',
    help: 'Entries of the store that could not be read.',
    docs: { page: 'status', tells: 'number of unreadable entries of the store' },
    shown: { on: 'overview', as: 'entries cannot be read' },
    read: ({ status }) => status.unreadable,
  },
  {
    name: 'plumb_peers',
    type: 'gauge',
    help: 'Other nodes: those that answer, that do not, that were not asked, and whose lease cannot be programmed.',
    labels: ['state'],
    docs: {
      page: 'status',
      tells:
        'number of other nodes: `reachable`, `narrow` (packets of full size are lost), `silent`, `away` (silent, and Kubernetes has no news of the node), `unknown` (not asked), `unreachable` (not programmed)',
    },
    shown: { on: 'overview', as: 'lose packets of full size' },
    read: peersByState,
  },
  {
    name: 'plumb_mtu_bytes',
    type: 'gauge',
    help: 'The largest packets of pods.',
    docs: { page: 'status', tells: 'largest packet of pods' },
    shown: { on: 'overview', as: 'pods’ MTU' },
    read: ({ status }) => status.mtu,
  },
  {
    name: 'plumb_tunnel_checksum_offload',
    type: 'gauge',
    help: 'Whether the network card computes the checksums of tunnelled packets.',
    labels: [],
    docs: {
      page: 'status',
      tells:
        '1 when the network card computes the checksums of tunnelled packets, 0 when the node does. Absent when the agent leaves it to the kernel',
    },
    shown: { on: 'overview', as: 'checksum offload' },
    read: ({ status: { uplink } }) => {
      const isOn = uplink?.checksumOffload?.isOn
      return isOn === undefined ? undefined : Number(isOn)
    },
  },
  {
    name: 'plumb_doctor_findings',
    type: 'gauge',
    help: 'What the checks of plumb doctor that the agent makes have found now.',
    labels: ['code', 'severity'],
    docs: { page: 'status', tells: 'findings of the checks of [plumb doctor](doctor.md) that the agent makes' },
    shown: { on: 'overview', as: 'What is wrong' },
    read: findings,
  },
  {
    name: 'plumb_peer_probe_loss_ratio',
    type: 'gauge',
    help: 'How many of the last probes of a node were lost, 0 to 1.',
    labels: ['node'],
    docs: { page: 'status', tells: 'share of the last ten probes of a node that were lost, 0 to 1' },
    shown: { on: 'peers', as: 'Loss' },
    read: losses,
  },
  {
    name: 'plumb_peer_round_trip_seconds',
    type: 'gauge',
    help: 'How long the last answer of a node took.',
    labels: ['node'],
    docs: { page: 'status', tells: 'time of the last answer of a node' },
    shown: { on: 'peers', as: 'Round trip' },
    read: roundTrips,
  },
  {
    name: 'plumb_peer_route_mtu_bytes',
    type: 'gauge',
    help: 'The MTU of the routes to a node whose path takes smaller packets than pods may send.',
    labels: ['node'],
    docs: {
      page: 'status',
      tells:
        'MTU of the routes to a node, where the path takes smaller packets than pods may send. Absent for all other nodes',
    },
    shown: { on: 'peers', as: 'its route has mtu' },
    read: routeMtus,
  },
  {
    name: 'plumb_peer_mtu_bytes',
    type: 'gauge',
    help: 'The largest packet that a node got, at most as large as those of pods.',
    labels: ['node'],
    docs: {
      page: 'status',
      tells: 'largest packet that a node got, at most `plumb_mtu_bytes`. Absent for a node that does not answer',
    },
    shown: { not: 'the page tells which peers lose packets of full size, and plumb doctor DR19 how large they may be' },
    read: sizes,
  },
  {
    name: 'plumb_wireguard_handshake_age_seconds',
    type: 'gauge',
    help: 'How old the last WireGuard handshake with a node is, as it was seen in the last 15 s.',
    labels: ['node'],
    docs: { page: 'status', tells: 'age of the last handshake with a node, looked at every 15 s' },
    shown: { on: 'peers', as: 'Last handshake' },
    read: handshakes,
  },
  {
    name: 'plumb_peer_probe_duration_seconds',
    type: 'histogram',
    help: 'How long answers of other nodes took.',
    docs: { page: 'status', tells: 'time of the answers of all nodes' },
    shown: { not: 'the page has the round trip of each peer' },
    read: ({ status: { probes } }) => probes && histogramOf(PROBE_BUCKETS, probes),
  },
  {
    name: 'plumb_fights',
    type: 'gauge',
    help: 'Objects that another program changes again and again.',
    docs: { page: 'status', tells: 'number of objects that another program changes again and again' },
    shown: { on: 'overview', as: 'What is wrong' },
    read: ({ status }) => status.fightCount,
  },
  {
    name: 'plumb_step_duration_seconds',
    type: 'histogram',
    help: 'How long steps of the parts of the agent took.',
    docs: { page: 'status', tells: "duration of the steps of the agent's parts" },
    shown: { on: 'overview', as: 'steps:' },
    read: ({ status }) => histogramOf(BUCKETS, status.steps),
  },
  {
    name: 'plumb_last_error_timestamp_seconds',
    type: 'gauge',
    help: 'When something last failed; 0 when nothing has.',
    docs: { page: 'status', tells: 'time of the last failure, 0 for never' },
    shown: { on: 'events', as: 'What has happened' },
    read: ({ status }) => (status.lastError?.at ?? 0) / 1000,
  },
  {
    name: 'plumb_objects_wanted',
    type: 'gauge',
    help: 'Kernel objects that there are to be.',
    labels: ['kind'],
    docs: { page: 'status', tells: 'number of kernel objects that the agent wants' },
    shown: { on: 'overview', as: 'Kernel objects' },
    read: kinds('wanted'),
  },
  {
    name: 'plumb_objects_programmed',
    type: 'gauge',
    help: 'Kernel objects that there are.',
    labels: ['kind'],
    docs: { page: 'status', tells: 'number of kernel objects that exist' },
    shown: { on: 'overview', as: 'not as wanted' },
    read: kinds('programmed'),
  },
  {
    name: 'plumb_repairs_total',
    type: 'counter',
    help: 'Kernel objects that had to be put right since the start.',
    labels: ['kind'],
    docs: { page: 'status', tells: 'number of repairs since the start' },
    shown: { on: 'overview', as: 'repaired' },
    read: kinds('repaired'),
  },
  {
    name: 'plumb_conntrack_entries',
    type: 'gauge',
    help: 'Connections that the kernel tracks.',
    docs: { page: 'status', tells: 'connections that the kernel tracks' },
    shown: { not: 'the page shows what the agent makes; plumb doctor tells of a full table' },
    read: ({ figures }) => figures?.conntrack?.entries,
  },
  {
    name: 'plumb_conntrack_limit',
    type: 'gauge',
    help: 'The most connections that the kernel tracks.',
    docs: { page: 'status', tells: 'the most connections that the kernel tracks' },
    shown: { not: 'the page shows what the agent makes; plumb doctor tells of a full table' },
    read: ({ figures }) => figures?.conntrack?.limit,
  },
  {
    name: 'plumb_conntrack_insert_failed_total',
    type: 'counter',
    help: 'Connections that the kernel did not track, as another one was in the way.',
    docs: { page: 'status', tells: 'connections that the kernel did not track, as another one was in the way' },
    shown: { not: 'the page shows what the agent makes; plumb doctor tells of a full table' },
    read: ({ figures }) => figures?.conntrack?.insertFailed,
  },
  {
    name: 'plumb_conntrack_dropped_total',
    type: 'counter',
    help: 'Packets that were dropped because the table of connections was full.',
    docs: { page: 'status', tells: 'packets that were dropped because the table of connections was full' },
    shown: { not: 'the page shows what the agent makes; plumb doctor tells of a full table' },
    read: ({ figures }) => figures?.conntrack?.dropped,
  },
  {
    name: 'plumb_reverse_path_drops_total',
    type: 'counter',
    help: 'Packets that the reverse path filter of this node dropped.',
    docs: { page: 'status', tells: 'packets that the reverse path filter dropped' },
    shown: { not: 'the page shows what the agent makes; plumb doctor tells of drops by this filter' },
    read: ({ figures }) => figures?.reversePathDrops,
  },
  {
    name: 'plumb_pool_addresses',
    type: 'gauge',
    help: 'Addresses for pods in the subnet of this node.',
    labels: ['family', 'state'],
    docs: { page: 'status', tells: "addresses for pods in this node's subnet: `reserved`, `free`" },
    shown: { not: 'read when somebody asks; plumb doctor tells of a pool that is nearly full' },
    read: poolAddresses,
  },
  {
    name: 'plumb_certificate_expires_timestamp_seconds',
    type: 'gauge',
    help: 'When a certificate ends that the agent uses.',
    labels: ['server', 'role'],
    docs: {
      page: 'status',
      tells: 'end of the certificates for etcd and the API server. `role` is `client` or `authority`',
    },
    shown: { not: 'read when somebody asks; plumb doctor tells of one that ends soon' },
    read: certificateEnds,
  },
  {
    name: 'plumb_api_requests_total',
    type: 'counter',
    help: 'Requests to the API server by the HTTP status of the answer; none when there was no answer.',
    labels: ['code'],
    docs: { page: 'status', tells: 'requests to the API server by HTTP status. `none`: no answer' },
    shown: { not: 'a rate over days, for Prometheus; the page has the state of the store' },
    read: ({ requests }) => requests && [...requests].map(([code, count]): Sample => [{ code }, count]),
  },
  {
    name: 'plumb_services',
    type: 'gauge',
    help: 'Services that this node serves.',
    docs: { page: 'services', tells: 'Services that this node serves' },
    shown: { on: 'overview', as: 'Services' },
    read: ({ status }) => status.services?.services,
  },
  {
    name: 'plumb_service_frontends',
    type: 'gauge',
    help: 'Addresses and ports at which clients ask for Services.',
    docs: { page: 'services', tells: 'addresses and ports at which clients ask for Services' },
    shown: { on: 'overview', as: 'addresses,' },
    read: ({ status }) => status.services?.frontends,
  },
  {
    name: 'plumb_service_endpoints',
    type: 'gauge',
    help: 'Endpoints of Services, once for each frontend that leads to them.',
    docs: { page: 'services', tells: 'endpoints of Services, once for each frontend that leads to them' },
    shown: { on: 'overview', as: 'endpoints' },
    read: ({ status }) => status.services?.endpoints,
  },
  {
    name: 'plumb_service_connections_forgotten_total',
    type: 'counter',
    help: 'UDP connections to former endpoints that were deleted.',
    docs: { page: 'services', tells: 'UDP connections to former endpoints that were deleted' },
    shown: { not: 'a rate over days, for Prometheus' },
    read: ({ status }) => status.services?.forgotten,
  },
  {
    name: 'plumb_network_programming_duration_seconds',
    type: 'histogram',
    help: 'How long it took from the change of an EndpointSlice to the kernel.',
    docs: { page: 'services', tells: 'from the change of an EndpointSlice to the kernel' },
    shown: { on: 'services', as: 'From a change to the kernel' },
    read: programming,
  },
  {
    name: 'kubeproxy_network_programming_duration_seconds',
    type: 'histogram',
    help: 'How long it took from the change of an EndpointSlice to the kernel.',
    docs: { page: 'services', tells: 'the same, by the name of kube-proxy' },
    shown: { on: 'services', as: 'From a change to the kernel' },
    read: programming,
  },
  {
    name: 'kubeproxy_sync_proxy_rules_duration_seconds',
    type: 'histogram',
    help: 'How long steps took that brought changes of Services to the kernel.',
    docs: { page: 'services', tells: 'steps that brought changes to the kernel' },
    shown: { not: KUBE_PROXY },
    read: ({ status: { services } }) => services && histogramOf(SYNC_BUCKETS, services.sync.took),
  },
  {
    name: 'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
    type: 'gauge',
    help: 'When the kernel had all Services last.',
    docs: { page: 'services', tells: 'when the kernel had all changes last' },
    shown: { not: KUBE_PROXY },
    read: ({ status }) => seconds(status.services?.sync.doneAt),
  },
  {
    name: 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds',
    type: 'gauge',
    help: 'When the last change of Services came.',
    docs: { page: 'services', tells: 'when the last change came' },
    shown: { not: KUBE_PROXY },
    read: ({ status }) => seconds(status.services?.sync.queuedAt),
  },
  {
    name: 'kubeproxy_sync_proxy_rules_service_changes_total',
    type: 'counter',
    help: 'Changed Services so far.',
    docs: { page: 'services', tells: 'changed Services. Changes of one object within a step are one' },
    shown: { not: KUBE_PROXY },
    read: ({ status }) => status.services?.sync.services,
  },
  {
    name: 'kubeproxy_sync_proxy_rules_endpoint_changes_total',
    type: 'counter',
    help: 'Changed EndpointSlices so far.',
    docs: { page: 'services', tells: 'changed EndpointSlices' },
    shown: { not: KUBE_PROXY },
    read: ({ status }) => status.services?.sync.slices,
  },
  {
    name: 'plumb_policies',
    type: 'gauge',
    help: 'Policies of the cluster that could be read.',
    labels: ['kind'],
    docs: { page: 'policy', tells: 'policies of the cluster' },
    shown: { on: 'overview', as: 'policies' },
    read: policies,
  },
  {
    name: 'plumb_policy_pods',
    type: 'gauge',
    help: 'Pods of this node that NetworkPolicy knows.',
    docs: { page: 'policy', tells: 'pods of this node' },
    shown: { on: 'overview', as: 'Pods with policy' },
    read: ({ status }) => status.policy?.pods,
  },
  {
    name: 'plumb_policy_selected_pods',
    type: 'gauge',
    help: 'Pods of this node that a policy selects, by direction.',
    labels: ['direction'],
    docs: { page: 'policy', tells: 'pods of this node that a policy selects' },
    shown: { on: 'overview', as: 'Pods with policy' },
    read: selectedPods,
  },
  {
    name: 'plumb_policy_closed_pods',
    type: 'gauge',
    help: 'Pods of this node whose object is not known yet: all of their packets are refused.',
    docs: { page: 'policy', tells: 'pods that are closed because the cluster has no object of them yet' },
    shown: { on: 'overview', as: 'pods closed' },
    read: ({ status }) => status.policy?.closed,
  },
  {
    name: 'plumb_policy_objects_refused',
    type: 'gauge',
    help: 'Objects that could not be read. All others are enforced.',
    docs: { page: 'policy', tells: 'objects that cannot be read' },
    shown: { on: 'overview', as: 'What is wrong' },
    read: ({ status }) => status.policy?.refused,
  },
  {
    name: 'plumb_policy_step_duration_seconds',
    type: 'histogram',
    help: 'How long it took from changed objects to the kernel.',
    docs: { page: 'policy', tells: 'from changed objects to the kernel' },
    shown: { not: 'a distribution, for Prometheus' },
    read: ({ status: { policy } }) => policy && histogramOf(BUCKETS, policy.steps),
  },
  {
    name: 'plumb_bgp_running',
    type: 'gauge',
    help: 'Whether BIRD runs.',
    docs: { page: 'bgp', tells: '1 while BIRD runs' },
    shown: { on: 'bgp', as: 'BIRD does not run' },
    read: ({ status: { bgp } }) => bgp && Number(bgp.pid !== undefined),
  },
  {
    name: 'plumb_bgp_restarts_total',
    type: 'counter',
    help: 'How often BIRD was started again.',
    docs: { page: 'bgp', tells: 'how often BIRD was started again' },
    shown: { not: 'plumb bgp tells it' },
    read: ({ status }) => status.bgp?.restarts,
  },
  {
    name: 'plumb_bgp_sessions',
    type: 'gauge',
    help: 'Sessions by whether they are established.',
    labels: ['state'],
    docs: { page: 'bgp', tells: 'sessions: `established`, `away`' },
    shown: { on: 'bgp', as: 'established' },
    read: sessionsByState,
  },
  {
    name: 'plumb_bgp_announced_prefixes',
    type: 'gauge',
    help: 'Prefixes that this node announces.',
    docs: { page: 'bgp', tells: 'prefixes that this node announces' },
    shown: { on: 'bgp', as: 'prefixes announced' },
    read: ({ status }) => status.bgp?.announced,
  },
  {
    name: 'plumb_bgp_session_up',
    type: 'gauge',
    help: 'Whether a session is established.',
    labels: ['kind', 'peer', 'address'],
    docs: { page: 'bgp', tells: '1 while a session is established' },
    shown: { on: 'bgp', as: 'State' },
    read: sessions(({ state }) => Number(state === 'Established')),
  },
  {
    name: 'plumb_bgp_received_prefixes',
    type: 'gauge',
    help: 'Prefixes that were taken from a peer.',
    labels: ['kind', 'peer', 'address'],
    docs: { page: 'bgp', tells: 'prefixes that were taken from a peer' },
    shown: { on: 'bgp', as: 'Prefixes' },
    read: sessions(({ received }) => received),
  },
  {
    name: 'plumb_bgp_sent_prefixes',
    type: 'gauge',
    help: 'Prefixes that were announced to a peer.',
    labels: ['kind', 'peer', 'address'],
    docs: { page: 'bgp', tells: 'prefixes that were announced to a peer' },
    shown: { on: 'bgp', as: 'Prefixes' },
    read: sessions(({ sent }) => sent),
  },
  {
    name: 'plumb_tunnel_sources',
    type: 'gauge',
    help: 'Addresses of nodes from which tunnelled packets are taken.',
    docs: { page: 'status', tells: 'addresses of nodes from which tunnelled packets are taken' },
    shown: { not: 'as many as the peers with a tunnel have addresses' },
    read: ({ status }) => status.tunnels?.nodes,
  },
  {
    name: 'plumb_tunnel_refused_packets_total',
    type: 'counter',
    help: 'Tunnelled packets that were dropped, as no lease has the address of their sender.',
    docs: { page: 'status', tells: 'tunnelled packets that were dropped because their sender has no lease' },
    shown: { not: 'plumb status names the senders' },
    read: ({ status }) => status.tunnels?.refused,
  },
  {
    name: 'plumb_fast_path_connections',
    type: 'gauge',
    help: 'Connections whose packets pass from link to link, past the rules.',
    labels: [],
    docs: { page: 'status', tells: 'connections that take the fast path, counted every 15 s' },
    shown: { on: 'overview', as: 'connections take it' },
    read: ({ status }) => status.fastPath?.flows,
  },
  {
    name: 'plumb_fast_path_pods',
    type: 'gauge',
    help: 'Pods of this node whose connections may take the fast path.',
    labels: [],
    docs: { page: 'status', tells: 'pods of the node that take part in the fast path' },
    shown: { on: 'overview', as: 'pods take part' },
    read: ({ status }) => status.fastPath?.pods,
  },
  {
    name: 'plumb_fast_path_renewals_total',
    type: 'counter',
    help: 'How often all connections were sent back from the fast path to the rules.',
    labels: [],
    docs: { page: 'status', tells: 'times that all connections were sent back to the rules' },
    shown: { not: 'a rate, for Prometheus: each renewal costs each connection some slower packets' },
    read: ({ status }) => status.fastPath?.renewals,
  },
  {
    name: 'plumb_policy_packets_total',
    type: 'counter',
    help: 'First packets of connections that policies decided. Several policies refuse together.',
    labels: ['direction', 'action', 'policies'],
    docs: { page: 'policy', tells: 'first packets of connections that policies allowed or denied' },
    shown: { not: 'the page has samples of refused packets, and the drops of each pod' },
    read: decided('packets'),
  },
  {
    name: 'plumb_policy_bytes_total',
    type: 'counter',
    help: 'Bytes of these packets.',
    labels: ['direction', 'action', 'policies'],
    docs: { page: 'policy', tells: 'bytes of these packets' },
    shown: { not: 'the page has samples of refused packets, and the drops of each pod' },
    read: decided('bytes'),
  },
  {
    name: 'plumb_policy_unknown_address_packets_total',
    type: 'counter',
    help: "Packets from and to addresses of the node's subnet that belong to no known pod.",
    docs: { page: 'policy', tells: "packets of addresses of the node's subnet that belong to no known pod" },
    shown: { not: 'a rate over days, for Prometheus' },
    read: ({ counts }) => counts?.unknownAddress,
  },
  {
    name: 'plumb_cni_duration_seconds',
    type: 'histogram',
    help: 'How long calls of plugins on this node took.',
    labels: ['plugin', 'verb'],
    docs: { page: 'status', tells: 'how long calls of plugins on this node took' },
    shown: { not: 'a distribution, for Prometheus; spans have each call' },
    read: ({ calls = [] }) =>
      calls.flatMap(({ plugin, verb, took }) => histogramOf(CALL_BUCKETS, took, { plugin, verb })),
  },
  {
    name: 'plumb_cni_errors_total',
    type: 'counter',
    help: 'Failed calls of plugins on this node, by the CNI code of the error.',
    labels: ['plugin', 'verb', 'code'],
    docs: { page: 'status', tells: 'failed calls of plugins on this node, by the CNI code of the error' },
    shown: { not: 'kubelet tells the error of a call at its pod' },
    read: failedCalls,
  },
  {
    name: 'plumb_spans_total',
    type: 'counter',
    help: 'Spans for the collector, by whether it took them.',
    labels: ['outcome'],
    docs: { page: 'status', tells: 'spans for the collector: `sent` and `dropped`, with `--otlp-endpoint`' },
    shown: { not: 'the log says when the collector is away' },
    read: sentSpans,
  },
  {
    name: 'plumb_store_connected',
    type: 'gauge',
    help: 'Whether the store answers.',
    labels: ['store'],
    docs: { page: 'status', tells: '1 while the store answers' },
    shown: { on: 'overview', as: 'connected, heard of' },
    read: ofStore(({ status }) => Number(status.store.connected)),
  },
  {
    name: 'plumb_store_lag_seconds',
    type: 'gauge',
    help: 'By how much what is known of the network may be out of date: 0 while the store answers.',
    labels: ['store'],
    docs: {
      page: 'status',
      tells:
        '0 while the store answers, else the time since its last answer. The known leases may be out of date by this time',
    },
    shown: { on: 'overview', as: 'not heard of for' },
    read: ofStore(lagSeconds),
  },
  {
    name: 'plumb_stale',
    type: 'gauge',
    help: 'Whether the network is still as it was known before the start of the agent.',
    docs: { page: 'status', tells: 'whether the agent still uses the network that was known before its start' },
    shown: { on: 'overview', as: 'What is wrong' },
    read: ({ status }) => Number(status.stale !== undefined),
  },
  {
    name: 'plumb_store_last_heard_timestamp_seconds',
    type: 'gauge',
    help: 'When the store was last heard of; 0 when it never was.',
    labels: ['store'],
    docs: { page: 'status', tells: 'time of the last answer of the store' },
    shown: { on: 'overview', as: 'heard of' },
    read: ofStore(({ status }) => (status.store.heard ?? 0) / 1000),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'When the agent started.',
    docs: { page: 'status', tells: 'when the agent started' },
    shown: { on: 'overview', as: 'up' },
    read: ({ status }) => status.started / 1000,
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Memory in use.',
    docs: { page: 'status', tells: 'memory in use' },
    shown: { not: PROCESS },
    read: ({ usage }) => usage.rssBytes,
  },
  {
    name: 'process_virtual_memory_bytes',
    type: 'gauge',
    help: 'Virtual memory.',
    docs: { page: 'status', tells: 'virtual memory' },
    shown: { not: PROCESS },
    read: ({ usage }) => usage.virtualBytes,
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'CPU time used, user and system, without that of the tools it ran.',
    docs: { page: 'status', tells: 'CPU time used, user and system, without that of the tools it ran' },
    shown: { not: PROCESS },
    read: ({ usage }) => usage.cpuSeconds,
  },
  {
    name: 'process_open_fds',
    type: 'gauge',
    help: 'Open file descriptors.',
    docs: { page: 'status', tells: 'open file descriptors' },
    shown: { not: PROCESS },
    read: ({ usage }) => usage.openFiles,
  },
  {
    name: 'process_max_fds',
    type: 'gauge',
    help: 'The most file descriptors that may be open.',
    docs: { page: 'status', tells: 'the most file descriptors that may be open' },
    shown: { not: PROCESS },
    read: ({ usage }) => usage.mostFiles,
  },
]

function findings({ status }: Scene): Sample[] {
  const counts = new Map<string, Sample>()
  for (const { code, severity } of status.findings)
    counts.set(code, [{ code, severity }, (counts.get(code)?.[1] ?? 0) + 1])
  return [...counts.values()]
}

function kinds(what: keyof KindCount): Metric['read'] {
  return ({ status }) => {
    const rows = Object.entries(status.kinds).sort(([a], [b]) => (a < b ? -1 : 1))
    return rows.map(([kind, counts]): Sample => [{ kind }, counts[what]])
  }
}

function poolAddresses({ figures }: Scene): Sample[] | undefined {
  return figures?.pools.flatMap(({ family, reserved, free }): Sample[] => [
    [{ family, state: 'reserved' }, reserved],
    [{ family, state: 'free' }, free],
  ])
}

function certificateEnds({ figures }: Scene): Sample[] | undefined {
  return figures?.certificates.map(({ server, role, expires }): Sample => [{ server, role }, expires / 1000])
}

// Dashboards and alerts for kube-proxy ask for its name. Both families are one step.
function programming({ status: { services } }: Scene): Sample[] | undefined {
  return services && histogramOf(PROGRAMMING_BUCKETS, services.programming)
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000
}

function policies({ status: { policy } }: Scene): Sample[] | undefined {
  return (
    policy && [
      [{ kind: 'NetworkPolicy' }, policy.policies],
      [{ kind: 'ClusterNetworkPolicy' }, policy.clusterPolicies],
    ]
  )
}

function selectedPods({ status: { policy } }: Scene): Sample[] | undefined {
  return (
    policy && [
      [{ direction: 'ingress' }, policy.selected.ingress],
      [{ direction: 'egress' }, policy.selected.egress],
    ]
  )
}

function sessionsByState({ status: { bgp } }: Scene): Sample[] | undefined {
  const established = bgp?.sessions.filter(({ state }) => state === 'Established').length ?? 0
  return (
    bgp && [
      [{ state: 'established' }, established],
      [{ state: 'away' }, bgp.sessions.length - established],
    ]
  )
}

// Only the first packet of a connection meets a policy.
function decided(value: 'packets' | 'bytes'): Metric['read'] {
  return ({ counts }) =>
    counts?.counts.map((one): Sample => {
      const labels = { direction: one.side, action: one.what, policies: one.policies.join(' ') }
      return [labels, one[value]]
    })
}

function failedCalls({ calls = [] }: Scene): Sample[] {
  return calls.flatMap(({ plugin, verb, errors }) =>
    [...errors].map(([code, count]): Sample => [{ plugin, verb, code }, count]),
  )
}

function sentSpans({ spans }: Scene): Sample[] | undefined {
  return (
    spans && [
      [{ outcome: 'sent' }, spans.sent],
      [{ outcome: 'dropped' }, spans.dropped],
    ]
  )
}

function ofStore(value: (scene: Scene) => number): Metric['read'] {
  return (scene) => [[{ store: scene.status.store.name }, value(scene)]]
}

function lagSeconds({ status: { store, stale, started }, now }: Scene): number {
  const { connected, heard } = store
  const isStale = stale !== undefined
  return connected && !isStale ? 0 : Math.max(now - (stale ?? heard ?? started), 0) / 1000
}
