// lane: quick
// Tests cli/trace: the oracle over facts, what is seen, the packet and the messages of the kernel.
import assert from 'node:assert/strict'
import type { Link } from '../../../agent/doctor/facts/links.ts'
import type { Chain } from '../../../agent/doctor/facts/ruleset.ts'
import { question, read } from '../../../cli/trace/far-lines.ts'
import { compare, type Outcomes } from '../../../cli/trace/hops.ts'
import { type Attempt, foresee, type Local, type TraceFacts } from '../../../cli/trace/oracle.ts'
import { conditionsOf, headersOf, type Probe, packetOf } from '../../../cli/trace/packet.ts'
import { observe } from '../../../cli/trace/seen.ts'
import type { Sight } from '../../../cli/trace/sights.ts'
import { dropsIn, dropsOf } from '../../../lib/os/drop-reasons.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const [A, B, C, OUT, NODE] = ['10.1.0.2', '10.1.0.3', '10.2.0.2', '192.0.2.9', '10.1.0.1'] as Ip[] as [
  Ip,
  Ip,
  Ip,
  Ip,
  Ip,
]

function link(name: string, more: Partial<Link> = {}): Link {
  return { name, kind: 'veth', mtu: 1450, isUp: true, hasCarrier: true, addresses: [], ...more }
}

function chain(table: string, hook: string, more: Partial<Chain> = {}): Chain {
  return { family: 'inet', table, name: hook, hook, type: 'filter', policy: 'accept', rules: [], ...more }
}

/** A node with the pods A and B on the bridge cni0. C is a pod of node n2, by flannel.1. */
function facts(more: Partial<TraceFacts> = {}): TraceFacts {
  const pod = (name: string): Local => ({ isNode: false, link: name, listens: (_, port) => port === 80 })
  const here = new Map<Ip, Local>([
    [A, pod('va')],
    [B, pod('vb')],
    [NODE, { isNode: true, listens: () => false }],
  ])
  return {
    links: [
      link('cni0', { kind: 'bridge' }),
      link('va', { master: 'cni0' }),
      link('vb', { master: 'cni0' }),
      link('flannel.1', { kind: 'vxlan' }),
      link('eth0', { kind: '' }),
    ],
    chains: [],
    sysctl: () => '1',
    route(at, to) {
      if (at === 'sender') return { dev: 'eth0', type: 'unicast', ...(to === B ? {} : { via: NODE }) }
      if (to === NODE) return { dev: 'lo', type: 'local' }
      if (to === B || to === A) return { dev: 'cni0', type: 'unicast' }
      return to === C ? { dev: 'flannel.1', type: 'unicast', via: '10.2.0.0' as Ip } : { dev: 'eth0', type: 'unicast' }
    },
    at: (ip) => here.get(ip),
    services: undefined,
    decision: undefined,
    peer: (ip) => (ip === C ? { name: 'n2' } : undefined),
    networks: ['10.0.0.0/8'],
    ...more,
  }
}

const attempt = (destination: Ip, more: Partial<Attempt> = {}): Attempt => ({
  protocol: 'TCP',
  source: A,
  destination,
  port: 80,
  ...more,
})
const lines = (outcomes: Outcomes) =>
  [...outcomes].map(([hop, { passes, says }]) => `${passes ? '' : 'LOST '}${hop}${says === '' ? '' : `: ${says}`}`)

