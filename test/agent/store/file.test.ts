// lane: netns
// Tests agent/store/file.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { decodeLease, encodeValue } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { openStore } from '../../../agent/store/open.ts'
import type { SubnetStore } from '../../../agent/store/store.ts'
import { parseCidr } from '../../../lib/text/ip.ts'
import { until } from '../../support/harness.ts'
import { random } from '../../support/seed.ts'
import { draft, type Held, SMALL, signal, watch } from '../../support/suites/leases.ts'
import { testStore } from '../../support/suites/testStore.ts'

const SMALL_CONF = parseNetworkConf(SMALL)
const made: string[] = []
const opened: SubnetStore[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()))
  for (const dir of made.splice(0)) rmSync(dir, { recursive: true, force: true })
})

/** A network in a fresh folder, with a configuration. */
function network(options: object = {}): Held & { readonly dir: string } {
  const held = bare(options)
  writeFileSync(join(held.dir, 'config'), SMALL)
  return held
}

/** One without. */
function bare(options: object = {}): Held & { readonly dir: string } {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-network-'))
  made.push(dir)
  return {
    dir,
    async open() {
      const store = await openStore({ store: 'file', dir, ...options })
      opened.push(store)
      return store
    },
    configure: async (text) => writeFileSync(join(dir, 'config'), text),
    async put(key, value) {
      mkdirSync(join(dir, 'subnets'), { recursive: true })
      writeFileSync(join(dir, '.by-hand'), value)
      renameSync(join(dir, '.by-hand'), join(dir, 'subnets', key))
    },
    del: async (key) => rmSync(join(dir, 'subnets', key)),
    async list() {
      // A killed writer leaves its draft.
      const names = readdirSync(dir).includes('subnets')
        ? readdirSync(join(dir, 'subnets')).filter((name) => !name.startsWith('.'))
        : []
      return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(dir, 'subnets', name), 'utf8')]))
    },
  }
}

describe('the file store', () => {
  testStore('file', async () => bare())
})

describe('the file store, between processes', () => {
  /** Runs a script in a process of its own, in which `claim(node, last)` claims. */
  function start(dir: string, script: string): Bun.Subprocess<'ignore', 'pipe', 'inherit'> {
    const imports = [
      'agent/store/open.ts',
      'agent/lease/network-configuration.ts',
      'test/support/suites/leases.ts',
    ].map((file) => JSON.stringify(join(import.meta.dir, '../../..', file)))
    const head = `const { openStore } = await import(${imports[0]}); const { parseNetworkConf } = await import(${imports[1]}); const { draft, SMALL, signal } = await import(${imports[2]})
      const store = await openStore({ store: 'file', dir: process.argv[1] })
      const claim = (node, last) => store.claim(draft(node, last), parseNetworkConf(SMALL), signal)`
    return Bun.spawn([process.execPath, '-e', `${head}\n${script}`, dir], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
    })
  }

  it('8 at once for 3 subnets: 3 have one each, 5 hear that there is none left', async () => {
    const { dir, list } = network()
    const children = Array.from({ length: 8 }, (_, i) =>
      start(
        dir,
        `console.log(await claim('n${i}', ${i + 2}).then(({ subnets }) => subnets.v4, ({ name }) => name)); process.exit()`,
      ),
    )
    const said = await Promise.all(children.map(async ({ stdout }) => (await new Response(stdout).text()).trim()))
    assert.deepEqual(said.sort(), [
      '10.5.1.0/24',
      '10.5.2.0/24',
      '10.5.3.0/24',
      ...Array.from({ length: 5 }, () => 'OutOfSubnetsError'),
    ])
    assert.equal(Object.keys(await list()).length, 3)
  })

  it('killed at any moment: what is there is whole, and the next claim finds its subnet or a free one', async () => {
    const { dir, open, list } = network()
    const store = await open()
    for (let i = 0; i < 15; i++) {
      const child = start(
        dir,
        `console.log('on'); for (let i = 0; ; i++) { await claim('a', 2 + i % 200); if (i % 3 === 2) await store.release('a') }`,
      )
      await child.stdout.getReader().read()
      await Bun.sleep(random() * 30)
      child.kill('SIGKILL')
      await child.exited
      for (const value of Object.values(await list())) assert.equal(encodeValue(decodeLease({}, value)), value)
      assert.ok(Object.keys(await list()).length <= 1)
      await store.claim(draft('a', 2), SMALL_CONF, signal)
      assert.deepEqual(Object.values(await list()), [encodeValue(draft('a', 2))])
      assert.deepEqual(
        readdirSync(join(dir, 'nodes')).filter((name) => !name.startsWith('.')),
        ['a'],
      )
    }
  })

  it('another process that keeps the lock: the claim says so, and changes nothing', async () => {
    const { dir, open, list } = network()
    const child = start(
      dir,
      `const { withLock } = await import(${JSON.stringify(join(import.meta.dir, '../../../lib/os/files.ts'))}); withLock(process.argv[1] + '/lock', () => { console.log('locked'); Bun.sleepSync(60000) })`,
    )
    await child.stdout.getReader().read()
    const store = await open()
    await assert.rejects(store.claim(draft('a', 2), SMALL_CONF, AbortSignal.timeout(200)), {
      name: 'StoreError',
      message: `Cannot claim a subnet in ${dir}: ${dir}/lock is locked by another process`,
    })
    assert.deepEqual(await list(), {})
    child.kill('SIGKILL')
    await store.claim(draft('a', 2), SMALL_CONF, signal)
  })
})

