// lane: quick
// Tests agent/policy/state.ts: a state that follows random changes is the same as one that is compiled at once.
import assert from 'node:assert/strict'
import { clusterPolicyOf } from '../../../agent/cluster/cluster-policy.ts'
import {
  closedPolicyOf,
  clusterNodeOf,
  namespaceOf,
  type Pod,
  podOf,
  policyOf,
} from '../../../agent/cluster/objects.ts'
import { Endpoints } from '../../../agent/policy/endpoints.ts'
import { type Flow, livesBy } from '../../../agent/policy/flows.ts'
import { tableText } from '../../../agent/policy/program.ts'
import { type Cluster, compile, PolicyState } from '../../../agent/policy/state.ts'
import { contains, networkOf } from '../../../lib/text/cidr.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'
import type { ContainerId, IfName } from '../../../lib/text/values.ts'
import { patient } from '../../support/patience.ts'
import fc from '../../support/properties.ts'

const SPACES = ['x', 'y', 'z']
const labels = fc.dictionary(fc.constantFrom('app', 'tier'), fc.constantFrom('a', 'b'), {
  maxKeys: 2,
  noNullPrototype: true,
})
const selector = fc.oneof(
  fc.constant({}),
  fc.record({ matchLabels: labels }),
  fc.record({
    matchExpressions: fc.tuple(
      fc.oneof(
        fc.record({
          key: fc.constantFrom('app', 'tier'),
          operator: fc.constantFrom('In', 'NotIn'),
          values: fc.constant(['a']),
        }),
        fc.record({ key: fc.constantFrom('app', 'tier'), operator: fc.constantFrom('Exists', 'DoesNotExist') }),
      ),
    ),
  }),
)
const block = fc.record({ cidr: fc.constantFrom('10.0.0.0/8', '10.0.0.0/30', '0.0.0.0/0', 'fd00::/64') })
const peer = fc.oneof(
  fc.record({ podSelector: selector }),
  fc.record({ namespaceSelector: selector, podSelector: selector }),
  fc.record({ ipBlock: block }),
)
const port = fc.oneof(
  fc.record({
    protocol: fc.constantFrom('TCP', 'UDP'),
    port: fc.oneof(fc.constantFrom<string | number>('web', 'dns'), fc.integer({ min: 1, max: 9 })),
  }),
  fc.record({ protocol: fc.constantFrom('TCP', 'UDP', 'SCTP') }),
)
const rule = (key: string) =>
  fc.record({ [key]: fc.array(peer, { maxLength: 3 }), ports: fc.array(port, { maxLength: 2 }) }, { requiredKeys: [] })
const space = fc.constantFrom(...SPACES)
const key = fc.integer({ min: 1, max: 6 })

// Two pods of one name have other UIDs.
const uid = fc.constantFrom('none', 'u1', 'u2')
const podChange = fc.record({
  uid,
  kind: fc.constant('pods' as const),
  namespace: space,
  name: key.map((n) => `p${n}`),
  labels,
  ip: fc.integer({ min: 1, max: 8 }),
  node: fc.constantFrom('here', 'there'),
  isGone: fc.boolean(),
})
const namespaceChange = fc.record({
  kind: fc.constant('namespaces' as const),
  name: space,
  labels,
  isGone: fc.boolean(),
})
const policyChange = fc.record({
  kind: fc.constant('policies' as const),
  namespace: space,
  name: key.map((n) => `n${n}`),
  isGone: fc.boolean(),
  spec: fc.record({
    podSelector: selector,
    policyTypes: fc.subarray(['Ingress', 'Egress'], { minLength: 1 }),
    ingress: fc.array(rule('from'), { maxLength: 2 }),
    egress: fc.array(rule('to'), { maxLength: 2 }),
  }),
})
const tierPeer = fc.oneof(
  fc.record({ namespaces: selector }),
  fc.record({ pods: fc.record({ namespaceSelector: selector, podSelector: selector }) }),
)
const tierRule = (name: string, peers: fc.Arbitrary<object>) =>
  fc.record({
    action: fc.constantFrom('Accept', 'Deny', 'Pass'),
    [name]: fc.array(peers, { minLength: 1, maxLength: 2 }),
    protocols: fc.array(
      fc.constantFrom({ tcp: { destinationPort: { number: 80 } } }, { destinationNamedPort: 'web' }, { udp: {} }),
      { maxLength: 2 },
    ),
  })
