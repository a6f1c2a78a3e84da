// lane: netns
// Tests lib/runtime.
import assert from 'node:assert/strict'
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { addNetwork, statusNetwork } from '../../../lib/runtime/runtime.ts'
import { until } from '../../support/harness.ts'
import { at, list, makeRoom, type Room } from '../../support/recorder-plugin.ts'

let room: Room
beforeEach(() => {
  room = makeRoom()
})
afterEach(() => room.remove())

describe('invoke()', () => {
  it('kills a plugin, and what it started, after the timeout', async () => {
    room.put('one', `#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nsleep 1000 &\necho $! $$ >${room.dir}/pids\nwait\n`)
    await assert.rejects(addNetwork(list(), at(), { ...room.host, timeoutMs: 500 }), {
      code: 11,
      message: 'plugin type="one" failed (add): timed out after 0.5 s and was killed',
    })
    const pids = readFileSync(`${room.dir}/pids`, 'utf8').trim().split(' ')
    assert.equal(pids.length, 2)
    await until(() =>
      pids.every(
        (pid) => !existsSync(`/proc/${pid}`) || /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')),
      ),
    )
  })
  it('does not wait for a daemon that keeps the pipes of a killed plugin open', async () => {
    room.put(
      'one',
      `#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nsetsid sh -c 'echo $$ >${room.dir}/pid; exec sleep 1000' &\nwait\n`,
    )
    try {
      await assert.rejects(addNetwork(list(), at(), { ...room.host, timeoutMs: 500 }), /timed out/)
    } finally {
      process.kill(Number(readFileSync(`${room.dir}/pid`, 'utf8')), 'SIGKILL')
    }
  })
  it('tries again while the executable is being written', async () => {
    const writer = openSync(`${room.dir}/bin/busy`, 'a')
    chmodSync(`${room.dir}/bin/busy`, 0o755)
    writeFileSync(writer, await Bun.file('/bin/true').bytes())
    const warn = (text: string) => {
      room.warned.push(text)
      closeSync(writer)
    }
    await statusNetwork(list({ cniVersion: '1.1.0', plugins: ['busy'] }), { ...room.host, warn })
    assert.deepEqual(room.warned, [`${room.dir}/bin/busy is being written (text file busy), trying again`])
  })
  const failing: [string, string, object][] = [
    [
      'an error object',
      `echo '{"code":100,"msg":"m","details":"d"}'; exit 1`,
      { code: 100, message: 'plugin type="one" failed (status): m', details: 'd' },
    ],
    [
      'words on stderr',
      'echo why >&2; exit 3',
      { code: 999, message: 'plugin type="one" failed (status): netplugin failed: exit status 3', details: 'why' },
    ],
    [
      'nothing',
      'exit 4',
      {
        code: 999,
        message: 'plugin type="one" failed (status): netplugin failed with no error message: exit status 4',
        details: '',
      },
    ],
    ['a signal', 'kill -SEGV $$', { code: 999, message: /netplugin failed with no error message: signal SIGSEGV$/ }],
    [
      'something else on stdout',
      'echo oops; exit 1',
      { code: 999, message: /its answer is no error object$/, details: /"oops\\n"$/ },
    ],
    ['an object without code', 'echo "{}"; exit 1', { code: 999, details: 'it has no code: "{}\\n"' }],
  ]
  for (const [what, script, failure] of failing) {
    it(`maps a plugin that fails with ${what}`, async () => {
      room.put('one', `#!/bin/sh\n${script}\n`)
      await assert.rejects(statusNetwork(list({ cniVersion: '1.1.0' }), room.host), { name: 'CniError', ...failure })
    })
  }
  it('passes on what a plugin says on stderr, when it succeeds and beside its error', async () => {
    writeFileSync(`${room.dir}/bin/one.STATUS.said`, 'a hint\n')
    await statusNetwork(list({ cniVersion: '1.1.0' }), room.host)
    room.answer('one', 'STATUS', { code: 50, msg: 'full' }, 1)
    await assert.rejects(statusNetwork(list({ cniVersion: '1.1.0' }), room.host))
    assert.deepEqual(room.warned, ['a hint\n', 'a hint\n'])
  })
  it('names a plugin that is nowhere, and where it looked', async () => {
    mkdirSync(`${room.dir}/bin/folder`)
    await assert.rejects(statusNetwork(list({ cniVersion: '1.1.0', plugins: ['folder'] }), room.host), {
      code: 7,
      message: 'Cannot find the plugin "folder"',
      details: `looked in ${room.dir}/none, ${room.dir}/bin (CNI_PATH)`,
    })
  })
  it('says that a file is no program', async () => {
    room.put('one', 'text')
    chmodSync(`${room.dir}/bin/one`, 0o644)
    await assert.rejects(statusNetwork(list({ cniVersion: '1.1.0' }), room.host), {
      code: 5,
      message: `Cannot start ${room.dir}/bin/one`,
      details: /EACCES/,
    })
  })
})
