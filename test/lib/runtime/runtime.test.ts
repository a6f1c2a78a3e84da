// lane: netns
// Tests lib/runtime.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { listCached, readCached } from '../../../lib/runtime/cache.ts'
import { parseNetwork } from '../../../lib/runtime/network-list.ts'
import { addNetwork, checkNetwork, delNetwork, gcNetwork, statusNetwork } from '../../../lib/runtime/runtime.ts'
import { parse } from '../../../lib/text/values.ts'
import { until } from '../../support/harness.ts'
import { ADDED, at, list, makeRoom, type Room } from '../../support/recorder-plugin.ts'

let room: Room
beforeEach(() => {
  room = makeRoom()
})
afterEach(() => room.remove())

describe('addNetwork()', () => {
  it('passes each result on and gives the last', async () => {
    assert.deepEqual(await addNetwork(list(), at(), room.host), ADDED.two)
    assert.deepEqual(room.calls(), ['ADD one c1 eth0 /run/netns/pod', 'ADD two c1 eth0 /run/netns/pod'])
    assert.deepEqual(room.stdin('one', 'ADD'), { type: 'one', key: 1, cniVersion: '1.0.0', name: 'net' })
    assert.deepEqual(room.stdin('two', 'ADD'), { type: 'two', cniVersion: '1.0.0', name: 'net', prevResult: ADDED.one })
  })
  it('after a failure runs no further plugin, remembers nothing, and takes back what was added', async () => {
    room.answer('two', 'ADD', { code: 11, msg: 'no', details: 'later' }, 1)
    await assert.rejects(addNetwork(list({ plugins: ['one', 'two', 'three'] }), at(), room.host), {
      name: 'CniError',
      code: 11,
      message: 'plugin type="two" failed (add): no',
      details: 'later',
    })
    assert.deepEqual(room.calls('verbs'), ['ADD one', 'ADD two', 'DEL two', 'DEL one'])
    assert.deepEqual(room.stdin('one', 'DEL').prevResult, ADDED.one)
    assert.deepEqual(readdirSync(`${room.dir}/cache/results`), [])
  })
  it('tells what the rollback could not take back', async () => {
    room.answer('two', 'ADD', { code: 7, msg: 'no' }, 1)
    room.answer('one', 'DEL', { code: 5, msg: 'busy', details: 'br0' }, 1)
    await assert.rejects(addNetwork(list(), at(), room.host), {
      code: 7,
      details: 'rollback: plugin type="one" failed (del): busy: br0',
    })
  })
  it('takes everything back when the attachment cannot be remembered', async () => {
    mkdirSync(`${room.dir}/cache/results/net-c1-eth0`, { recursive: true })
    await assert.rejects(addNetwork(list(), at(), room.host), { code: 5, message: /^Cannot/ })
    assert.deepEqual(room.calls('verbs').slice(-2), ['DEL two', 'DEL one'])
  })
  it('refuses a second ADD without DEL, and does not touch the first', async () => {
    await addNetwork(list(), at(), room.host)
    await assert.rejects(addNetwork(list(), at(), room.host), { code: 7, message: /attached already/ })
    assert.deepEqual(room.calls('verbs'), ['ADD one', 'ADD two'])
  })
  it('hands each plugin the capabilities that it declares and that were supplied, and no capabilities key', async () => {
    const plugins = [
      { type: 'one', capabilities: { ips: true, mac: true, bandwidth: false } },
      { type: 'two', Capabilities: { dns: true } },
    ]
    await addNetwork(
      list({ plugins }),
      at({ capabilityArgs: { ips: ['10.1.0.9'], bandwidth: {}, portMappings: [] } }),
      room.host,
    )
    assert.deepEqual(room.stdin('one', 'ADD'), {
      type: 'one',
      cniVersion: '1.0.0',
      name: 'net',
      runtimeConfig: { ips: ['10.1.0.9'] },
    })
    assert.deepEqual(Object.keys(room.stdin('two', 'ADD')), ['type', 'cniVersion', 'name', 'prevResult'])
  })
  it('keeps numbers of the configuration that a double cannot hold', async () => {
    await addNetwork(
      parseNetwork('{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"one","big":12345678901234567890}]}', 'it'),
      at(),
      room.host,
    )
    assert.match(readFileSync(`${room.dir}/bin/one.ADD.stdin`, 'utf8'), /"big":12345678901234567890[,}]/)
  })
  it('hands arguments and environment on, and none of its own CNI variables', async () => {
    process.env['CNI_IFNAME'] = 'mine'
    try {
      await addNetwork(
        list(),
        at({
          args: [
            ['K', 'V'],
            ['IgnoreUnknown', '1'],
          ],
        }),
        room.host,
      )
      await statusNetwork(list({ cniVersion: '1.1.0' }), room.host)
    } finally {
      delete process.env['CNI_IFNAME']
    }
    assert.equal(room.calls()[0], 'ADD one c1 eth0 /run/netns/pod K=V;IgnoreUnknown=1')
    assert.equal(room.calls().at(-1), 'STATUS two')
  })
  it('converts a result of another version before it passes it on', async () => {
    room.answer('one', 'ADD', { cniVersion: '0.2.0', ip4: { ip: '10.1.0.2/24' } })
    await addNetwork(list(), at(), room.host)
    assert.deepEqual(room.stdin('two', 'ADD').prevResult, { cniVersion: '1.0.0', ips: [{ address: '10.1.0.2/24' }] })
  })
  const broken: [string, RegExp][] = [
    ['', /^Cannot read the result of one: /],
    ['{"ips":[{"address":"x"}]}', /^Cannot read the result of one\.ips\[0\]\.address "x": want/],
    ['{"cniVersion":"9.0.0"}', /cniVersion "9\.0\.0": want one of/],
  ]
  for (const [text, message] of broken) {
    it(`refuses and takes back a result that is ${JSON.stringify(text)}`, async () => {
      writeFileSync(`${room.dir}/bin/one.ADD.answer`, text)
      await assert.rejects(addNetwork(list(), at(), room.host), { name: 'CniError', code: 6, message })
      assert.deepEqual(room.calls('verbs'), ['ADD one', 'DEL one'])
    })
  }
})

