// lane: quick
// Tests agent/policy/oracle.ts: the semantics of NetworkPolicy and ClusterNetworkPolicy, with the reasons.
import assert from 'node:assert/strict'
import { clusterPolicyOf } from '../../../agent/cluster/cluster-policy.ts'
import { clusterNodeOf, namespaceOf, type Pod, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { type Attempt, decide, type Objects } from '../../../agent/policy/oracle.ts'
import { parseIp } from '../../../lib/text/ip.ts'

const NAMES = ['x/a', 'x/b', 'y/a', 'y/b'] as const
type Name = (typeof NAMES)[number]
const pods = new Map(
  NAMES.map((key, i): [Name, Pod] => {
    const [namespace = '', name = ''] = key.split('/')
    const raw = {
      metadata: { namespace, name, labels: { pod: name } },
      spec: {
        containers: [
          {
            ports: [
              { name: 'web', containerPort: 80 },
              { name: 'dns', protocol: 'UDP', containerPort: 53 },
            ],
          },
        ],
      },
      status: { podIPs: [{ ip: `10.1.0.${i + 1}` }] },
    }
    return [key, podOf(raw) as Pod]
  }),
)
const namespaces = ['x', 'y'].map((name) => namespaceOf({ metadata: { name, labels: { ns: name } } }))
const nodes = [
  clusterNodeOf({
    metadata: { name: 'n1', labels: { role: 'edge' } },
    status: { addresses: [{ type: 'InternalIP', address: '192.0.2.10' }] },
  }),
]
const OUTSIDE = '192.0.2.10'

const policy = (namespace: string, name: string, spec: object) => policyOf({ metadata: { namespace, name }, spec })
const cluster = (name: string, spec: object) =>
  clusterPolicyOf({ metadata: { name }, spec: { tier: 'Admin', priority: 10, subject: { namespaces: {} }, ...spec } })

function told(
  objects: Partial<Objects>,
  from: Name | typeof OUTSIDE,
  to: Name | typeof OUTSIDE,
  port = 80,
  protocol: Attempt['protocol'] = 'TCP',
): string {
  const end = (one: string) => pods.get(one as Name) ?? { ip: parseIp(one) }
  const ip = (one: string) => pods.get(one as Name)?.ips[0] ?? parseIp(one)
  const { passes, reason } = decide(
    { pods: [...pods.values()], namespaces, nodes, policies: [], ...objects },
    { from: end(from), to: end(to), source: ip(from), destination: ip(to), protocol, port },
  )
  return `${passes ? 'passes' : 'refused'}: ${reason}`
}

describe('the oracle of NetworkPolicy', () => {
  it('isolates a pod for the directions that a policy lists, and names the policies', () => {
    const policies = [policy('x', 'deny', { podSelector: {} })]
    assert.equal(told({ policies }, 'y/a', 'x/a'), 'refused: x/deny isolates x/a for ingress, and no rule allows it')
    assert.equal(
      told({ policies }, 'x/a', 'y/a'),
      'passes: no policy selects x/a for egress; no policy selects y/a for ingress',
    )
    assert.match(told({ policies }, 'x/a', 'x/a'), /^passes: a pod reaches itself/)
    const out = [policy('x', 'no-egress', { podSelector: {}, policyTypes: ['Egress'] })]
    assert.match(told({ policies: out }, 'x/a', 'y/a'), /^refused: x\/no-egress isolates x\/a for egress/)
    assert.match(told({ policies: out }, 'y/a', 'x/a'), /^passes/)
  })
  it('an absent or empty list of peers is everyone, and one peer with two selectors wants both', () => {
    for (const rule of [{}, { from: [] }])
      assert.equal(
        told({ policies: [policy('x', 'p', { ingress: [rule] })] }, 'y/a', 'x/a'),
        'passes: no policy selects y/a for egress; x/p ingress[0] allows it',
      )
    const namespaceSelector = { matchLabels: { ns: 'y' } }
    const podSelector = { matchLabels: { pod: 'b' } }
    const both = [policy('x', 'p', { ingress: [{ from: [{ namespaceSelector, podSelector }] }] })]
    const either = [policy('x', 'p', { ingress: [{ from: [{ namespaceSelector }, { podSelector }] }] })]
    const seen = (policies: Objects['policies']) =>
      (['y/a', 'y/b', 'x/b'] as const).map((from) => told({ policies }, from, 'x/a').startsWith('passes'))
    assert.deepEqual(
      [seen(both), seen(either)],
      [
        [false, true, false],
        [true, true, true],
      ],
    )
    assert.match(
      told({ policies: [policy('x', 'p', { ingress: [{ from: [{ podSelector: {} }] }] })] }, 'y/a', 'x/a'),
      /^refused/,
    )
  })
  it('a port is of one protocol; a name is looked up in the target, and matches nothing when no container has it', () => {
    const at = (...ports: readonly object[]) => [policy('x', 'p', { ingress: [{ ports }] })]
    const passes = (ports: readonly object[], port: number, protocol: Attempt['protocol'] = 'TCP') =>
      told({ policies: at(...ports) }, 'y/a', 'x/a', port, protocol).startsWith('passes')
    assert.deepEqual(
      [passes([{ port: 80 }], 80), passes([{ port: 80 }], 80, 'UDP'), passes([{ port: 80 }], 81)],
      [true, false, false],
    )
    assert.deepEqual(
      [
        passes([{ port: 'web' }], 80),
        passes([{ port: 'web' }], 81),
        passes([{ port: 'dns' }], 53, 'UDP'),
        passes([{ protocol: 'UDP', port: 'dns' }], 53, 'UDP'),
      ],
      [true, false, false, true],
    )
    assert.deepEqual(
      [
        passes([{ port: 'absent' }], 80),
        passes([{ port: 80, endPort: 90 }], 90),
        passes([{ port: 80, endPort: 90 }], 91),
        passes([{ protocol: 'SCTP' }], 80),
      ],
      [false, true, false, false],
    )
  })
  it('takes the exceptions of a block away from that block alone', () => {
    const from = (...blocks: readonly object[]) => [
      policy('x', 'p', { ingress: [{ from: blocks.map((ipBlock) => ({ ipBlock })) }] }),
    ]
    const block = { cidr: '10.1.0.0/24', except: ['10.1.0.3/32'] }
    assert.match(told({ policies: from(block) }, 'y/a', 'x/a'), /^refused/)
    assert.match(told({ policies: from(block) }, 'y/b', 'x/a'), /^passes/)
    assert.match(told({ policies: from(block, { cidr: '10.1.0.3/32' }) }, 'y/a', 'x/a'), /^passes/)
  })
  it('counts only the directions that are asked for', () => {
    const policies = [policy('x', 'deny', { podSelector: {} })]
    const [from, to] = [pods.get('y/a') as Pod, pods.get('x/a') as Pod]
    const attempt: Attempt = {
      from,
      to,
      source: parseIp('10.1.0.3'),
      destination: parseIp('10.1.0.1'),
      protocol: 'TCP',
      port: 80,
    }
    const objects = { pods: [from, to], namespaces, policies }
    assert.deepEqual(
      [
        decide(objects, attempt).passes,
        decide(objects, attempt, ['egress']).passes,
        decide(objects, attempt, ['ingress']).passes,
      ],
      [false, true, false],
    )
  })
})

describe('the oracle of ClusterNetworkPolicy', () => {
  const Y = { namespaces: { matchLabels: { ns: 'y' } } }
  const deny = { action: 'Deny', from: [Y] }
  const open = [policy('x', 'open', { ingress: [{}] })]
  const closed = [policy('x', 'closed', { podSelector: {} })]

  it('Admin decides before NetworkPolicy, and names the policy, its tier and the rule', () => {
    const clusterPolicies = [
      cluster('deny-all', {
        ingress: [
          { action: 'Accept', from: [{ pods: { podSelector: { matchLabels: { pod: 'b' } } } }] },
          { ...deny, name: 'no y' },
        ],
      }),
    ]
    assert.equal(
      told({ clusterPolicies, policies: open }, 'y/a', 'x/a'),
      'refused: ClusterNetworkPolicy deny-all (Admin) ingress[1] "no y" denies it',
    )
    assert.equal(
      told({ clusterPolicies, policies: closed }, 'y/b', 'x/a'),
      'passes: no policy selects y/b for egress; ClusterNetworkPolicy deny-all (Admin) ingress[0] accepts it',
    )
    assert.match(told({ clusterPolicies, policies: closed }, 'x/b', 'x/a'), /^passes/)
    assert.equal(told({ clusterPolicies }, OUTSIDE, 'x/a'), 'passes: no policy selects x/a for ingress')
  })
  it('the lower priority decides first, and names decide between equal ones', () => {
    const accept = { action: 'Accept', from: [Y] }
    const pair = (one: number, other: number) => [
      cluster('a', { priority: one, ingress: [accept] }),
      cluster('b', { priority: other, ingress: [deny] }),
    ]
    const passes = (one: number, other: number) =>
      told({ clusterPolicies: pair(one, other) }, 'y/a', 'x/a').startsWith('passes')
    assert.deepEqual([passes(1, 2), passes(2, 1), passes(5, 5)], [true, false, true])
    assert.match(told({ clusterPolicies: pair(5, 5).reverse() }, 'y/a', 'x/a'), /^passes/)
  })
  it('Pass ends the tier for NetworkPolicy; Baseline decides only for pods that no NetworkPolicy isolates', () => {
    const clusterPolicies = [
      cluster('pass', { ingress: [{ action: 'Pass', from: [Y] }, deny] }),
      cluster('base', { tier: 'Baseline', ingress: [deny] }),
    ]
    assert.match(told({ clusterPolicies, policies: open }, 'y/a', 'x/a'), /x\/open ingress\[0\] allows it$/)
    assert.match(told({ clusterPolicies, policies: closed }, 'y/a', 'x/a'), /^refused: x\/closed isolates/)
    assert.equal(
      told({ clusterPolicies }, 'y/a', 'x/a'),
      'refused: ClusterNetworkPolicy base (Baseline) ingress[0] denies it',
    )
  })
  it('egress to networks, nodes and named ports', () => {
    const to = (rule: object) => [cluster('out', { egress: [{ action: 'Deny', ...rule }] })]
    assert.match(told({ clusterPolicies: to({ to: [{ networks: ['192.0.2.0/24'] }] }) }, 'x/a', OUTSIDE), /^refused/)
    assert.match(told({ clusterPolicies: to({ to: [{ networks: ['198.51.100.0/24'] }] }) }, 'x/a', OUTSIDE), /^passes/)
    assert.match(
      told({ clusterPolicies: to({ to: [{ nodes: { matchLabels: { role: 'edge' } } }] }) }, 'x/a', OUTSIDE),
      /^refused/,
    )
    assert.match(
      told({ clusterPolicies: to({ to: [{ nodes: { matchLabels: { role: 'core' } } }] }) }, 'x/a', OUTSIDE),
      /^passes/,
    )
    const named = to({ to: [Y], protocols: [{ destinationNamedPort: 'dns' }] })
    assert.match(told({ clusterPolicies: named }, 'x/a', 'y/a', 53, 'UDP'), /^refused/)
    assert.match(told({ clusterPolicies: named }, 'x/a', 'y/a', 53, 'TCP'), /^passes/)
  })
})
