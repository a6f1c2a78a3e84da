// lane: netns
// Tests agent/policy and agent/cluster/cluster-policy.ts: ClusterNetworkPolicy on the real kernel, each step with its
// whole matrix.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { inNamespaces, namespaceAt } from '../../support/harness.ts'
import { type Fixture, policyFixture } from '../../support/policy-fixture.ts'

function withFixture(work: (fixture: Fixture) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node'], async ({ node }, test) => {
    test.timeout(240_000)
    const fixture = await policyFixture(node)
    try {
      await work(fixture)
    } finally {
      await fixture.end()
    }
  })
}

const NS = (ns: string) => ({ matchLabels: { ns } })
const EVERYWHERE = { namespaces: {} }
const X = { namespaces: NS('x') }
const Y = { namespaces: NS('y') }
const pod = (ns: string, name: string) => ({
  pods: { namespaceSelector: NS(ns), podSelector: { matchLabels: { pod: name } } },
})
const admin = (priority: number, subject: object, rules: object) => ({ tier: 'Admin', priority, subject, ...rules })
const baseline = (priority: number, subject: object, rules: object) => ({
  tier: 'Baseline',
  priority,
  subject,
  ...rules,
})
const PROTOCOLS = { tcp: { destinationPort: { number: 80 } } }

