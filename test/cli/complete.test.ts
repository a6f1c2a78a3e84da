// lane: quick
// Tests cli/complete.ts, and conf/completions/plumb.bash.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { commands } from '../../cli/commands.ts'
import { commandWords } from '../support/command-words.ts'

const ROOT = join(import.meta.dir, '../..')
const DIST = join(ROOT, 'dist')

describe('plumb __complete', () => {
  let dir = ''
  before(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-complete-'))
    writeFileSync(
      join(dir, '10-pods.conflist'),
      '{ "name": "pods", "plugins": [{ "type": "bridge" }, { "type": "portmap" }] }',
    )
    writeFileSync(join(dir, '20-pods.conf'), '{ "name": "pods", "type": "ptp" }')
    writeFileSync(join(dir, '30-odd.conf'), '{ "name": "$(reboot)", "type": "bridge" }')
    writeFileSync(join(dir, '40-torn.conflist'), '{ "name": ')
  })
  after(() => rmSync(dir, { recursive: true }))
  const lines = async (...words: string[]) =>
    (await execa(join(DIST, 'plumb'), ['__complete', ...words], { env: { NETCONFPATH: dir } })).stdout
      .split('\n')
      .filter(Boolean)
  const candidates = async (...words: string[]) => (await lines(...words)).map((line) => line.split('\t')[0] ?? '')

  it('names the commands, and those that begin as the word does', async () => {
    assert.deepEqual(await candidates(''), [...Object.keys(commands), 'help'])
    assert.deepEqual(
      [await candidates('de'), await candidates('cni', 'e'), await candidates('help', 'br')],
      [['demo'], ['explain'], ['bridge']],
    )
  })
  it('names the options of each command as its help does, and says what they are', async () => {
    // The help of cni has its verbs alone, and each verb has its options.
    for (const words of (await commandWords()).filter((one) => one !== 'cni')) {
      const [argv, { stdout: help }] = [
        words.split(' '),
        await execa(join(DIST, 'plumb'), [...words.split(' '), '--help']),
      ]
      const found = await candidates(...argv, '-')
      assert.ok(found.length > 0, words)
      for (const option of found) assert.match(help, new RegExp(`^ +(-\\w, )?${option}\\b`, 'm'), words)
    }
    assert.deepEqual(await lines('install', '--with'), [
      '--with-plumb\tinstall the program plumb beside the plugins too',
    ])
    assert.ok(!(await candidates('agent', '--')).includes('--vmodule'), 'a flag without an effect')
  })
  it('names the values of an option, in the forms of all shells', async () => {
    assert.deepEqual(await candidates('agent', '--store', ''), ['file', 'etcd', 'kube'])
    assert.deepEqual(await candidates('agent', '-store', 'k'), ['kube'])
    assert.deepEqual(await candidates('agent', '--store=k'), ['--store=kube'])
    assert.deepEqual(
      [await candidates('agent', '--store', '='), await candidates('agent', '--store', '=', 'k')],
      [['file', 'etcd', 'kube'], ['kube']],
    )
    assert.deepEqual(await candidates('agent', '--iface', 'l'), ['lo'])
  })
  it('names networks, also of --conf-dir, and none that a shell would take for more than a name', async () => {
    assert.deepEqual(await lines('cni', 'add', ''), ['pods\tbridge, portmap'])
    assert.deepEqual(await candidates('cni', 'add', '--conf-dir', join(ROOT, 'conf'), 'by'), ['by-source'])
    assert.deepEqual(await candidates('cni', 'add', '--conf-dir', '=', join(ROOT, 'conf'), '--json', 'by'), [
      'by-source',
    ])
    assert.deepEqual(await candidates('cni', 'add', 'pods', 'eth0', ''), [])
  })
  it('names nothing where only the user knows, and for a command that does not exist', async () => {
    for (const words of [
      ['install', '--bin-dir', ''],
      ['cni', 'fuse', ''],
      ['nonsense', ''],
      ['cni', 'add', '--', 'x'],
      ['toString', ''],
    ])
      assert.deepEqual(await lines(...words), [], words.join(' '))
  })

  it('bash completes by conf/completions/plumb.bash', async () => {
    const script = `source ${join(ROOT, 'conf/completions/plumb.bash')}
complete -p plumb
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _plumb; echo "\${COMPREPLY[*]}"; }
complete_line plumb ag
complete_line plumb cni add ''
complete_line plumb agent --store = ''
complete_line plumb install --bin-dir ''`
    const { stdout } = await execa('bash', ['--norc', '-c', script], {
      env: { NETCONFPATH: dir, PATH: `${DIST}:${process.env['PATH']}` },
      stripFinalNewline: false,
    })
    assert.equal(stdout, 'complete -o default -o nosort -F _plumb plumb\nagent\npods\nfile etcd kube\n\n')
  })
})