describe('foresee()', () => {
  it('a pod of the same bridge: across the bridge, and whether a program listens', () => {
    assert.deepEqual(lines(foresee(attempt(B), facts())), [
      'sender: by eth0',
      'link: va, a port of cni0',
      'route: by cni0',
      'exit: by vb',
      'receiver: a program listens on TCP port 80',
    ])
    assert.equal(
      lines(foresee(attempt(B, { port: 81 }), facts())).at(-1),
      'LOST receiver: no program listens on TCP port 81',
    )
  })
  it('a pod of another node: by the tunnel, to the node of its lease, with its own address', () => {
    const expected = [
      'sender: by eth0 to 10.1.0.1',
      'link: va, a port of cni0',
      'route: by flannel.1 to 10.2.0.0',
      'source: kept',
      'exit: by flannel.1 to node n2',
      'tunnel: to node n2',
    ]
    assert.deepEqual(lines(foresee(attempt(C), facts())), expected)
    const problem = facts({ peer: () => ({ name: 'n2', problem: 'it has another backend' }) })
    assert.equal(
      lines(foresee(attempt(C), problem)).at(-1),
      'LOST exit: by flannel.1 to node n2: it has another backend',
    )
  })
  it('a route that leads elsewhere than the leases say [DR32]', () => {
    const outcome = foresee(attempt(C), facts({ peer: () => ({ name: 'n2', devs: ['eth0'] }) })).get('route')
    assert.equal(outcome?.says, "by eth0: the leases say so, and the kernel's route leads to flannel.1")
    assert.equal(outcome?.key, 'eth0')
  })
  it("the outside: the node's address, where the agent masquerades", () => {
    const chains = [chain('plumb_agent', 'postrouting', { type: 'nat' })]
    assert.ok(lines(foresee(attempt(OUT), facts({ chains }))).includes("source: the node's address"))
    assert.ok(!lines(foresee(attempt(OUT), facts())).some((line) => line.startsWith('source')))
  })
  it('why there is no route: forwarding, reverse path filter, none', () => {
    const last = (errno: number, forward = '1') =>
      lines(
        foresee(
          attempt(OUT),
          facts({
            sysctl: () => forward,
            route: (at) => (at === 'sender' ? { dev: 'eth0', type: 'unicast' } : { errno }),
          }),
        ),
      ).at(-1)
    assert.equal(last(113, '0'), 'LOST route: the node does not forward: net.ipv4.ip_forward is 0')
    assert.equal(last(113), 'LOST route: the node has no route to 192.0.2.9')
    assert.equal(last(101), 'LOST route: the node has no route to 192.0.2.9')
    for (const errno of [18, 22])
      assert.match(last(errno) ?? '', /^LOST route: the reverse path filter of cni0 drops it/)
  })
  it("chains of other programs decide by their rules, and plumb's own do not count as others", () => {
    const drop = (table: string) => facts({ chains: [chain(table, 'forward', { policy: 'drop' })] })
    assert.equal(
      lines(foresee(attempt(C), drop('filter'))).at(-1),
      'LOST rules: the chain inet filter forward drops it (policy drop)',
    )
    assert.ok(!lines(foresee(attempt(C), drop('plumb_policy'))).some((line) => line.includes('rules')))
  })
  it('a Service: its endpoints, the one that the packet took, none at all', () => {
    const vip = '10.96.0.1' as Ip
    const of = (...addresses: string[]) =>
      facts({
        services: [
          {
            namespace: 'x',
            name: 'web',
            notes: [],
            ports: [
              {
                name: '',
                addresses: [`${vip}:80/TCP`],
                endpoints: [
                  ...addresses.map((address) => ({ address, isLocal: true })),
                  { address: '10.9.9.9:80', isLocal: false, leftOut: 'not ready' },
                ],
              },
            ],
          },
        ],
      })
    const two = lines(foresee(attempt(vip, { chosen: { ip: C, port: 80 } }), of(`${B}:80`, `${C}:80`)))
    assert.ok(two.includes('service: x/web → one of 2: 10.1.0.3:80, 10.2.0.2:80'), two.join('\n'))
    assert.equal(two.at(-1), 'tunnel: to node n2')
    assert.equal(lines(foresee(attempt(vip), of(`${B}:80`))).at(-1), 'receiver: a program listens on TCP port 80')
    assert.equal(lines(foresee(attempt(vip), of())).at(-1), 'LOST service: x/web has no endpoint that is ready')
  })
  it('policy: what the agent says of this node; audit mode drops nothing', () => {
    const refused = { passes: false, reason: 'x/deny isolates x/b for ingress, and no rule allows it' }
    const decision = { source: A, destination: B, port: 80, verdict: refused, here: refused, isAudit: false }
    assert.equal(lines(foresee(attempt(B), facts({ decision }))).at(-1), `LOST policy: ${refused.reason}`)
    const audit = lines(foresee(attempt(B), facts({ decision: { ...decision, isAudit: true } })))
    assert.ok(audit.includes(`policy: audit mode lets it pass: ${refused.reason}`))
  })
})

const PROBE: Probe = { protocol: 'TCP', source: A, destination: B, port: 80, sourcePort: 40_001, token: 0x1234_5678 }