describe('the cache', () => {
  it('keeps attachments apart, in libcni’s place, format and modes', async () => {
    const args = { args: [['K', 'V']] as const, capabilityArgs: { ips: ['10.1.0.9'] } }
    await addNetwork(list(), at(args), room.host)
    await addNetwork(list(), at({ ifname: parse.ifname('net1') }), room.host)
    assert.deepEqual(readdirSync(`${room.dir}/cache/results`).sort(), ['net-c1-eth0', 'net-c1-net1'])
    assert.deepEqual(
      [
        statSync(`${room.dir}/cache/results`).mode & 0o777,
        statSync(`${room.dir}/cache/results/net-c1-eth0`).mode & 0o777,
      ],
      [0o700, 0o600],
    )
    assert.deepEqual(JSON.parse(readFileSync(`${room.dir}/cache/results/net-c1-eth0`, 'utf8')), {
      kind: 'cniCacheV1',
      containerId: 'c1',
      config: Buffer.from(list().text).toString('base64'),
      ifName: 'eth0',
      networkName: 'net',
      netns: '/run/netns/pod',
      cniArgs: [['K', 'V']],
      capabilityArgs: { ips: ['10.1.0.9'] },
      result: ADDED.two,
    })
  })
  it('gives DEL and CHECK the arguments of ADD', async () => {
    const one = list({ plugins: [{ type: 'one', capabilities: { ips: true } }] })
    await addNetwork(one, at({ args: [['K', 'V']], capabilityArgs: { ips: ['10.1.0.9'] } }), room.host)
    await checkNetwork(one, at(), room.host)
    await delNetwork(one, at(), room.host)
    assert.deepEqual(
      room.calls().map((line) => line.replace(/ .* /, ' ')),
      ['ADD K=V', 'CHECK K=V', 'DEL K=V'],
    )
    assert.deepEqual(
      [room.stdin('one', 'CHECK').runtimeConfig, room.stdin('one', 'DEL').runtimeConfig],
      [{ ips: ['10.1.0.9'] }, { ips: ['10.1.0.9'] }],
    )
  })
  it('holds whole entries only, whenever the writer is killed', async function () {
    this.timeout(30_000)
    const key = { network: parse.network('net'), containerId: parse.containerId('c1'), ifname: parse.ifname('eth0') }
    const script = `const { writeCached } = await import(${JSON.stringify(join(import.meta.dir, '../../../lib/runtime/cache.ts'))})
for (let i = 1; ; i++) writeCached(${JSON.stringify(room.host.cacheDir)}, { network: 'net', containerId: 'c1', ifname: 'eth0', netns: '', args: [], capabilityArgs: {}, config: 'x'.repeat(300000), result: { i } })`
    let seen: number | undefined
    for (let round = 0; round < 8; round++) {
      const writer = execa(process.execPath, ['-e', script], { reject: false })
      seen = await until(() => {
        const { i } = (readCached(room.host.cacheDir, key)?.result ?? {}) as { i?: number }
        return i !== undefined && i !== seen && i > 1 + round ? i : undefined
      })
      writer.kill('SIGKILL')
      await writer
      assert.equal(readCached(room.host.cacheDir, key)?.config.length, 300_000)
    }
    writeFileSync(`${room.host.cacheDir}/results/.123-0.draft`, '{"kind":"cniCacheV1"')
    assert.deepEqual(listCached(room.host.cacheDir).unreadable, [])
    await gcNetwork(list(), [], room.host)
    assert.deepEqual(readdirSync(`${room.host.cacheDir}/results`), [])
  })
})

