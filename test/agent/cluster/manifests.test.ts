// lane: long
// Tests agent/cluster: objects of a folder of manifests, read as the Kubernetes API reads them.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Api } from '../../../agent/cluster/api.ts'
import { clusterPolicyOf } from '../../../agent/cluster/cluster-policy.ts'
import { Collection } from '../../../agent/cluster/collection.ts'
import { KINDS } from '../../../agent/cluster/kinds.ts'
import { policyOf } from '../../../agent/cluster/objects.ts'
import { openObjects } from '../../../agent/cluster/source.ts'
import { until } from '../../support/harness.ts'
import { kubeServer } from '../../support/kube-server.ts'

const policy = (spec: object, name = 'deny') => ({ kind: 'NetworkPolicy', metadata: { namespace: 'x', name }, spec })

describe('a folder of manifests', () => {
  it('policyTypes that are absent, blank or empty are filled in as by the API: egress counts when it has a rule', () => {
    const sides = (spec: object) => {
      const { ingress, egress } = policyOf(policy({ podSelector: {}, ...spec }))
      return [ingress !== undefined, egress !== undefined]
    }
    for (const types of [{}, { policyTypes: null }, { policyTypes: [] }]) {
      assert.deepEqual(sides(types), [true, false])
      assert.deepEqual(sides({ ...types, egress: [] }), [true, false])
      assert.deepEqual(sides({ ...types, egress: null }), [true, false])
      assert.deepEqual(sides({ ...types, egress: [{}] }), [true, true])
    }
    assert.deepEqual(sides({ policyTypes: ['Egress'] }), [false, true])
  })

  it('a number as the value of a label is refused, as by the API: it would make a selector wider', () => {
    assert.throws(
      () => policyOf(policy({ podSelector: { matchLabels: { app: 'a', version: 2 } } })),
      /^ValueError: NetworkPolicy x\/deny: spec\.podSelector\.matchLabels\["version"\] 2: want a text: "2"$/,
    )
    assert.deepEqual(policyOf(policy({ podSelector: { matchLabels: { app: null } } })).pods, [
      { key: 'app', operator: 'In', values: [''] },
    ])
  })

  it('of a file with an error the last good objects stay; a policy that was never read closes its pods, and each is named', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-manifests-'))
    const end = new AbortController()
    const write = (file: string, ...objects: readonly object[]) =>
      writeFileSync(join(dir, file), objects.map((one) => JSON.stringify(one)).join('\n---\n'))
    try {
      write('good.yaml', policy({ podSelector: { matchLabels: { app: 'a' } }, ingress: [{}] }))
      write(
        'bad.yaml',
        policy({ podSelector: { matchLabels: { app: 'b' } }, policyTypes: ['ingress'] }, 'bad'),
        policy({ podSelector: { matchLabels: { app: 3 } } }, 'worse'),
      )
      const source = openObjects({ from: 'folder', dir }, ['policies'], 'test')
      const { policies } = source.objects
      void source.run(end.signal)
      await until(() => source.isComplete(['policies']))
      const good = policies.get('x/deny')
      assert.deepEqual(good?.ingress?.length, 1)
      assert.deepEqual(policies.get('x/bad'), {
        namespace: 'x',
        name: 'bad',
        pods: [{ key: 'app', operator: 'In', values: ['b'] }],
        ingress: [],
        egress: [],
      })
      assert.deepEqual(policies.get('x/worse')?.pods, [])
      assert.match(
        source.refused(['policies']).join('\n'),
        /bad\.yaml: NetworkPolicy x\/bad: spec\.policyTypes "ingress".*\n.*bad\.yaml: NetworkPolicy x\/worse: /,
      )
      // The object cannot be read any more, then the whole file.
      write('good.yaml', policy({ podSelector: { matchLabels: { app: 'a' } }, ingress: 'none' }))
      await until(() => source.refused(['policies']).some((one) => one.includes('good.yaml')))
      assert.deepEqual(policies.get('x/deny'), good)
      writeFileSync(join(dir, 'good.yaml'), 'kind: NetworkPolicy\n  metadata: {')
      await until(() => source.refused(['policies']).some((one) => /good\.yaml: (?!NetworkPolicy)/.test(one)))
      assert.deepEqual(policies.get('x/deny'), good)
      // A program that writes a file in place empties it first.
      write('good.yaml')
      await until(() => source.refused(['policies']).some((one) => /good\.yaml: it is empty; want/.test(one)))
      assert.deepEqual(policies.get('x/deny'), good)
      rmSync(join(dir, 'good.yaml'))
      await until(() => !policies.has('x/deny'))
    } finally {
      end.abort()
      rmSync(dir, { recursive: true })
    }
  })

  it('while the folder is missing, unreadable or an empty mount point, the last objects stay, and the reason is told', async () => {
    const root = mkdtempSync(join(tmpdir(), 'plumb-manifests-'))
    const [dir, away] = [join(root, 'manifests'), join(root, 'away')]
    const end = new AbortController()
    const source = openObjects({ from: 'folder', dir }, ['policies'], 'test')
    const { policies } = source.objects
    const told = (pattern: RegExp) => until(() => pattern.test(source.trouble(['policies']) ?? ''), 20_000)
    let notes = 0
    source.changes(['policies'], () => notes++)
    try {
      void source.run(end.signal)
      await told(/^There is no folder .*manifests; want/)
      assert.equal(source.isComplete(['policies']), false)
      mkdirSync(dir)
      writeFileSync(join(dir, 'deny.yaml'), JSON.stringify(policy({ podSelector: {} })))
      await until(() => policies.has('x/deny'), 20_000)
      assert.equal(source.trouble(['policies']), undefined)
      renameSync(dir, away)
      await told(/^There is no folder .*manifests; want/)
      assert.equal(policies.has('x/deny'), true)
      // What an unmounted file system leaves.
      mkdirSync(dir)
      await told(/another folder than before, without manifests/)
      assert.equal(policies.has('x/deny'), true)
      rmSync(dir, { recursive: true })
      const before = notes
      writeFileSync(dir, '')
      await told(/^Cannot read the folder .*manifests/)
      assert.ok(notes > before)
      assert.deepEqual([policies.has('x/deny'), source.isComplete(['policies'])], [true, true])
      rmSync(dir)
      renameSync(away, dir)
      await until(() => source.trouble(['policies']) === undefined, 20_000)
      rmSync(join(dir, 'deny.yaml'))
      await until(() => !policies.has('x/deny'), 20_000)
    } finally {
      end.abort()
      rmSync(root, { recursive: true })
    }
  })

  it('a rule of ClusterNetworkPolicy that nobody can read fails closed and is named; the other rules count', () => {
    const everyone = { namespaces: {} }
    const read = (...ingress: readonly object[]) =>
      clusterPolicyOf({ metadata: { name: 'a' }, spec: { tier: 'Admin', priority: 1, subject: everyone, ingress } })
    const from = [everyone]
    const peers = [{ namespaces: [], pods: [] }]
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ from, protocols: [{ icmp: {} }] }, /protocols\[0\]: want tcp/],
      [{ from, protocols: [{ tcp: { destinationPort: { number: 70_000 } } }] }, /destinationPort 70000/],
      [
        { from: [{ pods: { podSelector: { matchExpressions: [{ key: 'a', operator: 'Like' }] } } }] },
        /operator "Like"/,
      ],
      [{}, /from is missing/],
    ]
    for (const [rule, told] of bad) {
      for (const action of ['Deny', 'Pass', 'Log']) {
        const { ingress, leftOut } = read({ action, ...rule }, { action: 'Accept', from })
        assert.deepEqual(ingress, [{ action: 'Deny' }, { action: 'Accept', peers }])
        if (action !== 'Log') assert.match(leftOut?.join() ?? '', told)
        assert.match(
          leftOut?.join() ?? '',
          /^ClusterNetworkPolicy a: spec\.ingress\[0\].*; the rule denies everything$/,
        )
      }
      const { ingress, leftOut } = read({ action: 'Accept', ...rule }, { action: 'Deny', from })
      assert.deepEqual(ingress, [
        { action: 'Accept', peers: [] },
        { action: 'Deny', peers },
      ])
      assert.match(leftOut?.join() ?? '', /; the rule accepts nothing$/)
    }
    assert.equal(read({ action: 'Deny', from }).leftOut, undefined)
  })

  it('a ClusterNetworkPolicy that becomes unreadable as a whole stays as it was', () => {
    const given = {
      metadata: { name: 'a' },
      spec: {
        tier: 'Admin',
        priority: 1,
        subject: { namespaces: {} },
        ingress: [{ action: 'Deny', from: [{ namespaces: {} }] }],
      },
    }
    const collection = new Collection(
      new Api(
        {
          server: 'http://127.0.0.1:1',
          origin: 'nobody',
          tls: async () => ({}),
          headers: async () => ({}),
          refused() {},
        },
        'test',
      ),
      KINDS.clusterPolicies,
    )
    collection.apply({ type: 'ADDED', object: given })
    const known = collection.items.get('a')
    assert.ok(known)
    collection.apply({ type: 'MODIFIED', object: { ...given, spec: { ...given.spec, priority: 'high' } } })
    assert.equal(collection.items.get('a'), known)
    assert.match(collection.refused.get('a') ?? '', /priority "high"/)
  })

  it('a ClusterNetworkPolicy that was never read denies what it has rules for, to the pods that it selects; one that was read stays as it was', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-manifests-'))
    const end = new AbortController()
    const policyFile = (name: string, spec: object) =>
      writeFileSync(
        join(dir, `${name}.yaml`),
        JSON.stringify({ kind: 'ClusterNetworkPolicy', metadata: { name }, spec }),
      )
    const subject = { pods: { podSelector: { matchLabels: { app: 'a' } } } }
    const rule = { action: 'Accept', from: [{ namespaces: {} }] }
    try {
      policyFile('good', { tier: 'Admin', priority: 7, subject, ingress: [rule] })
      policyFile('list', { tier: 'Baseline', priority: 9, subject, ingress: rule })
      policyFile('subject', {
        tier: 'Admin',
        priority: 1,
        subject: { pods: { podSelector: { matchLabels: { app: 3 } } } },
        ingress: [rule],
        egress: 'none',
      })
      policyFile('tier', { tier: 'admin', priority: -1, subject, ingress: [], egress: [] })
      const source = openObjects({ from: 'folder', dir }, ['clusterPolicies'], 'test')
      const { clusterPolicies } = source.objects
      void source.run(end.signal)
      await until(() => source.isComplete(['clusterPolicies']))
      const good = clusterPolicies.get('good')
      const [closed, pods] = [[{ action: 'Deny' }], [{ key: 'app', operator: 'In', values: ['a'] }]]
      assert.equal(good?.ingress[0]?.action, 'Accept')
      assert.deepEqual(clusterPolicies.get('list'), {
        name: 'list',
        tier: 'Baseline',
        priority: 9,
        subject: { namespaces: [], pods },
        ingress: closed,
        egress: [],
      })
      assert.deepEqual(clusterPolicies.get('subject'), {
        name: 'subject',
        tier: 'Admin',
        priority: 1,
        subject: { namespaces: [], pods: [] },
        ingress: closed,
        egress: closed,
      })
      assert.deepEqual(clusterPolicies.get('tier'), {
        name: 'tier',
        tier: 'Admin',
        priority: 0,
        subject: { namespaces: [], pods },
        ingress: [],
        egress: [],
      })
      assert.equal(source.refused(['clusterPolicies']).length, 3)
      policyFile('good', { tier: 'Admin', priority: 7, subject, ingress: 'all' })
      await until(() => source.refused(['clusterPolicies']).some((one) => one.includes('good.yaml')))
      assert.deepEqual(clusterPolicies.get('good'), good)
    } finally {
      end.abort()
      rmSync(dir, { recursive: true })
    }
  })

  it('an API that is away, or no longer allows a kind, is told of when it lasts; what is known stays', async function () {
    this.timeout(120_000)
    const server = await kubeServer()
    const end = new AbortController()
    const source = openObjects({ from: 'api', kubeconfig: server.kubeconfig }, ['nodes'], 'test')
    let notes = 0
    source.changes(['nodes'], () => notes++)
    const trouble = () => source.trouble(['nodes'])
    try {
      void source.run(end.signal)
      await until(() => source.isComplete(['nodes']) && server.asked().some((one) => one.includes('watch=true')))
      server.close()
      const began = performance.now()
      let before = notes
      await until(() => notes > before, 40_000)
      assert.match(trouble() ?? '', /does not answer/)
      assert.ok(performance.now() - began > 8000)
      before = notes
      server.open()
      await until(() => trouble() === undefined, 20_000)
      server.tell('{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}')
      await until(() => notes > before, 20_000)
      server.fault = () => new Response('{"message":"nodes is forbidden"}', { status: 403 })
      server.cut()
      before = notes
      await until(() => notes > before, 40_000)
      assert.match(trouble() ?? '', /403 nodes is forbidden; want a role/)
      assert.equal(source.isComplete(['nodes']), true)
      // An agent that starts now.
      const other = openObjects({ from: 'api', kubeconfig: server.kubeconfig }, ['nodes'], 'test')
      void other.run(end.signal)
      await until(() => /403 nodes is forbidden/.test(other.trouble(['nodes']) ?? ''))
      assert.equal(other.isComplete(['nodes']), false)
    } finally {
      end.abort()
    }
  })
})
