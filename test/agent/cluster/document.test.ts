// lane: long
// Tests agent/cluster/document.ts: manifests with blank values, unknown keys and wrong kinds, in a folder and as drafts.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readManifests } from '../../../agent/cluster/source.ts'
import { draftsOf } from '../../../agent/policy/comparison.ts'
import { atOnce } from '../../../agent/scheduler/pieces.ts'
import { blankDocuments } from '../../support/blanks.ts'

function read(files: Readonly<Record<string, string | object>>) {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-documents-'))
  try {
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(dir, name), typeof content === 'string' ? content : JSON.stringify(content))
    const found = readManifests(dir)
    return { ...found, refused: found.refused.map((text) => text.replaceAll(`${dir}/`, '')) }
  } finally {
    rmSync(dir, { recursive: true })
  }
}

const policy = (spec: object, more: object = {}) => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { namespace: 'x', name: 'a' },
  spec,
  ...more,
})
const APP = { matchLabels: { app: 'a' } }

describe('documents of manifests', () => {
  it('a blank value at any place means what it means to the API server: absent, an empty text, or no such object', () => {
    const all = blankDocuments()
    assert.ok(all.length > 90, `${all.length}`)
    for (const { kind, path, blank, meant } of all) {
      const [is, want] = [read({ 'a.yaml': blank }), meant && read({ 'a.yaml': meant })]
      const what = `${path} of ${kind}: ${is.refused.join()}`
      if (want) {
        assert.deepEqual(is.objects, want.objects, what)
        assert.deepEqual(is.refused.length, want.refused.length, what)
      } else assert.equal(is.refused.length, 1, what)
    }
  })

  it('a draft with an unknown key, or of another API, is refused by its name', () => {
    for (const document of [
      policy({ podSelector: APP, egres: [] }),
      policy({ podSelector: APP }, { specs: {} }),
      policy({ podSelector: APP, ingress: ['all'] }),
      policy({ podSelector: APP }, { apiVersion: 'projectcalico.org/v3' }),
    ])
      assert.throws(() => atOnce(draftsOf(JSON.stringify(document))), /^ValueError: NetworkPolicy x\/a: /)
  })

  it('a kind near a known one, a document without a kind, and a file of another ending are named; other kinds are not', () => {
    const { refused } = read({
      'a.yaml':
        'kind: NetworkPolicyy\nmetadata: { name: a }\n---\nkind: pod\n---\nkind: Namspace\n---\nmetadata: { name: b }\n---\n',
      'b.yaml':
        'kind: Deployment\n---\nkind: Role\n---\nkind: Job\n---\nkind: Endpoints\n---\nkind: ConfigMapList\nitems: []\n',
      'c.txt': '',
      '.hidden': '',
    })
    assert.deepEqual(refused, [
      'a.yaml: kind "NetworkPolicyy" is not read: want NetworkPolicy',
      'a.yaml: kind "pod" is not read: want Pod',
      'a.yaml: kind "Namspace" is not read: want Namespace',
      'a.yaml: kind is missing is not read: want Pod, Namespace, NetworkPolicy, ClusterNetworkPolicy, Node, Service, EndpointSlice, ServiceCIDR, AdminNetworkPolicy, BaselineAdminNetworkPolicy',
      'c.txt is not read: want a file .yaml, .yml or .json, or the folder without it',
    ])
  })

  it('two documents of one name are named, and the last one by the names of the files counts, as with kubectl', () => {
    const { objects, refused } = read({
      'b.yaml': policy({ podSelector: {} }),
      'a.yaml': policy({ podSelector: APP }),
      'c.yaml': [1, 2].map(() => JSON.stringify({ kind: 'Namespace', metadata: { name: 'z' } })).join('\n---\n'),
    })
    assert.deepEqual(refused, [
      'NetworkPolicy x/a is in a.yaml and in b.yaml: the last one counts',
      'Namespace z is twice in c.yaml: the last one counts',
    ])
    assert.deepEqual(objects.policies.get('x/a')?.pods, [])
  })

  it('a folder within the folder is named', () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-documents-'))
    mkdirSync(join(dir, 'more'))
    assert.match(readManifests(dir).refused.join(), /more is not read: want a file \.yaml/)
    rmSync(dir, { recursive: true })
  })
})
