// lane: quick
// Tests conf/agent.yaml and conf/plumb-agent.service together: the unit starts the agent with these settings.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { parse } from 'yaml'
import { FLAGS } from '../../agent/settings/flags.ts'
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
})

function settingsOf(argv: readonly string[], path?: string, text = ''): Settings {
  if (path !== undefined) parse(text)
  return readSettings(argv, {}, path === undefined ? undefined : { path, text }, 'host-a')
}

function read(name: string): string {
  return readFileSync(join(ROOT, name), 'utf8')
}
