// Tests agent/cluster: objects of a folder of manifests, read as the Kubernetes API reads them.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { policyOf } from '../../agent/cluster/objects.ts'
import { openObjects } from '../../agent/cluster/source.ts'
import { until } from '../support/harness.ts'

const policy = (spec: object, name = 'deny') => ({ kind: 'NetworkPolicy', metadata: { namespace: 'x', name }, spec })

describe('a folder of manifests', () => {
  it('[F5] policyTypes that are absent, blank or empty are filled in as by the API: egress counts when it has a rule', () => {
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

  it('[F5] a number as the value of a label is refused, as by the API: it would make a selector wider', () => {
    assert.throws(() => policyOf(policy({ podSelector: { matchLabels: { app: 'a', version: 2 } } })), /^ValueError: NetworkPolicy x\/deny: spec\.podSelector\.matchLabels\["version"\] 2: want a text: "2"$/)
    assert.deepEqual(policyOf(policy({ podSelector: { matchLabels: { app: null } } })).pods, [{ key: 'app', operator: 'In', values: [''] }])
  })

  it('[F5] of a file with an error the last good objects stay; a policy that was never read closes its pods, and each is named', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-manifests-'))
    const end = new AbortController()
    const write = (file: string, ...objects: readonly object[]) => writeFileSync(join(dir, file), objects.map((one) => JSON.stringify(one)).join('\n---\n'))
    try {
      write('good.yaml', policy({ podSelector: { matchLabels: { app: 'a' } }, ingress: [{}] }))
      write('bad.yaml', policy({ podSelector: { matchLabels: { app: 'b' } }, policyTypes: ['ingress'] }, 'bad'), policy({ podSelector: { matchLabels: { app: 3 } } }, 'worse'))
      const source = openObjects({ from: 'folder', dir }, ['policies'], 'test')
      const { policies } = source.objects
      void source.run(end.signal)
      await until(() => source.isComplete(['policies']))
      const good = policies.get('x/deny')
      assert.deepEqual(good?.ingress?.length, 1)
      assert.deepEqual(policies.get('x/bad'), { namespace: 'x', name: 'bad', pods: [{ key: 'app', operator: 'In', values: ['b'] }], ingress: [], egress: [] })
      assert.deepEqual(policies.get('x/worse')?.pods, [])
      assert.match(source.refused(['policies']).join('\n'), /bad\.yaml: NetworkPolicy x\/bad: spec\.policyTypes "ingress".*\n.*bad\.yaml: NetworkPolicy x\/worse: /)
      // The object cannot be read any more, then the whole file.
      write('good.yaml', policy({ podSelector: { matchLabels: { app: 'a' } }, ingress: 'none' }))
      await until(() => source.refused(['policies']).some((one) => one.includes('good.yaml')))
      assert.deepEqual(policies.get('x/deny'), good)
      writeFileSync(join(dir, 'good.yaml'), 'kind: NetworkPolicy\n  metadata: {')
      await until(() => source.refused(['policies']).some((one) => /good\.yaml: (?!NetworkPolicy)/.test(one)))
      assert.deepEqual(policies.get('x/deny'), good)
      write('good.yaml')
      await until(() => !policies.has('x/deny'))
    } finally {
      end.abort()
      rmSync(dir, { recursive: true })
    }
  })
})