const clusterPolicyChange = fc.record({
  kind: fc.constant('clusterPolicies' as const),
  name: key.map((n) => `c${n}`),
  isGone: fc.boolean(),
  spec: fc.record({
    tier: fc.constantFrom('Admin', 'Baseline'),
    priority: fc.integer({ min: 0, max: 3 }),
    subject: fc.record({ namespaces: selector }),
    ingress: fc.array(tierRule('from', tierPeer), { maxLength: 2 }),
    egress: fc.array(
      tierRule(
        'to',
        fc.oneof(tierPeer, fc.record({ nodes: selector }), fc.record({ networks: fc.constant(['10.0.0.0/8']) })),
      ),
      { maxLength: 2 },
    ),
  }),
})
const nodeChange = fc.record({
  kind: fc.constant('nodes' as const),
  name: fc.constantFrom('here', 'there'),
  labels,
  ip: fc.integer({ min: 1, max: 4 }),
  isGone: fc.boolean(),
})
const admission = fc.record({
  kind: fc.constant('admitted' as const),
  namespace: space,
  name: key.map((n) => `p${n}`),
  uid,
  ip: fc.integer({ min: 1, max: 8 }),
  isGone: fc.boolean(),
})
const change = fc.oneof(
  { weight: 4, arbitrary: podChange },
  namespaceChange,
  { weight: 3, arbitrary: policyChange },
  clusterPolicyChange,
  nodeChange,
  admission,
)

interface Followed {
  readonly cluster: Cluster
  readonly state: PolicyState
  readonly attached: Endpoints
}

// A state that follows steps of changes. It is looked at after each step.
function follow(steps: readonly (readonly Change[])[], look?: (now: Followed) => void): Followed {
  const cluster = {
    pods: new Map<string, Pod>(),
    namespaces: new Map(),
    policies: new Map(),
    clusterPolicies: new Map(),
    nodes: new Map(),
  }
  const attachments = new Set<string>()
  const attached = new Endpoints(
    (key) => attachments.add(key),
    (key) => cluster.pods.get(key),
  )
  const state = new PolicyState(cluster, 'here', attached)
  const followed: Followed = { cluster, state, attached }
  for (const step of steps) {
    const changed = new Map<keyof typeof cluster, Set<string>>()
    for (const one of step) {
      const name = 'namespace' in one ? `${one.namespace}/${one.name}` : one.name
      const metadata = {
        ...('namespace' in one && { namespace: one.namespace }),
        name: one.name,
        ...('labels' in one && { labels: one.labels }),
        ...('uid' in one && one.uid !== 'none' && { uid: one.uid }),
      }
      const kind = one.kind === 'admitted' ? 'pods' : one.kind
      if (one.kind === 'admitted') {
        const id = {
          containerId: `${one.namespace}-${one.name}-${one.uid}` as ContainerId,
          ifname: 'eth0' as IfName,
        }
        if (one.isGone) attached.release(id)
        else
          attached.admit({
            ...id,
            namespace: one.namespace,
            pod: one.name,
            ...(one.uid !== 'none' && { uid: one.uid }),
            addresses: [parseIp(`10.0.0.${one.ip}`)],
          })
        continue
      }
      changed.set(kind, (changed.get(kind) ?? new Set()).add(name))
      const map: Map<string, unknown> = cluster[one.kind]
      if (one.isGone) map.delete(name)
      else if (one.kind === 'namespaces') map.set(name, namespaceOf({ metadata }))
      else if (one.kind === 'policies') map.set(name, policyOf({ metadata, spec: one.spec }))
      else if (one.kind === 'clusterPolicies') map.set(name, clusterPolicyOf({ metadata, spec: one.spec }))
      else if (one.kind === 'nodes')
        map.set(
          name,
          clusterNodeOf({
            metadata,
            status: { addresses: [{ type: 'InternalIP', address: `192.0.2.${one.ip}` }] },
          }),
        )
      else
        map.set(
          name,
          podOf({
            metadata,
            spec: {
              nodeName: one.node,
              containers: [
                {
                  ports: [
                    { name: 'web', containerPort: 80 },
                    { name: 'dns', protocol: 'UDP', containerPort: 53 },
                  ],
                },
              ],
            },
            status: { podIPs: [{ ip: `10.0.0.${one.ip}` }, { ip: `fd00::${one.ip}` }] },
          }),
        )
    }
    for (const key of attachments) changed.set('pods', (changed.get('pods') ?? new Set()).add(key))
    attachments.clear()
    state.apply(changed)
    look?.(followed)
    for (const { namespace, pod, uid, addresses } of attached.all()) {
      const object = cluster.pods.get(`${namespace}/${pod}`)
      const isStrange = uid !== undefined && object?.uid !== undefined && object.uid !== uid
      if (!object || isStrange) for (const ip of addresses) assert.ok(state.isClosed(ip), `${ip} of ${uid}`)
    }
  }
  return followed
}

