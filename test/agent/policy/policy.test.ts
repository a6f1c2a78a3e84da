// lane: long
// Tests agent/policy and agent/cluster/objects.ts: each number of NP is a policy whose whole matrix of probes is
// compared with the oracle.
import assert from 'node:assert/strict'
import { inNamespaces } from '../../support/harness.ts'
import { type Fixture, type Links, policyFixture } from '../../support/policy-fixture.ts'

/** The links of the pods of the next test. */
let links: Links = 'bridge'

function withFixture(work: (fixture: Fixture) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node'], async ({ node }, test) => {
    test.timeout(120_000)
    const fixture = await policyFixture(node, links)
    try {
      await work(fixture)
    } finally {
      await fixture.end()
    }
  })
}

const IN = { policyTypes: ['Ingress'] }
const OUT = { policyTypes: ['Egress'] }
const pods = (labels: Readonly<Record<string, string>>) => ({ podSelector: { matchLabels: labels } })
const spaces = (labels: Readonly<Record<string, string>>) => ({ namespaceSelector: { matchLabels: labels } })
const expression = (key: string, operator: string, ...values: string[]) => ({
  matchExpressions: [{ key, operator, ...(values.length > 0 && { values }) }],
})
const tcp = (port: number | string, more: object = {}) => ({ protocol: 'TCP', port, ...more })
const udp = (port: number | string) => ({ protocol: 'UDP', port })
const block = (cidr: string, ...except: string[]) => ({ ipBlock: { cidr, ...(except.length > 0 && { except }) } })
const ingress = (podSelector: object, ...rules: object[]) => ({ podSelector, ...IN, ingress: rules })
const egress = (podSelector: object, ...rules: object[]) => ({ podSelector, ...OUT, egress: rules })
const A = { matchLabels: { pod: 'a' } }

