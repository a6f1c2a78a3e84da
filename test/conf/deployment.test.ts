// lane: quick
// Tests conf and agent/settings.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { parse, parseAllDocuments } from 'yaml'
import { FLAGS, type Flag } from '../../agent/settings/flags.ts'
import { readSettings } from '../../agent/settings/read.ts'
import type { Settings } from '../../agent/settings/settings.ts'
import { fill } from '../../scripts/package/contents.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const DIST = join(ROOT, 'dist')
const unit = read('conf/plumb-agent.service')

describe('what is deployed', () => {
  it('conf/agent.yaml is read, and nothing in it is without effect', () => {
    const settings = settingsOf([], 'conf/agent.yaml', read('conf/agent.yaml'))
    assert.deepEqual(
      [settings.store.kind, settings.firewall.masquerade, settings.files.install, settings.notes],
      ['etcd', true, true, []],
    )
  })

  it('conf/agent.yaml: what is commented out would be read, too', () => {
    const all = read('conf/agent.yaml').replace(/^# (?=[a-z-]+: \S+$|iface: )/gm, '')
    assert.match(all, /^tunnel-address: /m)
    assert.deepEqual(settingsOf([], 'conf/agent.yaml', all).uplink.interfaces, ['eth0', '10.0.0.0'])
  })

  it('conf/plumb-agent.service starts the agent with settings that there are', () => {
    const [, argv = ''] = /^ExecStart=\/opt\/cni\/bin\/plumb agent (.*)$/m.exec(unit) ?? []
    assert.deepEqual(settingsOf(argv.split(' ')).said, ['config=/etc/plumb/agent.yaml'])
    for (const [, name = ''] of unit.matchAll(/\bFLANNELD_([A-Z_]+)/g))
      assert.ok(name.toLowerCase().replaceAll('_', '-') in FLAGS, name)
  })

  it('the package has agent.yaml for root alone, because a setting may be a password, and units that start its own program', () => {
    const root = mkdtempSync(join(tmpdir(), 'plumb-package-'))
    try {
      // A small file stands in for the program.
      const paths = fill(root, { plumb: join(ROOT, 'conf/agent.yaml'), sbom: '', manual: {}, epoch: 0 })
      const others = paths.filter((path) => path !== '/etc/plumb/agent.yaml' && path !== '/usr/bin/plumb')
      const modeOf = (path: string) => statSync(join(root, path)).mode & 0o777
      assert.equal(modeOf('/etc/plumb/agent.yaml'), 0o600)
      assert.deepEqual([...new Set(others.map(modeOf))], [0o644])
      for (const name of ['plumb-agent.service', 'plumb-dhcp.service'])
        assert.match(readFileSync(join(root, 'usr/lib/systemd/system', name), 'utf8'), /^ExecStart=\/usr\/bin\/plumb /m)
    } finally {
      rmSync(root, { recursive: true })
    }
  })

  it('the units start plumb where README’s plumb install --with-plumb puts it', () => {
    assert.match(read('README.md'), /^dist\/plumb install --with-plumb\n/m)
    for (const name of ['plumb-agent.service', 'plumb-dhcp.service'])
      assert.match(read(`conf/${name}`), new RegExp(`^ExecStart=${settingsOf([]).files.binDir}/plumb `, 'm'))
  })

  it('conf/plumb-agent.service leaves what the agent writes writable, and its files when it stops', () => {
    const { files } = settingsOf([])
    const [, writable = ''] = /^ReadWritePaths=(.*)$/m.exec(unit) ?? []
    for (const dir of [files.confDir, files.binDir])
      assert.ok(writable.split(' ').some((one) => `-${dir}`.startsWith(`${one}/`)) && unit.includes(` ${dir}`), dir)
    assert.match(
      unit,
      new RegExp(
        `^RuntimeDirectory=${dirname(files.subnetEnv).slice('/run/'.length)}\nRuntimeDirectoryPreserve=yes$`,
        'm',
      ),
    )
    assert.match(unit, new RegExp(`^StateDirectory=${files.stateDir.slice('/var/lib/'.length)}$`, 'm'))
  })

  it('conf/plumb-agent.service is what systemd takes, and is exposed no more than it has to be', async function () {
    if ((await execa('systemd-analyze', ['--version'], { reject: false })).exitCode !== 0)
      skip(this, 'no systemd-analyze')
    const dir = mkdtempSync(join(tmpdir(), 'plumb-unit-'))
    const path = join(dir, 'plumb-agent.service')
    writeFileSync(path, unit.replace('/opt/cni/bin/plumb', join(DIST, 'plumb')))
    try {
      const verified = await execa('systemd-analyze', ['verify', path], { reject: false, all: true })
      assert.deepEqual([verified.exitCode, verified.all], [0, ''])
      const { stdout } = await execa('systemd-analyze', ['security', '--offline=true', '--no-pager', path])
      const [, exposure] = /Overall exposure level for plumb-agent\.service: ([\d.]+)/.exec(stdout) ?? []
      assert.ok(Number(exposure) <= 4.5, stdout)
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

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
      const [, role = ''] =
        /^kind: ClusterRole\n([\s\S]*?)^---/m.exec(read('conf/chart/templates/uninstall.yaml')) ?? []
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

  it('docs/agent.md has every setting with its default and its meaning', () => {
    const rows = read('docs/agent.md')
      .split('\n')
      .filter((line) => /^\| `[a-z0-9_-]+` +\|/.test(line))
      .map((line) => line.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('`', '')))
    assert.deepEqual(
      rows.map(([, name, , fallback, about]) => [name, fallback, about]),
      Object.entries<Flag>(FLAGS).map(([name, { fallback, about }]) => [name, fallback.replace(',', ', '), about]),
    )
  })

  it('the pages that others point to are there', () => {
    for (const [, page = ''] of read('docs/agent.md').matchAll(/\]\(([\w-]+\.md)\)/g))
      assert.ok(existsSync(join(ROOT, 'docs', page)), page)
    assert.ok(existsSync(join(ROOT, 'docs/migrate-from-flannel.md')))
  })
})

function settingsOf(argv: readonly string[], path?: string, text = ''): Settings {
  if (path !== undefined) parse(text)
  return readSettings(argv, {}, path === undefined ? undefined : { path, text }, 'host-a')
}

function read(name: string): string {
  return readFileSync(join(ROOT, name), 'utf8')
}