type Change = typeof change extends fc.Arbitrary<infer One> ? One : never
// Pods of this node that keep their addresses, with policies. Then labels change, one at a time.
const placed = fc
  .record({ namespace: space, n: fc.integer({ min: 1, max: 2 }), labels })
  .map(({ namespace, n, labels }) => ({
    kind: 'pods' as const,
    uid: 'none' as const,
    namespace,
    name: `p${n}`,
    labels,
    ip: 2 * SPACES.indexOf(namespace) + n,
    node: 'here' as const,
    isGone: false,
  }))
const peopled = fc
  .tuple(
    fc.array(fc.oneof({ weight: 3, arbitrary: placed }, namespaceChange, nodeChange), { minLength: 5, maxLength: 9 }),
    fc.array(fc.oneof(policyChange, clusterPolicyChange), { minLength: 1, maxLength: 3 }),
    fc.array(fc.oneof({ weight: 3, arbitrary: placed }, namespaceChange, nodeChange), { minLength: 1, maxLength: 6 }),
  )
  .map(([people, policies, later]): Change[][] => [people, policies, ...later.map((one) => [one])])
const histories = fc.array(fc.array(change, { maxLength: 4 }), { maxLength: 12 })

describe('the state of policies', () => {
  it('is after any changes, one step or many, what a compilation at once gives', function () {
    this.timeout(300_000)
    fc.assert(
      fc.property(histories, (steps) => {
        const { cluster, state, attached } = follow(steps)
        // Which of two pods of one address counts depends on which came last.
        const ips = [...state.locals.values()].flatMap((one) => one.ips)
        fc.pre(new Set(ips).size === ips.length)
        assert.deepEqual(lines(state), lines(compile(cluster, 'here', attached)))
      }),
      { numRuns: 3000 },
    )
  })

  it('names an address of each connection that may not go on after a change of labels, also of those that come to match a Deny', function () {
    this.timeout(300_000)
    let ended = 0
    fc.assert(
      fc.property(peopled, (steps) => {
        let living = new Set<string>()
        follow(steps, ({ state, cluster }) => {
          const [tightened, lives] = [state.takeTightened(), livesBy(state, cluster, new Set([OWN]))]
          const now = new Set<string>()
          for (const flow of flowsOf(state)) {
            const name = nameOf(flow)
            if (lives(flow)) now.add(name)
            else if (living.has(name)) {
              ended++
              assert.ok(tightened.has(flow.source) || tightened.has(flow.destination), name)
            }
          }
          living = now
        })
      }),
      { numRuns: 2000 },
    )
    assert.ok(ended > 1000, `only ${ended} connections have ended`)
  })

  it('a pod of a released name counts again when the next object has the same address, as on another node', () => {
    const pods = new Map<string, Pod>()
    const attached = new Endpoints(
      () => {},
      (key) => pods.get(key),
    )
    const none = new Map()
    const state = new PolicyState(
      { pods, namespaces: none, policies: none, clusterPolicies: none, nodes: none },
      'here',
      attached,
    )
    const ip = parseIp('10.0.0.1')
    const object = (node: string) =>
      podOf({
        metadata: { namespace: 'x', name: 'web-0' },
        spec: { nodeName: node, containers: [] },
        status: { podIPs: [{ ip }] },
      }) as Pod
    const [id, changed] = [
      { containerId: 'c1' as ContainerId, ifname: 'eth0' as IfName },
      new Map([['pods' as const, new Set(['x/web-0'])]]),
    ]
    pods.set('x/web-0', object('here'))
    attached.admit({ ...id, namespace: 'x', pod: 'web-0', addresses: [ip] })
    attached.release(id)
    state.apply(changed)
    assert.equal(state.podAt(ip), undefined)
    pods.delete('x/web-0')
    state.apply(changed)
    pods.set('x/web-0', object('there'))
    state.apply(changed)
    assert.equal(state.podAt(ip)?.node, 'there')
    // The object goes before its pod.
    attached.admit({ ...id, namespace: 'x', pod: 'web-0', addresses: [ip] })
    pods.delete('x/web-0')
    state.apply(changed)
    attached.release(id)
    pods.set('x/web-0', object('there'))
    state.apply(changed)
    assert.equal(state.podAt(ip)?.node, 'there')
  })

  it('refuses all packets of a pod whose namespace is not known yet, as its labels decide which policies select it', () => {
    const namespaces = new Map<string, ReturnType<typeof namespaceOf>>()
    const deny = clusterPolicyOf({
      metadata: { name: 'deny' },
      spec: {
        tier: 'Admin',
        priority: 1,
        subject: { namespaces: {} },
        ingress: [{ action: 'Deny', from: [{ namespaces: {} }] }],
      },
    })
    const ip = parseIp('10.0.0.1')
    const pod = podOf({ metadata: { namespace: 'x', name: 'p' }, spec: { nodeName: 'here' }, status: { podIP: ip } })
    const state = compile(
      {
        pods: new Map([['x/p', pod as Pod]]),
        namespaces,
        policies: new Map(),
        clusterPolicies: new Map([['deny', deny]]),
        nodes: new Map(),
      },
      'here',
    )
    const verdict = () => state.elements.wanted('ingress4').get(ip)
    assert.deepEqual([verdict(), state.isClosed(ip)], ['goto unknown', true])
    for (const isKnown of [true, false]) {
      if (isKnown) namespaces.set('x', namespaceOf({ metadata: { name: 'x' } }))
      else namespaces.clear()
      state.apply(new Map([['namespaces', new Set(['x'])]]))
      assert.equal(state.isClosed(ip), !isKnown)
    }
  })

  it('is small and quick for a large policy: it grows with peers, ports and exceptions, and with no product of them', () => {
    const many = <T>(count: number, one: (i: number) => T) => Array.from({ length: count }, (_, i) => one(i))
    const rule = {
      from: many(400, (i) => ({ podSelector: { matchLabels: { app: `${i}` } } })),
      ports: many(400, (i) => ({ port: `p${i}` })),
    }
    const except = many(20_000, (i) => `10.${i >> 15}.${(i >> 7) & 255}.${(2 * i) & 255}/32`)
    const began = performance.now()
    const [byNames, byBlocks] = [
      { ingress: [rule] },
      { egress: [{ to: [{ ipBlock: { cidr: '10.0.0.0/8', except } }] }] },
    ]
    const [first, second] = [compiledOf(byNames), compiledOf(byBlocks)]
    const ms = performance.now() - began
    assert.ok(first.length < 5000, `${first.length} lines`)
    assert.ok(second.length < 100, `${second.length} lines`)
    // With the product it was 30 s, and a gigabyte.
    assert.ok(ms < patient(5000), `${ms} ms`)
  })

  it('refuses a policy with more selectors than the kernel can have sets for in time, and closes what it selects', () => {
    const raw = (count: number) => ({
      metadata: { namespace: 'x', name: 'p' },
      spec: {
        podSelector: { matchLabels: { app: 'a' } },
        policyTypes: ['Ingress'],
        ingress: Array.from({ length: 2 * count }, (_, i) => ({
          from: [{ podSelector: { matchLabels: { app: `${i % count}` } } }],
          ports: [{ port: 1 + i }],
        })),
      },
    })
    assert.equal(policyOf(raw(1000)).ingress?.length, 2000)
    assert.throws(() => policyOf(raw(1001)), /NetworkPolicy x\/p: spec: it has 1001 different selectors/)
    const closed = { namespace: 'x', name: 'p', ingress: [], egress: [], pods: policyOf(raw(1)).pods }
    assert.deepEqual(closedPolicyOf(raw(1001)), closed)
  })

  it('takes the exceptions of a block out of it, whatever they have in common', () => {
    const part = fc.tuple(fc.integer({ min: 0, max: 255 }), fc.integer({ min: 24, max: 32 }))
    fc.assert(
      fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
        const networks = parts.map(([last, width]) => networkOf(parseCidr(`10.0.0.${last}/${width}`)))
        const block = { cidr: parseCidr('10.0.0.0/24'), except: networks }
        const text = compiledOf({ egress: [{ to: [{ ipBlock: block }] }] }).join(' ')
        const ranges = [...text.matchAll(/10\.0\.0\.(\d+)(?:-10\.0\.0\.(\d+))?(?=[ ,])/g)].map(
          ([, from, to = from]): [number, number] => [Number(from), Number(to)],
        )
        for (let last = 0; last < 256; last++) {
          const isIn = ranges.some(([from, to]) => from <= last && last <= to)
          const isWanted = !networks.some((one) => contains(one, parseIp(`10.0.0.${last}`)))
          assert.equal(isIn, isWanted, `10.0.0.${last} without ${networks}: ${text}`)
        }
      }),
    )
  })
})

