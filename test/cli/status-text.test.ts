// lane: quick
// Tests cli/status.ts and cli/leases.ts: their text for a given status.
import assert from 'node:assert/strict'
import { leasesText } from '../../cli/leases.ts'
import { statusText } from '../../cli/status.ts'
import { peers, scripted } from '../support/scripted.ts'

const MIN = 60_000
const HOUR = 60 * MIN

describe('plumb status and plumb leases, as text', () => {
  const now = 10 * HOUR
  const base = {
    started: 7 * HOUR,
    store: { name: 'etcd', connected: true, heard: now - 2000 },
    repairs: [{ at: now - MIN, what: 'route 10.64.2.0/24 was gone, made again' }],
  }

  it('a node that is ready', () => {
    const text = statusText(scripted(base).status(), now)
    assert.equal(
      text,
      `node-0 is ready

agent     plumb 0.1.0, up 3 h
subnets   10.64.0.0/24, fd00:64::/64 of 10.64.0.0/12, fd00:64::/48
backend   vxlan, MTU of pods 1450
uplink    eth0: eth0 has the default route, 192.0.2.1 is its first address
store     etcd, connected, heard of 2 s ago
peers     3
policy    not enforced by this agent (--network-policy)
services  not served by this agent (--service-proxy)
drift     none
steps     120: half within 2.5 ms, 99 % within 50 ms

KIND    WANTED  PROGRAMMED  REPAIRED
link    1       1           0
addr    2       2           0
route   6       6           2
tunnel  3       3           1
nft     4       4           0
all     16      16          3

last repairs:
  1 min ago  route 10.64.2.0/24 was gone, made again`,
    )
  })
  it('a node that is not says why, and a peer that is not on-link is named with the reason', () => {
    const [one, two] = peers(2)
    assert.ok(one && two)
    const { status } = scripted({
      ...base,
      ready: false,
      reasons: ['2 routes are missing', 'the store has not been heard of'],
      peers: [two, { ...one, problem: '198.51.0.1 is not on a link of this node' }],
      kinds: { route: { wanted: 4, programmed: 2, repaired: 0 } },
      lastError: { at: now - 3000, what: 'RTNETLINK answers: Operation not permitted' },
      unreadable: 1,
    })
    const text = statusText(status(), now)
    assert.match(text, /^node-0 is not ready:\n {2}2 routes are missing\n {2}the store has not been heard of\n\n/)
    assert.match(text, /^peers +2, 1 unreachable \(see: plumb leases\), 1 more that cannot be read$/m)
    assert.match(text, /^drift +2 of 4 not as wanted$/m)
    assert.match(text, /^error +3 s ago: RTNETLINK answers: Operation not permitted$/m)
    assert.equal(
      leasesText(status()),
      `NODE    SUBNETS                       ADDRESSES   BACKEND  STATE
node-0  10.64.0.0/24, fd00:64::/64    192.0.2.1   vxlan    this node
node-1  10.64.1.0/24, fd00:64:1::/64  198.51.0.1  vxlan    unreachable: 198.51.0.1 is not on a link of this node
node-2  10.64.2.0/24, fd00:64:2::/64  198.51.0.2  vxlan    reachable, 0.40 ms
1 more cannot be read: the agent’s log names them`,
    )
  })
  it('policy and Services have a line each; a kind without an object has none', () => {
    const none = { count: 0, sum: 0, buckets: [] }
    const policy = {
      policies: 2,
      clusterPolicies: 1,
      pods: 30,
      selected: { ingress: 5, egress: 1 },
      closed: 1,
      refused: 0,
      steps: none,
    }
    const sync = { took: none, services: 0, slices: 0 }
    const services = { services: 45, frontends: 60, endpoints: 120, programming: none, forgotten: 0, sync }
    const kinds = {
      route: { wanted: 4, programmed: 4, repaired: 0 },
      tunnel: { wanted: 0, programmed: 0, repaired: 0 },
    }
    const text = statusText(scripted({ ...base, policy, services, kinds }).status(), now)
    assert.match(
      text,
      /^policy +3 policies for 30 pods: 5 isolated for ingress, 1 for egress; all packets of 1 pod are refused, unknown to the API$/m,
    )
    assert.match(text, /^services +45 Services at 60 addresses and ports, 120 endpoints$/m)
    assert.match(text, /^route +4 +4 +0$/m)
    assert.doesNotMatch(text, /^tunnel/m)
  })
  it('a node that has nothing yet', () => {
    const { status } = scripted({
      ...base,
      ready: false,
      subnets: {},
      network: {},
      peers: [],
      uplink: undefined,
      kinds: {},
      repairs: [],
      steps: { count: 0, sum: 0, buckets: [] },
    })
    assert.match(
      statusText(status(), now),
      /^node-0 is not ready:\n {2}the first full sync is not done\n\n.*\nsubnets +- of -\n/s,
    )
    assert.equal(leasesText(status()), 'no node has a lease that the agent knows of')
  })
})
