// lane: quick
// Tests cli/dhcp.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { settingsOf } from '../../cli/dhcp.ts'
import { skip } from '../support/skip.ts'

const DEFAULTS = {
  socketPath: '/run/cni/dhcp.sock',
  hostPrefix: '',
  broadcast: false,
  timeoutMs: 10_000,
  resendMaxMs: 62_000,
  resendTimeoutMs: 208_000,
}

describe('the command line of plumb dhcp', () => {
  it('settingsOf() has the defaults of the reference', () => {
    assert.deepEqual(settingsOf([]), DEFAULTS)
  })

  it('settingsOf() reads options as Go does: one dash or two, with = or a word after it, and times such as 3m28s', () => {
    const words = [
      '-pidfile',
      '/run/dhcp.pid',
      '--hostprefix=/host/',
      '-socketpath=/run/x.sock',
      '-broadcast',
      '-timeout',
      '1500ms',
      '--resendmax',
      '1m',
      '-resendtimeout=3m28s',
    ]
    assert.deepEqual(settingsOf(words), {
      ...DEFAULTS,
      pidFile: '/run/dhcp.pid',
      hostPrefix: '/host',
      socketPath: '/run/x.sock',
      broadcast: true,
      timeoutMs: 1500,
      resendMaxMs: 60_000,
    })
    assert.equal(settingsOf(['-broadcast=false']).broadcast, false)
  })

  it('conf/plumb-dhcp.service and .socket start it with options that there are, where the plugin looks, and are what systemd takes', async function () {
    const [service, socket] = ['service', 'socket'].map((kind) =>
      readFileSync(join(import.meta.dir, `../../conf/plumb-dhcp.${kind}`), 'utf8'),
    ) as [string, string]
    const [, argv = ''] = /^ExecStart=\/usr\/local\/bin\/plumb dhcp ?(.*)$/m.exec(service) ?? []
    assert.ok(socket.includes(`ListenStream=${settingsOf(argv.split(' ').filter(Boolean)).socketPath}\n`))
    if ((await execa('systemd-analyze', ['--version'], { reject: false })).exitCode !== 0)
      skip(this, 'no systemd-analyze')
    const dir = mkdtempSync(join(tmpdir(), 'plumb-unit-'))
    writeFileSync(join(dir, 'plumb-dhcp.socket'), socket)
    writeFileSync(join(dir, 'plumb-dhcp.service'), service.replace('/opt/cni/bin/plumb', '/bin/true'))
    try {
      const verified = await execa(
        'systemd-analyze',
        ['verify', join(dir, 'plumb-dhcp.socket'), join(dir, 'plumb-dhcp.service')],
        { reject: false, all: true },
      )
      assert.deepEqual([verified.exitCode, verified.all], [0, ''])
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  for (const [words, message] of [
    [['-timeuot', '1s'], /no option "-timeuot", did you mean "-timeout"/],
    [['-timeout', '10'], /Cannot read -timeout "10": want a time such as 10s/],
    [['-timeout', '-1s'], /want a time/],
    [['-timeout'], /want a value after it/],
    [['-pidfile', 'here'], /want an absolute path/],
    [['-broadcast=maybe'], /want true or false/],
    [['serve'], /no option "serve"/],
  ] as const)
    it(`settingsOf() refuses ${words.join(' ')}`, () => {
      assert.throws(() => settingsOf(words), message)
    })
})
