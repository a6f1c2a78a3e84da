// lane: quick
// Tests cli/trace/oracle.ts.
import assert from 'node:assert/strict'
import type { Link } from '../../../agent/doctor/facts/links.ts'
import type { Chain } from '../../../agent/doctor/facts/ruleset.ts'
import type { Outcomes } from '../../../cli/trace/hops.ts'
import { type Attempt, foresee, type Local, type Routed, type TraceFacts } from '../../../cli/trace/oracle.ts'
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
  it('why there is no route: forwarding of all links or of one, reverse path filter, a route that refuses, none', () => {
    const last = (errno: number, zero?: string, plain: Routed = { dev: 'eth0', type: 'unicast' }) =>
      lines(
        foresee(
          attempt(OUT),
          facts({
            sysctl: (name) => (name === zero ? '0' : '1'),
            route: (at, _to, from) => {
              if (at === 'sender') return { dev: 'eth0', type: 'unicast' }
              return from === undefined ? plain : { errno }
            },
          }),
        ),
      ).at(-1)
    assert.equal(last(113, 'ipv4/ip_forward'), 'LOST route: the node does not forward: net.ipv4.ip_forward is 0')
    assert.equal(
      last(113, 'ipv4/conf/cni0/forwarding'),
      'LOST route: the node does not forward: net.ipv4.conf.cni0.forwarding is 0',
    )
    for (const [errno, type] of [
      [13, 'prohibit'],
      [22, 'blackhole'],
      [113, 'unreachable'],
    ] as const)
      assert.equal(last(errno, undefined, { errno }), `LOST route: the node has a route of type ${type} to 192.0.2.9`)
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