describe('delNetwork()', () => {
  it('runs the plugins last first with the final result, forgets, and may come again', async () => {
    await addNetwork(list(), at(), room.host)
    await delNetwork(list(), at(), room.host)
    assert.deepEqual(room.calls('verbs').slice(2), ['DEL two', 'DEL one'])
    assert.deepEqual([room.stdin('two', 'DEL').prevResult, room.stdin('one', 'DEL').prevResult], [ADDED.two, ADDED.two])
    assert.deepEqual(readdirSync(`${room.dir}/cache/results`), [])
    await delNetwork(list(), at({ netns: '' }), room.host)
    assert.equal(room.calls().at(-1), 'DEL one c1 eth0')
    assert.equal(room.stdin('one', 'DEL').prevResult, undefined)
  })
  it('gives no previous result below 0.4.0', async () => {
    const old = list({ cniVersion: '0.3.1' })
    await addNetwork(old, at(), room.host)
    await delNetwork(old, at(), room.host)
    assert.deepEqual(Object.keys(room.stdin('two', 'DEL')), ['type', 'cniVersion', 'name'])
  })
  it('goes on after a failing plugin, reports every failure, and remembers until all succeed', async () => {
    const three = list({ plugins: ['one', 'two', 'three'] })
    room.answer('three', 'ADD', ADDED.two)
    await addNetwork(three, at(), room.host)
    room.answer('three', 'DEL', { code: 5, msg: 'busy', details: 'br0' }, 1)
    room.answer('one', 'DEL', { code: 11, msg: 'wait' }, 1)
    const failure = {
      code: 5,
      message: '2 failures (del), the first: plugin type="three" failed (del): busy',
      details: 'plugin type="three" failed (del): busy: br0\nplugin type="one" failed (del): wait',
    }
    await assert.rejects(delNetwork(three, at(), room.host), failure)
    assert.deepEqual(room.calls('verbs').slice(-3), ['DEL three', 'DEL two', 'DEL one'])
    assert.equal(listCached(room.host.cacheDir).entries.length, 1)
    for (const name of ['one', 'three']) rmSync(`${room.dir}/bin/${name}.DEL.status`)
    await delNetwork(three, at(), room.host)
    assert.equal(listCached(room.host.cacheDir).entries.length, 0)
  })
  it('makes no folder where nothing was ever attached', async () => {
    await delNetwork(list(), at(), room.host)
    assert.ok(!existsSync(room.host.cacheDir))
  })
})

describe('checkNetwork()', () => {
  it('runs the plugins in order with the remembered result', async () => {
    await addNetwork(list(), at(), room.host)
    await checkNetwork(list(), at(), room.host)
    assert.deepEqual(room.calls('verbs').slice(2), ['CHECK one', 'CHECK two'])
    assert.deepEqual(
      [room.stdin('one', 'CHECK').prevResult, room.stdin('two', 'CHECK').prevResult],
      [ADDED.two, ADDED.two],
    )
  })
  it('does nothing with disableCheck, and is refused below 0.4.0 and for what is not attached', async () => {
    await addNetwork(list(), at(), room.host)
    await checkNetwork(list({ disableCheck: 'true' }), at(), room.host)
    assert.deepEqual(room.calls('verbs'), ['ADD one', 'ADD two'])
    await assert.rejects(checkNetwork(list({ cniVersion: '0.3.1' }), at(), room.host), {
      code: 1,
      message: /does not allow CHECK/,
    })
    await assert.rejects(checkNetwork(list(), at({ ifname: parse.ifname('net1') }), room.host), {
      code: 3,
      message: /it is not attached$/,
    })
  })
  for (const torn of ['', '{"kind":', '{"kind":"other"}', 'null']) {
    it(`fails on a cache that holds ${JSON.stringify(torn)}; DEL does not, and removes it`, async () => {
      await addNetwork(list(), at(), room.host)
      writeFileSync(`${room.dir}/cache/results/net-c1-eth0`, torn)
      await assert.rejects(checkNetwork(list(), at(), room.host), {
        code: 6,
        message: `Cannot read the cached result ${room.dir}/cache/results/net-c1-eth0`,
      })
      await delNetwork(list(), at(), room.host)
      assert.deepEqual(Object.keys(room.stdin('one', 'DEL')), ['type', 'key', 'cniVersion', 'name'])
      assert.match(room.warned.join(), /going on without it/)
      assert.deepEqual(readdirSync(`${room.dir}/cache/results`), [])
    })
  }
  it('converts the remembered result to the version of the list', async () => {
    await addNetwork(list({ cniVersion: '0.4.0' }), at(), room.host)
    await checkNetwork(list({ cniVersion: '1.1.0' }), at(), room.host)
    assert.deepEqual(room.stdin('one', 'CHECK').prevResult, {
      cniVersion: '1.1.0',
      interfaces: ADDED.one.interfaces,
      ips: [{ address: '10.1.0.2/24', interface: 0 }],
    })
  })
})