describe('ClusterNetworkPolicy in the kernel', () => {
  for (const side of ['ingress', 'egress'] as const) {
    const rule = (action: string, peer: object, ...protocols: object[]) => ({
      action,
      [side === 'ingress' ? 'from' : 'to']: [peer],
      ...(protocols.length > 0 && { protocols }),
    })
    it(
      `Accept, Deny and Pass of ${side}: the first rule that matches decides, for TCP, UDP and SCTP`,
      withFixture(async (fixture) => {
        for (const protocol of ['tcp', 'udp', 'sctp']) {
          const at80 = { [protocol]: { destinationPort: { number: 80 } } }
          fixture.clusterPolicy(
            'one',
            admin(10, X, {
              [side]: [
                rule('Accept', pod('y', 'a'), at80),
                rule('Pass', pod('y', 'b'), at80),
                rule('Deny', Y, at80),
                rule('Accept', Y),
              ],
            }),
          )
          await fixture.matches()
        }
        // What is passed on is for NetworkPolicy to decide.
        fixture.policy('x', 'deny', { podSelector: {}, policyTypes: [side === 'ingress' ? 'Ingress' : 'Egress'] })
        await fixture.matches()
        fixture.clusterPolicy(
          'one',
          admin(10, X, {
            [side]: [
              rule('Deny', EVERYWHERE, { tcp: { destinationPort: { range: { start: 79, end: 80 } } } }, { udp: {} }),
            ],
          }),
        )
        fixture.cluster.policies.clear()
        await fixture.matches()
        fixture.cluster.clusterPolicies.clear()
        await fixture.matches()
      }),
    )

    it(
      `priority and tiers of ${side}: Admin, NetworkPolicy, Baseline`,
      withFixture(async (fixture) => {
        fixture.clusterPolicy('late', admin(20, X, { [side]: [rule('Deny', Y)] }))
        fixture.clusterPolicy('early', admin(10, X, { [side]: [rule('Accept', pod('y', 'a'))] }))
        await fixture.matches()
        fixture.clusterPolicy('early', admin(30, X, { [side]: [rule('Accept', pod('y', 'a'))] }))
        await fixture.matches()
        // Baseline decides for pods that no NetworkPolicy isolates.
        fixture.cluster.clusterPolicies.clear()
        fixture.clusterPolicy(
          'base',
          baseline(0, EVERYWHERE, { [side]: [rule('Accept', pod('z', 'c')), rule('Deny', EVERYWHERE)] }),
        )
        await fixture.matches()
        fixture.policy(
          'x',
          'allow',
          side === 'ingress'
            ? { podSelector: {}, ingress: [{ from: [{ namespaceSelector: NS('y') }] }] }
            : { podSelector: {}, policyTypes: ['Egress'], egress: [{ to: [{ namespaceSelector: NS('y') }] }] },
        )
        await fixture.matches()
        // A tier before has the last word, and Pass gives it to NetworkPolicy.
        fixture.clusterPolicy(
          'top',
          admin(0, X, {
            [side]: [rule('Deny', pod('y', 'b')), rule('Accept', pod('z', 'a'), PROTOCOLS), rule('Pass', EVERYWHERE)],
          }),
        )
        await fixture.matches()
      }),
    )
  }

  it(
    'egress to networks of both families',
    withFixture(async (fixture) => {
      fixture.clusterPolicy(
        'net',
        admin(10, X, {
          egress: [
            { action: 'Accept', to: [{ networks: ['10.1.0.20/32', 'fd01::21/128'] }] },
            { action: 'Deny', to: [{ networks: ['10.1.0.16/28', 'fd01::/64'] }] },
          ],
        }),
      )
      await fixture.matches()
    }),
  )

  it(
    'egress to nodes, by their labels',
    withFixture(async (fixture) => {
      const node = (name: string, labels: object, address: string) => ({
        metadata: { name, labels },
        status: {
          addresses: [
            { type: 'InternalIP', address },
            { type: 'Hostname', address: name },
          ],
        },
      })
      const { clusterNodeOf } = await import('../../../agent/cluster/objects.ts')
      // The addresses of two pods stand for those of nodes: their servers answer.
      fixture.cluster.nodes.set('n1', clusterNodeOf(node('n1', { role: 'edge' }, fixture.ip('y/a'))))
      fixture.cluster.nodes.set('n2', clusterNodeOf(node('n2', {}, fixture.ip('y/b'))))
      fixture.clusterPolicy(
        'nodes',
        admin(10, X, { egress: [{ action: 'Deny', to: [{ nodes: { matchLabels: { role: 'edge' } } }] }] }),
      )
      await fixture.matches()
      assert.equal(await fixture.passes('x/a', 'y/a'), false)
      assert.ok(await fixture.passes('x/a', 'y/b'))
      fixture.cluster.nodes.set('n2', clusterNodeOf(node('n2', { role: 'edge' }, fixture.ip('y/b'))))
      await fixture.matches()
      assert.equal(await fixture.passes('x/a', 'y/b'), false)
      fixture.cluster.nodes.delete('n1')
      await fixture.matches()
      assert.ok(await fixture.passes('x/a', 'y/a'))
    }),
  )

  it(
    'a Deny refuses ICMPv6 of the types of neighbour discovery that is none: what was routed has another hop limit',
    withFixture(async (fixture) => {
      const space = (pod: string) => {
        const name = `${fixture.node.path.split('/').at(-1)}-${pod}`
        return namespaceAt(name, name)
      }
      const [from, to] = [space('xa'), space('yb')]
      const seen = `table netdev seen {
        chain eth0 { type filter hook ingress device eth0 priority 0; icmpv6 type nd-neighbor-advert ip6 saddr ${fixture.ip('x/a', 6)} ip6 daddr ${fixture.ip('y/b', 6)} counter; }
      }`
      assert.equal((await to.exec(['nft', '-f', '-'], { stdin: seen })).status, 0)
      const came = async () =>
        Number(/counter packets (\d+)/.exec((await to.exec(['nft', 'list', 'table', 'netdev', 'seen'])).stdout)?.[1])
      const mac = (await to.json('link', 'show', 'dev', 'eth0'))[0]?.['address']
      const arrives = async (kind: string) => {
        const before = await came()
        const own = fixture.ip('x/a', 6)
        const frame = JSON.stringify({ kind, text: own, mac, source: own, ip: fixture.ip('y/b', 6) })
        const sent = await from.exec([process.execPath, join(import.meta.dir, '../../support/raw-frames.ts'), frame])
        assert.equal(sent.status, 0, sent.stderr)
        return (await came()) > before
      }
      const both = async () => [
        await arrives('neighbour advertisement'),
        await arrives('routed neighbour advertisement'),
      ]
      await fixture.matches()
      assert.deepEqual(await both(), [true, true])
      fixture.clusterPolicy('deny', admin(10, X, { egress: [{ action: 'Deny', to: [EVERYWHERE] }] }))
      await fixture.matches()
      assert.deepEqual(await both(), [true, false])
    }),
  )

  it(
    'a named port, in both directions',
    withFixture(async (fixture) => {
      const named = { destinationNamedPort: 'serve-80-tcp' }
      fixture.clusterPolicy(
        'in',
        admin(10, X, {
          ingress: [
            { action: 'Accept', from: [Y], protocols: [named] },
            { action: 'Deny', from: [EVERYWHERE] },
          ],
        }),
      )
      await fixture.matches()
      fixture.clusterPolicy(
        'out',
        admin(20, Y, {
          egress: [{ action: 'Deny', to: [X], protocols: [{ destinationNamedPort: 'serve-81-udp' }, named] }],
        }),
      )
      await fixture.matches()
    }),
  )

  it(
    'a peer of an unknown type closes its whole rule: an Accept accepts nobody, and a Pass denies everyone',
    withFixture(async (fixture) => {
      const unknown = { domainNames: ['example.com'] }
      for (const side of ['ingress', 'egress'] as const) {
        const key = side === 'ingress' ? 'from' : 'to'
        const [from, to] = side === 'ingress' ? (['y/a', 'x/a'] as const) : (['x/a', 'y/a'] as const)
        const deny = { action: 'Deny', [key]: [Y] }
        fixture.clusterPolicy('one', admin(10, X, { [side]: [{ action: 'Accept', [key]: [unknown, Y] }, deny] }))
        await fixture.matches()
        assert.equal(await fixture.passes(from, to), false)
        fixture.clusterPolicy('one', admin(10, X, { [side]: [{ action: 'Pass', [key]: [unknown] }] }))
        await fixture.matches()
        assert.equal(await fixture.passes(from, to), false)
      }
    }),
  )
})
