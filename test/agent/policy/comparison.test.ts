// lane: quick
// Tests agent/policy/comparison.ts.
import assert from 'node:assert/strict'
import { comparisonOf, type Drafts, draftsOf, MOST } from '../../../agent/policy/comparison.ts'
import { comparisonWords } from '../../../agent/policy/comparison-words.ts'
import { compile } from '../../../agent/policy/state.ts'
import { decision, type PolicyKnowledge } from '../../../agent/policy/view.ts'
import { atOnce, inPieces } from '../../../agent/scheduler/pieces.ts'
import { NAMESPACES, world } from '../../support/policy-worlds.ts'
import { generator } from '../../support/random.ts'

const PORTS = [1, 79, 80, 81, 443, 8000, 8040, 8080, 8081, 65_535]

describe('policies that nobody has applied', () => {
  it('would change what `plumb policy test` says afterwards, in generated worlds', () => {
    for (let seed = 1; seed <= 12; seed++) {
      const [known, other] = [world(generator(seed), 14, 8), world(generator(seed + 100), 14, 12)]
      // Some have the names of policies of the cluster, the others are new.
      const policies = [...other.cluster.policies.values()].slice(4)
      const clusterPolicies = seed % 2 ? [...other.cluster.clusterPolicies.values()] : []
      const after = applied(known, { policies, clusterPolicies })
      const compared = atOnce(comparisonOf(known, { policies, clusterPolicies }))
      assert.equal(compared.more, 0)
      const counts = new Map<string, { opened: number; closed: number }>()
      for (const [from, one] of known.cluster.pods)
        for (const [to, another] of known.cluster.pods) {
          if (from === to || !(known.state.locals.has(from) || known.state.locals.has(to))) continue
          const told = compared.pairs.find((pair) => pair.from === from && pair.to === to)
          for (const protocol of ['TCP', 'UDP'] as const)
            for (const port of PORTS) {
              const [before, then] = [known, after].map((all) => decision(all, { from, to, protocol, port }).verdict)
              const change = told?.ports.find(({ ports }) => has(ports, protocol, port))
              const what = `${seed}: ${from} to ${to} ${protocol} ${port}`
              if (before?.passes === then?.passes) assert.equal(change, undefined, what)
              else {
                assert.equal(change?.passes, then?.passes, what)
                assert.equal(change?.before, before?.reason, what)
              }
            }
          if (!told) continue
          const name = `${one.namespace} ${another.namespace}`
          const counted = counts.get(name) ?? { opened: 0, closed: 0 }
          counts.set(name, counted)
          if (told.ports.some(({ passes }) => passes)) counted.opened++
          if (told.ports.some(({ passes }) => !passes)) counted.closed++
        }
      assert.deepEqual(
        new Map(compared.namespaces.map(({ from, to, ...rest }) => [`${from} ${to}`, rest])),
        new Map([...counts].sort()),
      )
    }
  })
  it('name the pods that become isolated, and those that are no longer', () => {
    const known = world(generator(3), 6, 0)
    const text = (types: string[], name: string) =>
      JSON.stringify({
        kind: 'NetworkPolicy',
        metadata: { namespace: 'x', name },
        spec: { podSelector: {}, policyTypes: types },
      })
    const pods = [...known.state.locals.keys()].filter((key) => key.startsWith('x/'))
    assert.ok(pods.length > 0)
    const drafts = atOnce(draftsOf(`${text(['Ingress', 'Egress'], 'deny')}\n---\n${text(['Egress'], 'out')}`))
    const { isolation } = atOnce(comparisonOf(known, drafts))
    assert.deepEqual(
      isolation.map(({ pod, side, isIsolated }) => `${pod} ${side} ${isIsolated}`).sort(),
      pods.flatMap((pod) => [`${pod} egress true`, `${pod} ingress true`]).sort(),
    )
    const back = atOnce(comparisonOf(applied(known, drafts), atOnce(draftsOf(text(['Egress'], 'deny')))))
    assert.deepEqual(
      back.isolation.map(({ side, isIsolated }) => `${side} ${isIsolated}`),
      pods.map(() => 'ingress false'),
    )
    assert.equal(comparisonWords(back)[0], 'x/deny stands instead of the one in the cluster')
    assert.match(comparisonWords(back).join('\n'), /x\/p\d is not isolated for ingress any more/)
    const same = atOnce(comparisonOf(applied(known, drafts), drafts))
    assert.deepEqual(comparisonWords(same).slice(2), ['Nothing changes between the pods of this node and others'])
  })
  it('list 200 pairs of pods at most, and count the others', () => {
    const known = world(generator(4), 60, 0)
    const drafts = atOnce(
      draftsOf(
        NAMESPACES.map(
          (namespace) =>
            `{kind: NetworkPolicy, metadata: {name: deny, namespace: ${namespace}}, spec: {podSelector: {}}}`,
        ).join('\n---\n'),
      ),
    )
    const { pairs, more, namespaces } = atOnce(comparisonOf(known, drafts))
    assert.equal(pairs.length, 200)
    assert.equal(
      pairs.length + more,
      namespaces.reduce((sum, { closed }) => sum + closed, 0),
    )
  })
  it('are read as the agent reads them: a list, several documents, and what is wrong by name', () => {
    const one = 'kind: NetworkPolicy\nmetadata: {name: a, namespace: x}\nspec: {podSelector: {}}'
    assert.equal(atOnce(draftsOf(`${one}\n---\n${one.replace('name: a', 'name: b')}`)).policies.length, 2)
    assert.equal(
      atOnce(draftsOf(`kind: NetworkPolicyList\nitems: [{${one.replaceAll('\n', ', ')}}]`)).policies.length,
      1,
    )
    for (const [text, why] of [
      ['', /There is no policy in this text: want NetworkPolicy/],
      ['kind: Pod', /Cannot compare "Pod": want NetworkPolicy or ClusterNetworkPolicy/],
      ['- 1', /Cannot compare an object without a kind/],
      ['{', /Cannot read the policies: line 1: /],
      ['kind: NetworkPolicy\nkind: Pod', /Cannot read the policies: the key "kind" is there twice/],
      [`a: &a [1]\n${'b: [*a, *a, *a, *a, *a]\n'.repeat(40)}`, /Cannot read the policies/],
      ['kind: NetworkPolicy\nmetadata: {name: A}', /NetworkPolicy: metadata\.name "A"/],
      [`${one.slice(0, -1)}, policyTypes: [In]}`, /policyTypes "In": want Ingress or Egress/],
      ['x'.repeat(300_000), /300000 characters: want 262144 at most/],
    ] as const)
      assert.throws(() => atOnce(draftsOf(text)), why)
  })
  it('are read in about a second, whatever is written, and a comparison ends after two', async function () {
    this.timeout(60_000)
    const many = (piece: string) => piece.repeat(Math.floor(262_144 / piece.length))
    const longest = (work: () => void, why: RegExp) => {
      const begun = process.cpuUsage()
      assert.throws(work, why)
      const { user, system } = process.cpuUsage(begun)
      return (user + system) / 1e6
    }
    // The first two took 22 s and 28 s.
    for (const text of [
      `{${many('a,')}`.slice(1),
      `[${many('? ')}`.slice(1),
      many('!a '),
      many('['),
      many('- '),
      many('---\n'),
    ])
      assert.ok(longest(() => atOnce(draftsOf(text)), /./) < 5, text.slice(0, 10))
    const known = world(generator(9), 250, 0)
    const ports = Array.from({ length: 2000 }, (_, i) => `{port: ${2 * i + 1}}`).join()
    const draft = (namespace: string) =>
      `{kind: NetworkPolicy, metadata: {name: a, namespace: ${namespace}}, spec: {podSelector: {}, ingress: [{ports: [${ports}]}]}}`
    const drafts = atOnce(draftsOf(NAMESPACES.map(draft).join('\n---\n')))
    await assert.rejects(
      inPieces(comparisonOf(known, drafts), MOST),
      /takes longer than 2 s: want fewer policies or ports/,
    )
  })
})

// The same world after `kubectl apply`.
function applied(known: PolicyKnowledge, { policies, clusterPolicies }: Drafts): PolicyKnowledge {
  const cluster = {
    ...known.cluster,
    policies: new Map(
      [...known.cluster.policies.values(), ...policies].map((one) => [`${one.namespace}/${one.name}`, one]),
    ),
    clusterPolicies: new Map(
      [...known.cluster.clusterPolicies.values(), ...clusterPolicies].map((one) => [one.name, one]),
    ),
  }
  return { ...known, cluster, state: compile(cluster, 'n') }
}

// Whether words such as `TCP 80, 8000-8080; UDP all ports` have a port.
function has(words: string, protocol: string, port: number): boolean {
  return words.split('; ').some((one) => {
    const [, name, ranges = ''] = /^(TCP|UDP|SCTP) (.*)$/.exec(one) ?? []
    if (name !== protocol) return false
    if (ranges === 'all ports') return true
    return ranges.split(', ').some((range) => {
      const [from = 0, to = from] = range.split('-').map(Number)
      return port >= from && port <= to
    })
  })
}
