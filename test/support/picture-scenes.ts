// The node and the fleet that the pictures of the docs show. Each run gives the same.

import { namespaceOf, type Pod, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { noObjects } from '../../agent/cluster/source.ts'
import { check as neighbourTable } from '../../agent/doctor/checks/neighbour-table.ts'
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { cellOf, matrixOf } from '../../agent/policy/matrix.ts'
import { compile } from '../../agent/policy/state.ts'
import { detail, type PolicyKnowledge, summaries } from '../../agent/policy/view.ts'
import { atOnce } from '../../agent/scheduler/pieces.ts'
import type { PodView } from '../../agent/state/details.ts'
import { sentenceOf } from '../../agent/state/phrases.ts'
import { Recorder } from '../../agent/state/recorder.ts'
import { BUCKETS, type Finding, type Peer, type Status } from '../../agent/state/status.ts'
import { type Fleet, judge } from '../../cli/fleet/fleet.ts'
import { parseCidr, parseIp } from '../../lib/text/ip.ts'
import { knownOf, silent } from './fleet.ts'
import { type Scripted, scripted } from './scripted.ts'

/** The moment of all pictures. */
export const NOW = Date.UTC(2026, 10, 12, 14, 26, 30)
const [SECOND, MINUTE, DAY] = [1000, 60_000, 86_400_000]
const NODE = 'worker-a-07'
/** The zones, with the first bytes of the addresses of their nodes (RFC 5737). */
const ZONES = [
  { letter: 'a', zone: 'eu-1a', net: '192.0.2' },
  { letter: 'b', zone: 'eu-1b', net: '198.51.100' },
  { letter: 'c', zone: 'eu-1c', net: '203.0.113' },
] as const
/** The nodes that this node does not reach. */
const LOST: readonly string[] = ['worker-c-32', 'worker-c-33']

/** A node with 98 peers. Two new ones are lost, because its table of neighbours is full. */
export interface NodeScene {
  readonly source: Scripted
  /** Gives no answer about pods until `release`. Then it gives one with the traffic of a second more, and none after it. */
  hold(): void
  release(): void
  /** How often pods were asked for. */
  readonly asked: number
}

/** Makes the scene of the node's page, with what happened in the hour before. */
export function nodeScene(): NodeScene {
  let now = NOW - 63 * MINUTE
  const recorder = new Recorder(() => now)
  const known = policies()
  const pods = { asked: 0, state: 'calm' as 'calm' | 'held' | 'later' }
  const peers = zoned(33).filter(({ node }) => node !== NODE)
  const [finding, fresh] = [fullTable(), new Set(LOST)]
  const source = scripted({
    node: NODE,
    version: '0.2.0',
    zone: 'eu-1a',
    started: NOW - 4 * DAY - 197 * MINUTE,
    network: { v4: parseCidr('10.244.0.0/16'), v6: parseCidr('2001:db8:244::/48') },
    subnets: { v4: parseCidr('10.244.7.0/24'), v6: parseCidr('2001:db8:244:7::/64') },
    uplink: {
      name: 'ens3',
      tunnel: { v4: '192.0.2.7' },
      advertise: { v4: '192.0.2.7' },
      why: 'ens3 has the default route, 192.0.2.7 is its first address',
    },
    store: { name: 'kubernetes', connected: true, heard: now },
    peers: peers.filter(({ node = '' }) => !fresh.has(node)),
    kinds: kindsFor(peers.length - fresh.size, 0),
    repairs: [],
    steps: {
      count: 2412,
      sum: 19.6,
      buckets: BUCKETS.map((le) => (le < 0.0025 ? 410 : le < 0.01 ? 1730 : le < 0.05 ? 2395 : 2412)),
    },
    policy: {
      policies: known.cluster.policies.size,
      clusterPolicies: 0,
      pods: known.state.locals.size,
      selected: { ingress: countOf(known, 'ingress'), egress: countOf(known, 'egress') },
      closed: 0,
      refused: 0,
      steps: { count: 88, sum: 0.4, buckets: BUCKETS.map(() => 88) },
    },
  })
  const set = (change: Partial<Status>) => {
    source.set(change)
    recorder.record(source.status())
  }
  const passes = (until: number) => {
    for (; now < until; now += MINUTE) recorder.record(source.status())
    now = until
  }
  const away = { name: 'kubernetes', connected: false, heard: NOW - 49 * MINUTE, error: 'connection refused' }
  recorder.record(source.status())
  passes(NOW - 49 * MINUTE)
  set({ store: away, degraded: ['kubernetes does not answer: connection refused'] })
  passes(NOW - 46 * MINUTE)
  set({ store: { name: 'kubernetes', connected: true, heard: now }, degraded: [] })
  passes(NOW - 31 * MINUTE)
  for (let i = 1; i <= 7; i++) {
    set({ repairs: [{ at: now, what: 'route 10.244.41.0/24' }], kinds: kindsFor(peers.length - fresh.size, i) })
    now += 4 * SECOND
  }
  passes(NOW - 12 * MINUTE)
  for (const from of ['batch/report-29381 (10.244.7.24)', 'frontend/web-6c7d-2kqxv (10.244.7.25)']) {
    recorder.refused(
      `dropped TCP ${from} → payments/ledger-0 (10.244.7.31) port 5432: payments/default-deny isolates payments/ledger-0 for ingress, and no rule allows it`,
    )
    recorder.record(source.status())
    now += 21 * SECOND
  }
  passes(NOW - 9 * MINUTE)
  set({ peers: peers.map((peer) => (fresh.has(peer.node ?? '') ? silent(peer) : peer)), kinds: kindsFor(98, 7) })
  set({ degraded: ['no answer over the overlay from worker-c-32 and worker-c-33'] })
  passes(NOW - 8 * MINUTE)
  set({ findings: [finding], degraded: [sentenceOf(finding), ...source.status().degraded] })
  passes(NOW)
  set({ store: { name: 'kubernetes', connected: true, heard: NOW - 400 } })
  Object.assign(source, {
    recorder,
    policyMatrix: () => atOnce(matrixOf(known)),
    policyCell: (from: string, to: string) => atOnce(cellOf(known, from, to)),
    pod: (name: string) => detail(known, name),
    pods: () => {
      pods.asked++
      if (pods.state === 'held') return new Promise(() => {})
      const views = podViews(known, pods.state === 'later' ? 1 : 0)
      if (pods.state === 'later') pods.state = 'held'
      return Promise.resolve(views)
    },
  })
  return {
    source,
    hold: () => {
      pods.state = 'held'
    },
    release: () => {
      pods.state = 'later'
    },
    get asked() {
      return pods.asked
    },
  }
}

/** 21 nodes. One is dead for all others, and packets from one to another one are lost one way. */
export function fleetScene(): Fleet {
  const [dead, from, to] = ['worker-b-06', 'worker-a-03', 'worker-c-05']
  const all = zoned(7)
  const known = all.map(({ node: name = '', zone = '', subnets }) => {
    const peers = all
      .filter(({ node }) => node !== name)
      .map((peer) => (peer.node === dead || (name === from && peer.node === to) ? silent(peer) : peer))
    const lost = peers.filter(({ probe }) => probe?.state === 'silent').map(({ node }) => node)
    const degraded = [`no answer over the overlay from ${lost.join(' and ')}`]
    const source = scripted({ node: name, version: '0.2.0', started: NOW - DAY, zone, subnets, peers, degraded })
    const failure = name === dead ? { why: 'no answer within 5 s', since: NOW - 3 * MINUTE } : undefined
    return knownOf({ name, zone, ip: '127.0.0.1', source }, NOW, failure)
  })
  return judge(known, NOW)
}

// So many nodes in each zone.
function zoned(count: number): Peer[] {
  return ZONES.flatMap(({ letter, zone, net }, z) =>
    Array.from({ length: count }, (_, i): Peer => {
      const [n, all] = [i + 1, z * count + i + 1]
      const far = letter === 'a' ? 0.18 : 0.9
      const slow = (z === 1 && n === 5) || (z === 2 && n === 19) ? 14 : 1
      return {
        node: `worker-${letter}-${String(n).padStart(2, '0')}`,
        zone,
        version: '0.2.0',
        subnets: { v4: parseCidr(`10.244.${all}.0/24`), v6: parseCidr(`2001:db8:244:${all.toString(16)}::/64`) },
        ips: { v4: parseIp(`${net}.${n}`) },
        backend: 'vxlan',
        probe: {
          state: 'answers',
          sent: 10,
          lost: slow > 1 ? 1 : 0,
          ms: slow * (far + ((n * 37) % 17) / (letter === 'a' ? 50 : 25)),
        },
      }
    }),
  )
}

function kindsFor(peers: number, repaired: number): Status['kinds'] {
  const same = (count: number, repairs = 0) => ({ wanted: count, programmed: count, repaired: repairs })
  return { link: same(2), addr: same(3), route: same(2 * peers, repaired), tunnel: same(2 * peers), nft: same(9) }
}

// The words of the doctor about a node whose table of IPv4 neighbours is full.
function fullTable(): Finding {
  const facts = {
    sysctl: () => '1024',
    counters: { values: new Map([['arp_cache.entries', 1024]]), growth: new Map([['arp_cache.table_fulls', 31]]) },
    uncountedNeighbours: () => 0,
  }
  const { code, title, severity } = neighbourTable
  const [seen] = neighbourTable.detect(facts as unknown as Facts)
  if (!seen) throw new Error(`${code} finds nothing`)
  return { code, title, severity, text: `${seen.what}: ${seen.effect}`, commands: seen.commands }
}

function countOf(known: PolicyKnowledge, side: 'ingress' | 'egress'): number {
  return summaries(known).filter((pod) => pod[side].length > 0).length
}

/** The pods of the node, with the bytes of a second that they send and receive. */
const PODS = [
  ['batch/report-29381', 'report', 0, 1200],
  ['frontend/web-6c7d-2kqxv', 'web', 4_100_000, 610_000],
  ['frontend/web-6c7d-9hw5t', 'web', 3_900_000, 580_000],
  ['kube-system/coredns-5d78c-ld2fx', 'dns', 21_000, 9800],
  ['kube-system/metrics-server-0', 'metrics', 3300, 18_000],
  ['monitoring/prometheus-0', 'prometheus', 94_000, 1_730_000],
  ['payments/api-7f9b4-qk8zn', 'api', 230_000, 310_000],
  ['payments/ledger-0', 'ledger', 190_000, 74_000],
  ['shop/cart-84c5f-6bmtd', 'cart', 720_000, 950_000],
  ['shop/cart-84c5f-xr7pl', 'cart', 690_000, 910_000],
  ['shop/catalog-0', 'catalog', 2_400_000, 330_000],
] as const

function podViews(known: PolicyKnowledge, seconds: number): PodView[] {
  return summaries(known).map(({ pod, addresses, ingress, egress }, i) => {
    const [, , sent = 0, received = 0] = PODS.find(([name]) => name === pod) ?? []
    return {
      pod,
      container: `${i}`.padStart(64, 'c'),
      ifname: 'eth0',
      addresses,
      link: `veth${(0x5a1c3 * (i + 3)).toString(16).slice(0, 8)}`,
      isUp: true,
      sent: 1_000_000 + seconds * sent,
      received: 1_000_000 + seconds * received,
      dropped: pod === 'payments/ledger-0' ? 2 : 0,
      hostPorts: [],
      ingress,
      egress,
      isClosed: false,
    }
  })
}

// The namespaces of a shop. Its payments take packets of the shop alone, and all are measured.
function policies(): PolicyKnowledge {
  const spaces = new Set(PODS.map(([name]) => name.split('/')[0] as string))
  const namespaces = new Map(
    [...spaces].map((name) => [
      name,
      namespaceOf({ metadata: { name, labels: { 'kubernetes.io/metadata.name': name } } }),
    ]),
  )
  const pods = new Map<string, Pod>()
  for (const [i, [key, app]] of PODS.entries()) {
    const [namespace, name] = key.split('/')
    const pod = podOf({
      metadata: { namespace, name, labels: { app } },
      spec: { nodeName: NODE, containers: [] },
      status: { podIPs: [{ ip: `10.244.7.${24 + i}` }] },
    })
    if (pod) pods.set(key, pod)
  }
  const from = (name: string) => ({ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': name } } })
  const policy = (namespace: string, name: string, spec: object) =>
    [`${namespace}/${name}`, policyOf({ metadata: { namespace, name }, spec: { podSelector: {}, ...spec } })] as const
  const metrics = { from: [from('monitoring')], ports: [{ port: 9100 }] }
  const all = new Map([
    policy('payments', 'default-deny', { policyTypes: ['Ingress', 'Egress'] }),
    policy('payments', 'from-shop', { ingress: [{ from: [from('shop')], ports: [{ port: 8443 }] }, metrics] }),
    policy('payments', 'to-dns', { policyTypes: ['Egress'], egress: [{ to: [from('kube-system')] }] }),
    policy('shop', 'from-frontend', {
      ingress: [{ from: [from('frontend')], ports: [{ port: 8080 }] }, { from: [{ podSelector: {} }] }, metrics],
    }),
    policy('monitoring', 'closed', { policyTypes: ['Ingress'] }),
    policy('batch', 'dns-only', {
      policyTypes: ['Ingress', 'Egress'],
      egress: [{ to: [from('kube-system')], ports: [{ protocol: 'UDP', port: 53 }] }],
    }),
  ])
  const cluster = { ...noObjects(), namespaces, pods, policies: all }
  return { cluster, state: compile(cluster, NODE), subnets: [], isAudit: false }
}
