// lane: quick
// Tests conf/kubernetes.yaml.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parse, parseAllDocuments } from 'yaml'
import { readSettings } from '../../agent/settings/read.ts'
import type { Settings } from '../../agent/settings/settings.ts'

const ROOT = join(import.meta.dir, '../..')

describe('conf/kubernetes.yaml', () => {
  const documents = parseAllDocuments(read('conf/kubernetes.yaml')).map((one) => {
    if ('errors' in one) assert.deepEqual(one.errors, [])
    return one.toJSON()
  })
  const of = (kind: string) => documents.find((one) => one.kind === kind)
  const [{ data }, { spec }] = [of('ConfigMap'), of('DaemonSet')]
  const { containers, volumes, ...pod } = spec.template.spec
  const [agent] = containers
  const settings = settingsOf(agent.args.slice(1), 'agent.yaml', data['agent.yaml'])

  it('holds settings that are read, with the node’s name from its environment, and a network', () => {
    assert.deepEqual(
      [agent.args[0], settings.notes, settings.files.install, settings.store.kind],
      ['agent', [], true, 'kube'],
    )
    assert.equal(
      agent.env.find(({ name }: { name: string }) => name === 'NODE_NAME').valueFrom.fieldRef.fieldPath,
      'spec.nodeName',
    )
    assert.equal(JSON.parse(data['net-conf.json']).Backend.Type, 'vxlan')
    assert.ok(settings.store.kind === 'kube' && mounted(settings.store.netConf))
  })

  it("gives the agent flannel's rights, the reading of what policies are about, the writing of Events, and no more", () => {
    const rights = of('ClusterRole').rules.map(
      ({ resources, verbs }: { resources: string[]; verbs: string[] }) => `${resources.join()}: ${verbs.join()}`,
    )
    assert.deepEqual(rights, [
      'pods: get,list,watch',
      'nodes: get,list,watch',
      'nodes/status: patch',
      'events: create,patch',
      'namespaces: get,list,watch',
      'networkpolicies: get,list,watch',
      'clusternetworkpolicies: get,list,watch',
      'adminnetworkpolicies,baselineadminnetworkpolicies: list,watch',
      'customresourcedefinitions: get',
    ])
    const [binding, account] = [of('ClusterRoleBinding'), of('ServiceAccount').metadata]
    assert.deepEqual(
      [binding.roleRef.name, binding.subjects[0].name, binding.subjects[0].namespace, pod.serviceAccountName],
      [of('ClusterRole').metadata.name, account.name, account.namespace, account.name],
    )
  })

  it('the uninstallation may only read Nodes and change their status, not read pods, namespaces and policies', () => {
    const [, role = ''] = /^kind: ClusterRole\n([\s\S]*?)^---/m.exec(read('conf/chart/templates/uninstall.yaml')) ?? []
    const rules = role.slice(role.indexOf('rules:'))
    assert.match(
      rules,
      /^rules:\n {2}- apiGroups: \[""\]\n {4}resources: \[nodes\]\n {4}verbs: \[get\]\n {2}- apiGroups: \[""\]\n {4}resources: \[nodes\/status\]\n {4}verbs: \[patch\]\n/,
    )
    assert.doesNotMatch(rules, /plumb\.rights|pods|namespaces|networkpolicies/)
  })

  it('runs in the node’s network, and has every path that the agent writes from the node itself', () => {
    assert.deepEqual([pod.hostNetwork, agent.securityContext.privileged], [true, true])
    for (const path of [
      dirname(settings.files.subnetEnv),
      dirname(settings.files.socket),
      dirname(settings.files.policySocket),
      settings.files.stateDir,
      settings.files.confDir,
      settings.files.binDir,
      '/run/cni',
      '/var/lib/cni',
    ])
      assert.equal(mounted(path)?.hostPath.path, path)
  })

  it('is probed where the status server listens', () => {
    const { host, port } = settings.status as NonNullable<Settings['status']>
    for (const probe of [agent.livenessProbe, agent.readinessProbe])
      assert.deepEqual([probe.httpGet.host, probe.httpGet.port], [host, port])
  })

  function mounted(path: string): { hostPath: { path: string } } | undefined {
    const mount = agent.volumeMounts.find(
      ({ mountPath }: { mountPath: string }) => path === mountPath || path.startsWith(`${mountPath}/`),
    )
    return volumes.find(({ name }: { name: string }) => name === mount?.name)
  }
})

function settingsOf(argv: readonly string[], path?: string, text = ''): Settings {
  if (path !== undefined) parse(text)
  return readSettings(argv, {}, path === undefined ? undefined : { path, text }, 'host-a')
}

function read(name: string): string {
  return readFileSync(join(ROOT, name), 'utf8')
}