/** Policies of namespace x, by name; each step adds or replaces what it names, and its whole matrix is compared. */
type Step = Readonly<Record<string, object>>
const CASES: readonly (readonly [title: string, ...steps: Step[]])[] = [
  ['default deny of ingress', { deny: { podSelector: {}, ...IN } }],
  ['default deny of both directions', { deny: { podSelector: {}, policyTypes: ['Ingress', 'Egress'] } }],
  ['a pod of the same namespace', { allow: ingress(A, { from: [pods({ pod: 'b' })] }) }],
  [
    'deny all, and allow to one target',
    { deny: { podSelector: {}, ...IN }, allow: ingress(A, { from: [{ podSelector: {} }] }) },
  ],
  ['pods of all namespaces', { allow: ingress(A, { from: [{ namespaceSelector: {} }] }) }],
  ['a namespace by its labels', { allow: ingress(A, { from: [spaces({ ns: 'y' })] }) }],
  ['a pod by an expression', { allow: ingress(A, { from: [{ podSelector: expression('pod', 'In', 'c') }] }) }],
  [
    'a namespace by an expression',
    { allow: ingress(A, { from: [{ namespaceSelector: expression('ns', 'In', 'y') }] }) },
  ],
  ['a pod or a namespace, as two peers', { allow: ingress(A, { from: [spaces({ ns: 'y' }), pods({ pod: 'b' })] }) }],
  [
    'a pod and a namespace, as one peer',
    { allow: ingress(A, { from: [{ ...spaces({ ns: 'y' }), ...pods({ pod: 'b' }) }] }) },
  ],
  [
    'namespaces that are not one, and pods that are',
    {
      allow: ingress(A, {
        from: [{ namespaceSelector: expression('ns', 'NotIn', 'x'), podSelector: expression('pod', 'In', 'b', 'c') }],
      }),
    },
  ],
  ['any of several pods', { allow: ingress(A, { from: [pods({ pod: 'b' }), pods({ pod: 'c' })] }) }],
  [
    'an exact pod of another namespace',
    { allow: ingress(A, { from: [{ ...spaces({ ns: 'y' }), ...pods({ pod: 'a' }) }] }) },
  ],
  [
    'port 81 alone; a policy more opens 80',
    { one: ingress(A, { from: [spaces({ ns: 'y' })], ports: [tcp(81)] }) },
    { two: ingress(A, { from: [spaces({ ns: 'y' })], ports: [tcp(80)] }) },
  ],
  ['allow all', { allow: ingress({}, {}) }],
  [
    'a named port, from all and from a namespace',
    { allow: ingress(A, { ports: [tcp('serve-81-tcp')] }) },
    { allow: ingress(A, { from: [spaces({ ns: 'y' })], ports: [tcp('serve-80-tcp')] }) },
  ],
  [
    'several names and numbers of ports in one rule, for several peers',
    {
      allow: ingress(A, {
        from: [spaces({ ns: 'y' }), pods({ pod: 'b' }), block('10.1.0.30/32')],
        ports: [tcp('serve-80-tcp'), tcp('serve-81-tcp'), udp('serve-80-udp'), udp('serve-81-tcp'), udp(81)],
      }),
    },
    {
      allow: ingress(A, {
        ports: [tcp('serve-80-tcp'), { protocol: 'TCP' }, udp('serve-81-udp'), udp('serve-81-udp')],
      }),
    },
  ],
  ['a named port of egress', { allow: egress(A, { ports: [tcp('serve-80-tcp')] }) }],
  ['a policy that is updated from allow to deny', { one: ingress({}, {}) }, { one: ingress({}) }],
  ['other namespaces are denied by an empty selector of pods', { allow: ingress({}, { from: [{ podSelector: {} }] }) }],
  [
    'egress to one pod, and to one namespace, alone',
    { allow: egress(A, { to: [{ namespaceSelector: {}, ...pods({ pod: 'b' }) }] }) },
    { allow: egress(A, { to: [spaces({ ns: 'y' })] }) },
  ],
  [
    'both directions in one policy',
    {
      both: {
        podSelector: A,
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [pods({ pod: 'b' })] }],
        egress: [{ to: [spaces({ ns: 'z' })] }],
      },
    },
  ],
  [
    'a client that may send to nobody does not reach a server that allows it',
    { server: ingress(A, { from: [pods({ pod: 'b' })] }), client: egress({ matchLabels: { pod: 'b' } }) },
  ],
  [
    'egress to a pod of another namespace',
    { allow: egress(A, { to: [{ ...spaces({ ns: 'y' }), ...pods({ pod: 'a' }) }] }) },
  ],
  [
    'a protocol with all of its ports; UDP opens no TCP',
    { allow: ingress(A, { ports: [{ protocol: 'UDP' }] }) },
    { allow: ingress(A, { ports: [{ protocol: 'TCP' }] }) },
    { allow: ingress(A, { ports: [udp(80)] }) },
  ],
  [
    'a rule that allows all wins over a narrow one, in both directions',
    { narrow: ingress(A, { from: [pods({ pod: 'b' })], ports: [tcp(80)] }) },
    { wide: ingress(A, {}) },
    { out: egress(A, { to: [pods({ pod: 'b' })] }), outWide: egress(A, {}) },
  ],
  [
    'egress to a block of addresses, and to one with an exception',
    { allow: egress(A, { to: [block('10.1.0.20/31')] }) },
    { allow: egress(A, { to: [block('10.1.0.0/24', '10.1.0.20/30')] }) },
  ],
  [
    'an address that one policy allows and another one excepts is allowed',
    { one: egress(A, { to: [block('10.1.0.20/32')] }), two: egress(A, { to: [block('10.1.0.0/24', '10.1.0.20/32')] }) },
  ],
  ['ingress and egress are independent', { in: ingress(A) }, { out: egress({ matchLabels: { pod: 'b' } }) }],
  [
    'a rule for SCTP opens no TCP and no UDP, and isolates all the same',
    { allow: ingress(A, { ports: [{ protocol: 'SCTP', port: 80 }] }) },
  ],
  [
    'a namespace by its name, In and NotIn',
    { allow: ingress(A, { from: [{ namespaceSelector: expression('kubernetes.io/metadata.name', 'In', 'y') }] }) },
    { allow: ingress(A, { from: [{ namespaceSelector: expression('kubernetes.io/metadata.name', 'NotIn', 'y') }] }) },
  ],
  [
    'UDP: denied, by port, by pod and namespace',
    { deny: { podSelector: {}, ...IN } },
    { allow: ingress(A, { ports: [udp(81)] }) },
    { allow: ingress(A, { from: [{ ...spaces({ ns: 'y' }), ...pods({ pod: 'b' }) }], ports: [udp(80)] }) },
  ],
  [
    'SCTP: denied, by port, by pod and namespace',
    { deny: { podSelector: {}, ...IN } },
    { allow: ingress(A, { ports: [{ protocol: 'SCTP', port: 81 }] }) },
    {
      allow: ingress(A, {
        from: [{ ...spaces({ ns: 'y' }), ...pods({ pod: 'b' }) }],
        ports: [{ protocol: 'SCTP', port: 'serve-80-sctp' }],
      }),
    },
  ],
  [
    'a named port of the wrong protocol, a name that nobody serves, a number that nobody serves',
    { allow: ingress(A, { ports: [{ protocol: 'UDP', port: 'serve-80-tcp' }] }) },
    { allow: ingress(A, { ports: [tcp('nobody')] }) },
    { allow: ingress(A, { ports: [tcp(7777)] }) },
  ],
  [
    'a range of ports',
    { allow: ingress(A, { ports: [tcp(79, { endPort: 80 })] }) },
    { allow: ingress(A, { ports: [tcp(80, { endPort: 81 })] }) },
  ],
  [
    'an empty list of peers, an absent one, an empty rule, no rule',
    { one: ingress(A, { from: [], ports: [tcp(80)] }) },
    { one: ingress(A, { ports: [tcp(80)] }) },
    { one: ingress(A, {}) },
    { one: ingress(A) },
  ],
  [
    'the families are separate: a block of IPv6 opens no IPv4',
    { allow: ingress(A, { from: [block('fd01::20/124')] }) },
    { allow: egress(A, { to: [block('::/0', 'fd01::20/127')] }) },
  ],
]

