// lane: quick
// Tests cli/trace/hops.ts and seen.ts: what was seen of a packet, compared with what was foreseen.
import assert from 'node:assert/strict'
import { compare, type Outcomes } from '../../../cli/trace/hops.ts'
import type { Probe } from '../../../cli/trace/packet.ts'
import { observe } from '../../../cli/trace/seen.ts'
import type { Sight } from '../../../cli/trace/sights.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const [A, B] = ['10.1.0.2' as Ip, '10.1.0.3' as Ip]

const lines = (outcomes: Outcomes) =>
  [...outcomes].map(([hop, { passes, says }]) => `${passes ? '' : 'LOST '}${hop}${says === '' ? '' : `: ${says}`}`)

const PROBE: Probe = { protocol: 'TCP', source: A, destination: B, port: 80, sourcePort: 40_001, token: 0x1234_5678 }

describe('observe() and compare()', () => {
  const sight = (more: Partial<Sight>): Sight => ({
    ...{ place: 'node', family: 'inet', table: 'plumb_trace_1', chain: 'x', verdict: 'accept', direction: 'there' },
    ...{ source: A, destination: B, port: 80, sourcePort: 40_001 },
    ...more,
  })
  const sent = sight({ place: 'source', hook: 'postrouting', oif: 'eth0' })
  const came = sight({ hook: 'prerouting', iif: 'va', family: 'bridge' })
  const evidence = (sights: readonly Sight[], drops: { reason: string; where: string }[] = []) => ({
    probe: PROBE,
    sights,
    drops,
    isNodeSource: false,
    tunnels: ['flannel.1'],
    isTargetWatched: true,
    ruleOf: () => 'ip daddr 10.1.0.3 drop',
  })

  it('says at which hop a packet is lost, by the rule or by the reason of the kernel', () => {
    const refused = sight({ table: 'plumb_policy', chain: 'denied_in', verdict: 'drop', handle: 7n })
    const forward = sight({ hook: 'forward', iif: 'cni0', oif: 'cni0' })
    assert.equal(
      lines(observe(evidence([sent, came, forward, refused]))).at(-1),
      'LOST policy: the chain inet plumb_policy denied_in drops it: ip daddr 10.1.0.3 drop',
    )
    assert.equal(
      lines(observe(evidence([sent, came], [{ reason: 'IP_RPFILTER', where: 'ip_rcv_finish_core' }]))).at(-1),
      'LOST route: the reverse path filter drops it (IP_RPFILTER in ip_rcv_finish_core)',
    )
    const busy = [
      { reason: 'IP_RPFILTER', where: 'ip_rcv_finish_core' },
      { reason: 'TCP_OLD_DATA', where: 'tcp_rcv_established' },
      { reason: 'OTHERHOST', where: 'ip_rcv_core' },
    ]
    assert.match(lines(observe(evidence([sent, came], busy))).at(-1) ?? '', /IP_RPFILTER/)
    assert.equal(lines(observe(evidence([sent]))).at(-1), 'LOST link: it did not reach the node')
    assert.equal(lines(observe(evidence([]))).at(-1), 'LOST sender: it was not sent')
  })
  it('the first hop that differs is named, and hops that only one side knows do not differ', () => {
    const expected: Outcomes = new Map([
      ['sender', { passes: true, says: 'by eth0', key: 'eth0' }],
      ['route', { passes: true, says: 'by flannel.1', key: 'flannel.1' }],
      ['policy', { passes: true, says: 'no policy selects x/a' }],
    ])
    const seen: Outcomes = new Map([
      ['sender', { passes: true, says: 'by eth0', key: 'eth0' }],
      ['link', { passes: true, says: 'va' }],
      ['route', { passes: true, says: 'by tailscale0', key: 'tailscale0' }],
    ])
    const { differsAt, lostAt, hops } = compare(expected, seen)
    assert.deepEqual(
      [differsAt, lostAt, hops.map(({ hop }) => hop)],
      ['route', undefined, ['sender', 'link', 'route', 'policy']],
    )
  })
})