// The lines of a pod's only policy.
function compiledOf(rules: object): string[] {
  const policyTypes = ['ingress' in rules ? 'Ingress' : 'Egress']
  const policy = policyOf({ metadata: { namespace: 'x', name: 'p' }, spec: { policyTypes, ...rules } })
  const pod = podOf({
    metadata: { namespace: 'x', name: 'p' },
    spec: { nodeName: 'here' },
    status: { podIP: '192.0.2.1' },
  })
  const cluster = {
    pods: new Map([['x/p', pod as Pod]]),
    namespaces: new Map([['x', namespaceOf({ metadata: { name: 'x' } })]]),
    policies: new Map([['x/p', policy]]),
    clusterPolicies: new Map(),
    nodes: new Map(),
  }
  return compile(cluster, 'here').items.anew()
}

function lines(state: PolicyState): string[] {
  return tableText(state)
    .map((line) => {
      const [, head, elements, tail] = /^(add element .*? \{ )(.*)( \})$/.exec(line) ?? []
      return elements === undefined ? line : `${head}${elements.split(', ').sort().join(', ')}${tail}`
    })
    .sort()
}

const [OWN, OUTSIDE] = [parseIp('192.0.2.99'), parseIp('198.51.100.1')]

// Connections between pods of this node, and between them and others than pods.
function flowsOf(state: PolicyState): Flow[] {
  const pods = [...state.locals.values()].flatMap(({ ips }) => ips).filter((ip) => !ip.includes(':'))
  const others = [...new Set([...pods, OUTSIDE, parseIp('192.0.2.1'), OWN])]
  const ends = pods.flatMap((ip) => others.flatMap((other) => [[ip, other] as const, [other, ip] as const]))
  return ends.flatMap(([source, destination]) => [
    { source, destination, protocol: 'TCP' as const, port: 80 },
    { source, destination, protocol: 'UDP' as const, port: 5 },
  ])
}

function nameOf({ source, destination, protocol, port }: Flow): string {
  return `${source} ${destination} ${protocol} ${port}`
}