for (const kind of ['bridge', 'routed'] as const)
  describe(`NetworkPolicy in the kernel, pods with links of the kind ${kind}`, () => {
    before(() => {
      links = kind
    })

    for (const [title, ...steps] of CASES)
      it(
        title,
        withFixture(async (fixture) => {
          for (const step of steps) {
            for (const [name, spec] of Object.entries(step)) fixture.policy('x', name.toLowerCase(), spec)
            await fixture.matches()
          }
          // What is deleted leaves nothing.
          fixture.cluster.policies.clear()
          await fixture.sync()
          for (const [from, to] of [
            ['y/b', 'x/a'],
            ['x/a', 'y/b'],
          ] as const)
            assert.ok(await fixture.passes(from, to))
        }),
      )

    it(
      'labels of a namespace and of pods change: at once, and back',
      withFixture(async (fixture) => {
        fixture.policy('x', 'allow', ingress(A, { from: [spaces({ team: 'blue' }), pods({ role: 'client' })] }))
        await fixture.matches()
        fixture.label('y', { ns: 'y', team: 'blue' })
        await fixture.matches()
        fixture.label('x/b', { pod: 'b', role: 'client' })
        await fixture.matches()
        fixture.label('x/c', { pod: 'a' })
        await fixture.matches()
        fixture.label('y', { ns: 'y' })
        fixture.label('x/b', { pod: 'b' })
        fixture.label('x/c', { pod: 'c' })
        await fixture.matches()
      }),
    )

    it(
      'conflicts: by pod and by address, by rule, on both sides',
      withFixture(async (fixture) => {
        const others = { pod: pods({ pod: 'b' }), address: block(`${fixture.ip('x/b')}/32`) }
        for (const allowed of Object.values(others))
          for (const side of ['ingress', 'egress'] as const) {
            fixture.cluster.policies.clear()
            fixture.policy('x', 'deny', side === 'ingress' ? ingress(A) : egress(A))
            fixture.policy(
              'x',
              'allow',
              side === 'ingress' ? ingress(A, { from: [allowed] }) : egress(A, { to: [allowed] }),
            )
            await fixture.matches()
          }
      }),
    )

    it(
      'nine kinds of peers in two directions, and pairs of them',
      withFixture(async (fixture) => {
        const kinds = [
          pods({ pod: 'b' }),
          { podSelector: {} },
          spaces({ ns: 'y' }),
          { namespaceSelector: {} },
          { ...spaces({ ns: 'y' }), ...pods({ pod: 'b' }) },
          { namespaceSelector: {}, ...pods({ pod: 'b' }) },
          { ...spaces({ ns: 'z' }), podSelector: {} },
          block('10.1.0.20/30'),
          block('10.1.0.0/24', '10.1.0.20/30'),
        ]
        for (const [i, kind] of kinds.entries()) {
          const other = kinds[(i + 4) % kinds.length] as object
          fixture.policy('x', 'in', ingress(A, { from: [kind, other] }))
          fixture.policy('x', 'out', egress(A, { to: [other, kind] }))
          await fixture.matches()
        }
      }),
    )

    it(
      'replies pass whatever the other direction says; the node reaches its pods',
      withFixture(async (fixture) => {
        fixture.policy('x', 'all', {
          podSelector: A,
          policyTypes: ['Ingress', 'Egress'],
          ingress: [{ from: [spaces({ ns: 'y' })] }],
          egress: [],
        })
        await fixture.matches()
        assert.ok(await fixture.passes('y/a', 'x/a'))
        assert.equal(await fixture.passes('x/a', 'y/a'), false)
        const { status } = await fixture.node.exec([
          'timeout',
          '3',
          'bash',
          '-c',
          `exec 3<>/dev/tcp/${fixture.ip('x/a')}/80`,
        ])
        assert.equal(status, 0)
      }),
    )

    it(
      '10,368 generated cases: sixteen random sets of policies, labels and pods, each with its whole matrix',
      withFixture(async (fixture) => {
        const random = numbers(20_260_901)
        for (let round = 0; round < 16; round++) {
          fixture.cluster.policies.clear()
          for (const name of fixture.names)
            fixture.label(name, { pod: name.slice(2), role: random.pick(['client', 'server', 'none']) })
          for (const name of ['x', 'y', 'z']) fixture.label(name, { ns: name, team: random.pick(['red', 'blue']) })
          const count = 1 + random.below(6)
          for (let i = 0; i < count; i++)
            fixture.policy(random.pick(['x', 'y', 'z']), `p-${i}`, randomPolicy(random, fixture))
          await fixture.matches()
        }
      }),
    )
  })