describe('the file store, on its disk', () => {
  it('keeps flannel’s value in subnets/, the node’s record in nodes/, both readable by all and neither a draft', async () => {
    const { dir, open } = network()
    await (await open()).claim(draft('a', 2, { before: { v4: parseCidr('10.5.2.0/24') } }), SMALL_CONF, signal)
    assert.deepEqual(readdirSync(dir).sort(), ['config', 'lock', 'nodes', 'subnets'])
    assert.deepEqual([readdirSync(join(dir, 'subnets')), readdirSync(join(dir, 'nodes'))], [['10.5.2.0-24'], ['a']])
    assert.equal(readFileSync(join(dir, 'nodes/a'), 'utf8'), '{"subnet":"10.5.2.0-24"}')
    for (const file of ['nodes/a', 'subnets/10.5.2.0-24']) assert.equal(statSync(join(dir, file)).mode & 0o777, 0o644)
  })

  it('a renewal that changes nothing writes nothing', async () => {
    const { dir, open } = network()
    const store = await open()
    await store.claim(draft('a', 2), SMALL_CONF, signal)
    const before = ['nodes', 'subnets'].map((folder) => statSync(join(dir, folder)).mtimeMs)
    await store.claim(draft('a', 2), SMALL_CONF, signal)
    assert.deepEqual(
      ['nodes', 'subnets'].map((folder) => statSync(join(dir, folder)).mtimeMs),
      before,
    )
  })

  it('leases with a time end unless renewed; the subnet is the next one’s, or the node’s again', async () => {
    const { open, list } = network({ ttlSeconds: 1, pollMs: 50 })
    const store = await open()
    const seen = watch(store)
    const { subnets, expires = 0 } = await store.claim(draft('a', 2), SMALL_CONF, signal)
    assert.ok(Math.abs(expires - Date.now() - 1000) < 500)
    await seen.until(({ leases }) => leases[0]?.expires === expires)
    await seen.until(({ leases }) => leases.length === 0)
    assert.deepEqual((await store.claim(draft('a', 2), SMALL_CONF, signal)).subnets, subnets)
    await seen.until(({ leases }) => leases.length === 1)
    await seen.until(({ leases }) => leases.length === 0)
    await store.claim(
      draft('n1', 11, { before: { v4: parseCidr(subnets.v4 === '10.5.1.0/24' ? '10.5.2.0/24' : '10.5.1.0/24') } }),
      SMALL_CONF,
      signal,
    )
    assert.deepEqual(Object.values(await list()), [encodeValue(draft('n1', 11))])
    for (const i of [1, 2, 3]) await store.claim(draft(`n${i}`, i + 10), SMALL_CONF, signal)
    await assert.rejects(store.claim(draft('a', 2, { before: subnets, fixed: true }), SMALL_CONF, signal), {
      name: 'SubnetTakenError',
    })
    await seen.end()
  })

  it('a folder that is gone, empty, or another one with a configuration is away: what is known stays, nothing is written there; it goes on when it is back', async () => {
    const kept = network()
    const { dir, open, put } = { ...network({ pollMs: 50 }), put: kept.put }
    await put('10.5.1.0-24', encodeValue(draft('', 2)))
    const [other, copy] = [network(), bare()]
    for (const { dir } of [other, copy]) await execa('mount', ['-t', 'tmpfs', 'tmpfs', dir])
    const bind = (from: string) => execa('mount', ['--bind', from, dir])
    const unmount = (at: string) => execa('umount', [at])
    try {
      rmSync(join(dir, 'config'))
      await bind(kept.dir)
      const store = await open()
      const seen = watch(store)
      await seen.until(({ leases }) => leases.length === 1)
      const isAway = async (why: RegExp) => {
        await until(() => !store.state().connected && why.test(store.state().error ?? ''))
        await assert.rejects(store.claim(draft('a', 3), SMALL_CONF, signal), { name: 'StoreError' })
        await assert.rejects(store.release('a'), { name: 'StoreError' })
        assert.equal(seen.all.at(-1)?.leases.length, 1)
      }
      const isBack = async (at: string, last: number) => {
        await until(() => store.state().connected)
        writeFileSync(join(at, 'subnets/10.5.1.0-24'), encodeValue(draft('', last)))
        await seen.until(({ leases }) => leases.length === 1 && leases[0]?.ips.v4 === `172.30.0.${last}`)
      }
      await unmount(dir)
      await isAway(/^There is no network configuration at .*\/config$/)
      assert.deepEqual(readdirSync(dir), [])
      await bind(kept.dir)
      await isBack(kept.dir, 4)
      // A mount point with a configuration of its own, on another file system.
      await unmount(dir)
      writeFileSync(join(other.dir, 'config'), SMALL)
      await bind(other.dir)
      await isAway(/is another folder than before, with none of the leases/)
      assert.deepEqual(readdirSync(other.dir), ['config'])
      // The same network, with another number of its file system.
      await unmount(dir)
      await execa('cp', ['-a', `${kept.dir}/.`, copy.dir])
      await bind(copy.dir)
      await isBack(copy.dir, 5)
      await unmount(dir)
      rmSync(dir, { recursive: true })
      await isAway(/^There is no network configuration/)
      assert.equal(readdirSync(join(dir, '..')).includes(dir.slice(dir.lastIndexOf('/') + 1)), false)
      await seen.end()
    } finally {
      for (const at of [dir, other.dir, copy.dir]) await execa('umount', ['--lazy', at], { reject: false })
    }
  })

  it('the folder is never made, with a configuration of its own neither', async () => {
    const { dir, open } = bare({ config: SMALL })
    rmSync(dir, { recursive: true })
    const store = await open()
    await assert.rejects(store.claim(draft('a', 2), SMALL_CONF, signal), {
      name: 'StoreError',
      message: `There is no folder ${dir}; want it made, or its file system mounted`,
    })
    mkdirSync(dir)
    await store.claim(draft('a', 2), SMALL_CONF, signal)
  })

  it('hears of changes at once, without its poll, when a folder is made, removed and made again', async () => {
    const { dir, open, put } = network({ pollMs: 60_000 })
    const seen = watch(await open())
    await seen.until(({ leases }) => leases.length === 0)
    for (let i = 0; i < 3; i++) {
      await put('10.5.1.0-24', encodeValue(draft('', i + 2)))
      await seen.until(({ leases }) => leases[0]?.ips.v4 === `172.30.0.${i + 2}`)
      rmSync(join(dir, 'subnets'), { recursive: true })
      await seen.until(({ leases }) => leases.length === 0)
    }
    await seen.end()
  })

  it('hears by its poll of what the kernel does not tell of: writes to the folder below a mount', async () => {
    const below = mkdtempSync('/run/below-')
    const dir = mkdtempSync('/run/shared-')
    mkdirSync(join(below, 'subnets'))
    writeFileSync(join(below, 'config'), SMALL)
    const empty = mkdtempSync('/run/empty-')
    await execa('mount', ['-t', 'overlay', 'overlay', '-o', `lowerdir=${below}:${empty}`, dir])
    try {
      const seen = watch(await network({ dir, pollMs: 100 }).open())
      await seen.until(({ leases }) => leases.length === 0)
      writeFileSync(join(below, 'subnets/10.5.1.0-24'), encodeValue(draft('', 2)))
      await seen.until(({ leases }) => leases.length === 1)
      writeFileSync(join(below, 'subnets/10.5.1.0-24'), encodeValue(draft('', 3)))
      await seen.until(({ leases }) => leases[0]?.ips.v4 === '172.30.0.3')
      await seen.end()
    } finally {
      await execa('umount', [dir])
    }
  })

  it('a disk that fails: state and error say so, what is known stays, and it goes on when the disk is back', async () => {
    const { dir, open, put } = network({ pollMs: 50 })
    await put('10.5.1.0-24', encodeValue(draft('', 2)))
    const store = await open()
    const seen = watch(store)
    await seen.until(({ leases }) => leases.length === 1)
    renameSync(join(dir, 'subnets'), join(dir, 'kept'))
    writeFileSync(join(dir, 'subnets'), 'a file in its place')
    await until(() => /^Cannot read the leases in .*: ENOTDIR/.test(store.state().error ?? ''))
    await assert.rejects(store.claim(draft('a', 3), SMALL_CONF, signal), { name: 'StoreError' })
    assert.equal(seen.all.at(-1)?.leases.length, 1)
    rmSync(join(dir, 'subnets'))
    renameSync(join(dir, 'kept'), join(dir, 'subnets'))
    await until(() => store.state().connected && store.state().error === undefined)
    await store.claim(draft('a', 3), SMALL_CONF, signal)
    await seen.until(({ leases }) => leases.length === 2)
    await seen.end()
  })

  it('a record that cannot be read says nothing: the node has its lease back by its address', async () => {
    const { dir, open } = network()
    const store = await open()
    const { subnets } = await store.claim(draft('a', 2), SMALL_CONF, signal)
    writeFileSync(join(dir, 'nodes/a'), 'no JSON')
    assert.deepEqual((await store.claim(draft('a', 2), SMALL_CONF, signal)).subnets, subnets)
  })

  it('config() takes the configuration that it was given, and reads no file', async () => {
    const { open, configure } = network({ config: SMALL })
    await configure('no JSON')
    assert.deepEqual(await (await open()).config(signal), SMALL_CONF)
  })
})