describe('packetOf() and headersOf()', () => {
  for (const protocol of ['TCP', 'UDP', 'ICMP'] as const)
    for (const [source, destination] of [
      [A, B],
      ['fd01::2', 'fd01::3'],
    ] as [Ip, Ip][])
      it(`${protocol} from ${source}: the headers are read back, and those of another packet are not`, () => {
        const probe: Probe = { ...PROBE, protocol, source, destination, port: protocol === 'ICMP' ? 0 : 80 }
        const packet = packetOf(probe)
        const size = source === A ? 20 : 40
        const network = new DataView(packet.buffer, 0, size)
        const transport = new DataView(packet.buffer, size, Math.min(20, packet.length - size))
        const ends = { source, destination, direction: 'there' }
        const ports = protocol === 'ICMP' ? { port: 0, sourcePort: 0 } : { port: 80, sourcePort: 40_001 }
        assert.deepEqual(headersOf(probe, network, transport), { ...ends, ...ports })
        assert.equal(headersOf({ ...probe, token: 7 }, network, transport), undefined)
        assert.ok(conditionsOf(probe)[0]?.endsWith(`,32 ${0x1234_5678}`))
      })
})

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

describe('the lines between the halves of a trace', () => {
  it('are read by their shapes: a value that nft would read as more than a value is refused', () => {
    const asked = { probe: PROBE, destinations: [B] }
    assert.deepEqual(read(question, JSON.stringify(asked)), asked)
    for (const wrong of [
      { ...asked, probe: { ...PROBE, token: '1 accept; } }' } },
      { ...asked, probe: { ...PROBE, source: '10.1.0.2; flush ruleset' } },
      { ...asked, probe: { ...PROBE, port: 65_536 } },
      { ...asked, destinations: ['/etc/passwd'] },
      { destinations: [] },
    ])
      assert.throws(() => read(question, JSON.stringify(wrong)), /want a line of the other half of a trace/)
    assert.throws(() => read(question, 'Welcome to n2'), /Cannot read "Welcome to n2"/)
  })
})

describe('dropsOf()', () => {
  it('reads the reasons for packets that came in by a link in one size, also by a bridge, and for no others', () => {
    const line = (at: number, text: string) => `  ksoftirqd/0-9  [000] ..s1.  ${at.toFixed(6)}: ${text}`
    const arrives = (at: number, dev: string, packet: string, len: number) =>
      line(at, `netif_receive_skb: dev=${dev} skbaddr=${packet} len=${len}`)
    const drop = (at: number, packet: string, reason: string) =>
      line(at, `kfree_skb: skbaddr=${packet} rx_sk=0 protocol=2048 location=ip_rcv+0x1/0x2 reason: ${reason}`)
    const text = [
      arrives(1, 'va', 'f1', 84),
      arrives(1.00001, 'br0', 'f1', 84),
      drop(1.00002, 'f1', 'IP_RPFILTER'),
      // The address is used again: by a packet that did not come in, by one of another size, and much later.
      drop(1.00003, 'f1', 'NO_SOCKET'),
      arrives(2, 'va', 'f2', 84),
      arrives(2.00001, 'va', 'f2', 60),
      drop(2.00002, 'f2', 'TC_INGRESS'),
      arrives(3, 'va', 'f3', 84),
      drop(4, 'f3', 'NEIGH_FAILED'),
      arrives(5, 'vb', 'f4', 84),
      drop(5.00001, 'f4', 'IP_CSUM'),
    ].join('\n')
    assert.deepEqual(dropsOf(text, [{ link: 'va', bytes: 84 }]), [{ where: 'ip_rcv', reason: 'IP_RPFILTER' }])
  })
})

describe('dropsIn()', () => {
  it('reads the reason and the function, with and without an offset', () => {
    const text = `# tracer: nop
           plumb-7  [001] b.s31  19.1: tracing_mark_write: plumb-trace-
           plumb-7  [001] b.s31  19.2: kfree_skb: skbaddr=00000000 rx_sk=0 protocol=2048 location=ip_rcv_finish_core+0x1b2/0x420 reason: IP_RPFILTER
           plumb-7  [001] b.s31  19.3: kfree_skb: skbaddr=00000000 protocol=2048 location=tcp_v4_rcv reason: NO_SOCKET\n`
    assert.deepEqual(dropsIn(text), [
      { where: 'ip_rcv_finish_core', reason: 'IP_RPFILTER' },
      { where: 'tcp_v4_rcv', reason: 'NO_SOCKET' },
    ])
  })
})