interface Numbers {
  below(limit: number): number
  pick<T>(all: readonly T[]): T
  chance(part: number): boolean
}

// The same numbers in every run (a linear congruential generator, Numerical Recipes).
function numbers(seed: number): Numbers {
  let state = seed
  const below = (limit: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
  return {
    below,
    pick: (all) => all[below(all.length)] as (typeof all)[number],
    chance: (part) => below(1000) < part * 1000,
  }
}

function randomPolicy(random: Numbers, fixture: Fixture): object {
  const { pick, chance, below } = random
  const selector = (): object => {
    if (chance(0.25)) return {}
    if (chance(0.5)) return { matchLabels: { role: pick(['client', 'server']) } }
    return expression('pod', pick(['In', 'NotIn']), ...(chance(0.5) ? ['a'] : ['b', 'c']))
  }
  const home = (): object =>
    chance(0.5)
      ? { matchLabels: { team: pick(['red', 'blue']) } }
      : expression('ns', pick(['In', 'NotIn', 'Exists']), ...[])
  const namespaceSelector = (): object => {
    const found = home() as { matchExpressions?: { operator: string; values?: string[] }[] }
    for (const one of found.matchExpressions ?? []) if (one.operator !== 'Exists') one.values = [pick(['x', 'y', 'z'])]
    return found
  }
  const peer = (): object => {
    const kind = below(4)
    if (kind === 0) return { podSelector: selector() }
    if (kind === 1) return { namespaceSelector: namespaceSelector() }
    if (kind === 2) return { podSelector: selector(), namespaceSelector: namespaceSelector() }
    const address = fixture.ip(pick(fixture.names), pick([4, 6] as const))
    return address.includes(':')
      ? block(`${address}/${pick([128, 124])}`)
      : block(`${address}/${pick([32, 29])}`, ...(chance(0.3) ? [`${address}/32`] : []))
  }
  const port = (): object => {
    const kind = below(5)
    const protocol = pick(['TCP', 'UDP'])
    if (kind === 0) return { protocol }
    if (kind === 1) return { protocol, port: `serve-${pick([80, 81])}-${protocol.toLowerCase()}` }
    if (kind === 2) return { protocol, port: 80, endPort: pick([80, 81]) }
    return { protocol, port: pick([80, 81]) }
  }
  const list = (make: () => object, most: number) => Array.from({ length: below(most + 1) }, make)
  const rule = (key: 'from' | 'to'): object => ({ [key]: list(peer, 3), ports: list(port, 2) })
  const both = chance(0.3)
  const isIn = both || chance(0.5)
  return {
    podSelector: selector(),
    policyTypes: [...(isIn ? ['Ingress'] : []), ...(both || !isIn ? ['Egress'] : [])],
    ...(isIn && { ingress: list(() => rule('from'), 2) }),
    ...((both || !isIn) && { egress: list(() => rule('to'), 2) }),
  }
}
