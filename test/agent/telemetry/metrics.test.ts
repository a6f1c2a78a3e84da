// lane: quick
// Tests agent/telemetry.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { PROBE_BUCKETS } from '../../../agent/backend/probes.ts'
import { noDurations, withDuration } from '../../../agent/scheduler/durations.ts'
import { BUCKETS, PROGRAMMING_BUCKETS, type Status, SYNC_BUCKETS } from '../../../agent/state/status.ts'
import type { Additions } from '../../../agent/telemetry/metric.ts'
import { metrics } from '../../../agent/telemetry/metrics.ts'
import { METRICS } from '../../../agent/telemetry/table.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { viewsOfPage } from '../../../scripts/docs.ts'
import { exposition, value } from '../../support/exposition.ts'
import { peers, scripted } from '../../support/scripted.ts'

const usage = { rssBytes: 50_000_000, virtualBytes: 90_000_000, cpuSeconds: 1.25, openFiles: 12, mostFiles: 1024 }

// Every answer that a test reads has the types and labels of the table.
function read(change: Partial<Status> = {}, now = Date.now(), additions: Additions = {}) {
  const found = exposition(metrics(scripted(change).status(), usage, now, additions))
  for (const [name, { type, samples }] of found) {
    const row = METRICS.find((one) => one.name === name)
    assert.equal(type, row?.type, name)
    for (const { labels } of samples)
      assert.deepEqual(
        Object.keys(labels).filter((one) => one !== 'le'),
        row?.labels ?? [],
        name,
      )
  }
  return found
}

describe('metrics()', () => {
  it('each has a row in docs/, and a place on the page or the reason why not', async () => {
    const root = join(import.meta.dir, '../../..')
    const views = (await viewsOfPage()).map(({ key }) => key)
    const sources = [...new Glob('agent/{page,state}/*.{ts,tsx}').scanSync({ cwd: root })]
      .map((file) => readFileSync(join(root, file), 'utf8'))
      .join('\n')
    const top = readFileSync(join(root, 'cli/top/node-view.ts'), 'utf8')
    assert.ok(METRICS.length > 60)
    for (const { name, docs, shown } of METRICS) {
      const page = readFileSync(join(root, `docs/${docs.page}.md`), 'utf8')
      assert.match(page, new RegExp(`^\\| \`${name}\` .*\\| \\S`, 'm'), `docs/${docs.page}.md has no row of ${name}`)
      if ('not' in shown) assert.match(shown.not, /\w+ \w+/, `${name} has no reason`)
      else {
        assert.ok(shown.on === 'top' || views.includes(shown.on), `${name}: the page has no view ${shown.on}`)
        const words = shown.on === 'top' ? top : sources
        assert.ok(words.includes(shown.as), `${name}: nothing says ${JSON.stringify(shown.as)} there`)
      }
    }
  })
  it('tells of connections, pools, drops, certificates, requests, fights and the times of answers', () => {
    const figures = {
      conntrack: { entries: 90, limit: 100, insertFailed: 3, dropped: 4 },
      reversePathDrops: 5,
      pools: [{ family: 'ipv4' as const, reserved: 250, free: 3 }],
      certificates: [{ server: 'etcd' as const, role: 'client' as const, expires: 1_700_000_000_000 }],
    }
    const probes = { count: 3, sum: 0.5, buckets: PROBE_BUCKETS.map((le) => (le < 0.1 ? 1 : 3)) }
    const requests = new Map([
      ['200', 7],
      ['none', 2],
    ])
    const found = read({ fightCount: 2, probes }, Date.now(), { figures, requests })
    assert.deepEqual(
      [
        value(found, 'plumb_conntrack_entries') / value(found, 'plumb_conntrack_limit'),
        value(found, 'plumb_conntrack_insert_failed_total'),
        value(found, 'plumb_conntrack_dropped_total'),
        value(found, 'plumb_reverse_path_drops_total'),
        value(found, 'plumb_pool_addresses', { family: 'ipv4', state: 'reserved' }),
        value(found, 'plumb_pool_addresses', { family: 'ipv4', state: 'free' }),
        value(found, 'plumb_certificate_expires_timestamp_seconds', { server: 'etcd', role: 'client' }),
        value(found, 'plumb_api_requests_total', { code: '200' }),
        value(found, 'plumb_api_requests_total', { code: 'none' }),
        value(found, 'plumb_fights'),
        value(found, 'plumb_peer_probe_duration_seconds_bucket', { le: '0.05' }),
        value(found, 'plumb_peer_probe_duration_seconds_count'),
      ],
      [0.9, 3, 4, 5, 250, 3, 1_700_000_000, 7, 2, 2, 1, 3],
    )
  })
  it('tells whether the card computes the checksums of tunnelled packets, and nothing where the kernel decides', () => {
    const { uplink } = scripted().status()
    const told = (isOn?: boolean) => {
      const checksumOffload = { why: '', ...(isOn !== undefined && { isOn }) }
      const found = read({ uplink: { ...(uplink as NonNullable<typeof uplink>), checksumOffload } })
      return found.get('plumb_tunnel_checksum_offload')?.samples.map((one) => one.value)
    }
    assert.deepEqual([told(true), told(false), told()], [[1], [0], undefined])
  })
  it('tells the MTU of routes to nodes whose path is narrow: the smallest of both families', () => {
    const all = peers(3).map((peer, i) => (i === 1 ? { ...peer, routeMtu: { v4: 1354, v6: 1334 } } : peer))
    const found = read({ peers: all }).get('plumb_peer_route_mtu_bytes')?.samples ?? []
    assert.deepEqual(
      found.map((one) => one.value),
      [1334],
    )
  })
  it('has at most 2,000 series at 1,000 peers: those of the worst, unless all are wanted', () => {
    const all = peers(1000).map((peer, i) => ({
      ...peer,
      handshakeAge: i,
      probe: {
        state: 'answers' as const,
        sent: 10,
        lost: i % 20 === 7 ? 3 : 0,
        ms: i === 500 ? 900 : 0.4,
        mtu: 1450 - (i % 500),
      },
    }))
    const sessions = all.map(({ node = '' }, i) => ({
      kind: 'node' as const,
      name: node,
      address: parseIp(`192.0.${i >> 8}.${i & 255}`),
      asn: 64_512,
      state: i === 999 ? 'Active' : 'Established',
      received: 1,
      sent: 1,
    }))
    const bgp = { asn: 64_512, pid: 1, restarts: 0, announced: 1, sessions }
    const programming = noDurations(PROGRAMMING_BUCKETS)
    const sync = { took: noDurations(SYNC_BUCKETS), doneAt: 1, queuedAt: 1, services: 0, slices: 0 }
    const services = { services: 1, frontends: 1, endpoints: 1, programming, forgotten: 0, sync }
    const probes = { count: 0, sum: 0, buckets: PROBE_BUCKETS.map(() => 0) }
    const change = { peers: all, bgp, services, probes }
    const count = (found: ReturnType<typeof read>) =>
      found
        .values()
        .toArray()
        .reduce((sum, { samples }) => sum + samples.length, 0)
    const few = read(change)
    assert.ok(count(few) <= 2000, `${count(few)}`)
    const losses = few.get('plumb_peer_probe_loss_ratio')?.samples ?? []
    assert.deepEqual([losses.length, losses.filter((one) => one.value > 0).length], [100, 50])
    assert.equal(value(few, 'plumb_peer_round_trip_seconds', { node: 'node-501' }), 0.9)
    const sizes = few.get('plumb_peer_mtu_bytes')?.samples ?? []
    assert.deepEqual([sizes.length, Math.max(...sizes.map((one) => one.value))], [100, 1000])
    assert.equal(value(few, 'plumb_mtu_bytes'), 1450)
    assert.equal(value(few, 'plumb_wireguard_handshake_age_seconds', { node: 'node-1000' }), 999)
    assert.equal(value(few, 'plumb_bgp_session_up', { peer: 'node-1000' }), 0)
    assert.equal(value(few, 'plumb_bgp_sessions', { state: 'established' }), 999)
    const every = read(change, Date.now(), { isPerPeer: true })
    assert.equal(every.get('plumb_peer_probe_loss_ratio')?.samples.length, 1000)
    assert.equal(every.get('plumb_peer_mtu_bytes')?.samples.length, 1000)
    assert.equal(every.get('plumb_bgp_session_up')?.samples.length, 1000)
  })
  it('has the families that dashboards for kube-proxy ask for, with kube-proxy’s bounds', () => {
    const took = withDuration(withDuration(noDurations(SYNC_BUCKETS), 0.003, SYNC_BUCKETS), 20, SYNC_BUCKETS)
    const programming = withDuration(noDurations(PROGRAMMING_BUCKETS), 0.3, PROGRAMMING_BUCKETS)
    const sync = { took, doneAt: 1_700_000_000_500, queuedAt: 1_700_000_000_250, services: 3, slices: 4 }
    const counts = { services: 1, frontends: 1, endpoints: 1, forgotten: 0 }
    const found = read({ services: { ...counts, programming, sync } })
    const prefix = 'kubeproxy_sync_proxy_rules'
    assert.equal(value(found, `${prefix}_last_timestamp_seconds`), 1_700_000_000.5)
    assert.equal(value(found, `${prefix}_last_queued_timestamp_seconds`), 1_700_000_000.25)
    assert.equal(value(found, `${prefix}_service_changes_total`), 3)
    assert.equal(value(found, `${prefix}_endpoint_changes_total`), 4)
    const within = (name: string, le: string) => found.get(name)?.samples.find((one) => one.labels['le'] === le)?.value
    const [duration, latency] = [`${prefix}_duration_seconds`, 'kubeproxy_network_programming_duration_seconds']
    assert.deepEqual(
      ['0.002', '0.004', '16.384', '+Inf'].map((le) => within(duration, le)),
      [0, 1, 1, 2],
    )
    assert.deepEqual(
      ['0.25', '0.5', '300'].map((le) => within(latency, le)),
      [0, 1, 1],
    )
    // Nothing was brought to the kernel yet: no time is told.
    const none = read({ services: { ...counts, programming, sync: { took, services: 0, slices: 0 } } })
    assert.equal(none.has(`${prefix}_last_timestamp_seconds`), false)
  })
  it('is valid exposition text with leases, wanted, programmed, repairs, steps, store and last error', () => {
    const at = 1_700_000_000_500
    const found = read({
      peers: peers(3),
      lastError: { at, what: 'x' },
      store: { name: 'etcd', connected: true, heard: at },
    })
    assert.deepEqual(
      [...found.keys()],
      METRICS.flatMap(({ name }) => (found.has(name) ? name : [])),
    )
    assert.ok(found.size > 20 && !found.has('plumb_services') && !found.has('plumb_bgp_running'))
    assert.deepEqual(
      [
        value(found, 'plumb_leases'),
        value(found, 'plumb_objects_wanted', { kind: 'route' }),
        value(found, 'plumb_objects_programmed', { kind: 'route' }),
        value(found, 'plumb_repairs_total', { kind: 'route' }),
        value(found, 'plumb_last_error_timestamp_seconds'),
        value(found, 'plumb_store_last_heard_timestamp_seconds', { store: 'etcd' }),
        value(found, 'process_resident_memory_bytes'),
        value(found, 'process_cpu_seconds_total'),
      ],
      [4, 6, 6, 2, at / 1000, at / 1000, 50_000_000, 1.25],
    )
    assert.deepEqual(found.get('plumb_build_info')?.samples[0]?.labels, {
      version: '0.1.0',
      runtime: `bun ${Bun.version}`,
    })
  })
  it('counts this node among the leases once it has a subnet, and peers by whether they are reachable', () => {
    const found = read({
      subnets: {},
      peers: peers(5).map((peer, i) => (i === 4 ? { ...peer, problem: 'not on a link' } : peer)),
      ready: false,
    })
    assert.deepEqual(
      [
        value(found, 'plumb_leases'),
        value(found, 'plumb_peers', { state: 'reachable' }),
        value(found, 'plumb_peers', { state: 'unreachable' }),
        value(found, 'plumb_ready'),
      ],
      [5, 4, 1, 0],
    )
  })
  it('counts a silent peer as away, not as silent, when Kubernetes has no news of it', () => {
    const [one, two] = peers(2)
    assert.ok(one && two)
    const probe = { state: 'silent', sent: 10, lost: 10 } as const
    const found = read({
      peers: [
        { ...one, probe, isAway: true },
        { ...two, probe },
      ],
    })
    const states = ['reachable', 'silent', 'away', 'unknown'] as const
    assert.deepEqual(
      states.map((state) => value(found, 'plumb_peers', { state })),
      [0, 1, 1, 0],
    )
  })
  it('gives loss and round trip by node, one sample each, the worse of two leases of a node', () => {
    const [one, two] = peers(2)
    assert.ok(one && two)
    const probe = { state: 'silent', sent: 10, lost: 4, ms: 2 } as const
    const found = read({ peers: [one, { ...two, node: 'node-1', probe }] })
    assert.deepEqual(found.get('plumb_peer_probe_loss_ratio')?.samples.length, 1)
    assert.deepEqual(
      [
        value(found, 'plumb_peer_probe_loss_ratio', { node: 'node-1' }),
        value(found, 'plumb_peer_round_trip_seconds', { node: 'node-1' }),
      ],
      [0.4, 0.002],
    )
    assert.deepEqual(
      [value(found, 'plumb_peers', { state: 'reachable' }), value(found, 'plumb_peers', { state: 'silent' })],
      [1, 1],
    )
  })
  it('says whether the node is ready, and whether it is degraded', () => {
    const both = (change: Partial<Status>) => [
      value(read(change), 'plumb_ready'),
      value(read(change), 'plumb_degraded'),
    ]
    assert.deepEqual(
      [both({}), both({ degraded: ['x'] }), both({ ready: false, degraded: ['x'] })],
      [
        [1, 0],
        [1, 1],
        [0, 0],
      ],
    )
  })
  it('lag is 0 while the store answers, and else since it was last heard of, or since the start', () => {
    const now = 2_000_000
    const lag = (store: Omit<Status['store'], 'name'>) =>
      value(read({ started: 1_900_000, store: { name: 'file', ...store } }, now), 'plumb_store_lag_seconds', {
        store: 'file',
      })
    assert.deepEqual(
      [
        lag({ connected: true, heard: 1_000_000 }),
        lag({ connected: false, heard: 1_960_000 }),
        lag({ connected: false }),
        lag({ connected: false, heard: 3_000_000 }),
      ],
      [0, 40, 100, 0],
    )
  })
  it('gives the histogram its bounds, +Inf, sum and count', () => {
    const buckets = BUCKETS.map((_, i) => i)
    const found = read({ steps: { count: 20, sum: 3.5, buckets } })
    for (const [i, le] of BUCKETS.entries())
      assert.equal(value(found, 'plumb_step_duration_seconds_bucket', { le: String(le) }), i)
    assert.deepEqual(
      [
        value(found, 'plumb_step_duration_seconds_bucket', { le: '+Inf' }),
        value(found, 'plumb_step_duration_seconds_sum'),
        value(found, 'plumb_step_duration_seconds_count'),
      ],
      [20, 3.5, 20],
    )
  })
  it('escapes label values, and leaves out families without samples', () => {
    const name = 'a "b" \\ c\nd'
    const found = read({ store: { name, connected: false }, kinds: {} })
    assert.equal(value(found, 'plumb_store_connected', { store: name }), 0)
    assert.equal(found.has('plumb_objects_wanted'), false)
  })
  it('is read by a reader that refuses what is no exposition', () => {
    const good = '# HELP a A.\n# TYPE a gauge\na{b="c"} 1\n'
    assert.equal(value(exposition(good), 'a', { b: 'c' }), 1)
    for (const [from, to] of [
      ['1\n', '1'],
      ['# HELP a A.\n', ''],
      ['a{b="c"} 1', 'a{b="c"} one'],
      ['a{b="c"} 1', 'b 1'],
      ['a{b="c"} 1', 'a{b="c"} 1\na{b="c"} 2'],
      ['b="c"', 'b="c'],
      ['b="c"', 'b="c",b="d"'],
      ['gauge', 'counter'],
      ['gauge', 'histogram'],
    ] as const)
      assert.throws(() => exposition(good.replace(from, to)), Error, to)
  })
})
