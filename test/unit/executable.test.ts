// Tests the executable that scripts/build.ts makes.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { until } from '../support/harness.ts'
import { skip } from '../support/skip.ts'

const DIST = join(import.meta.dir, '../../dist')

// prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), which what it starts inherits, then execv(3).
const WITHOUT_WX = `
const { dlopen, ptr } = require('bun:ffi')
const { prctl, execv } = dlopen('libc.so.6', { prctl: { args: ['i32', 'u64', 'u64', 'u64', 'u64'], returns: 'i32' }, execv: { args: ['ptr', 'ptr'], returns: 'i32' } }).symbols
const file = Buffer.from(process.argv.at(-1) + '\\0')
const argv = new BigUint64Array([BigInt(ptr(file)), 0n])
if (prctl(65, 1, 0, 0, 0) !== 0) process.exit(77)
execv(file, argv)
`

describe('the executable', () => {
  let dir = ''
  let proof = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-executable-'))
    proof = join(dir, 'executed')
    writeFileSync(join(dir, 'evil.js'), `require('node:fs').writeFileSync(${JSON.stringify(proof)}, 'by evil.js')`)
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  /** Runs `loopback` with CNI_COMMAND=VERSION in the folder, and demands the usual answer and that nothing else was run or written. */
  async function answers(env: Record<string, string>, ...args: string[]): Promise<void> {
    const before = readdirSync(dir)
    const { stdout, stderr, exitCode } = await execa(join(DIST, 'loopback'), args, { cwd: dir, env: { CNI_COMMAND: 'VERSION', ...env }, extendEnv: false, input: '{"cniVersion":"1.1.0"}' })
    assert.equal(exitCode, 0)
    assert.equal(stderr, '')
    assert.ok(JSON.parse(stdout).supportedVersions.includes('1.1.0'), stdout)
    assert.deepEqual(readdirSync(dir), before)
  }

  it('is no bun for BUN_BE_BUN', () => answers({ BUN_BE_BUN: '1' }, '--version'))
  it('takes no options from BUN_OPTIONS', () => answers({ BUN_OPTIONS: `--preload ${join(dir, 'evil.js')}` }))
  it('writes no file for BUN_BYTECODE_ORDER_OUT', () => answers({ BUN_BYTECODE_ORDER_OUT: proof }))
  it('takes no options from NODE_OPTIONS and NODE_PATH', () => answers({ NODE_OPTIONS: `--require ${join(dir, 'evil.js')}`, NODE_PATH: dir }))
  it('opens no inspector for BUN_INSPECT', () => answers({ BUN_INSPECT: `unix://${proof}`, BUN_INSPECT_CONNECT_TO: `unix://${proof}` }))
  it('reads no bunfig.toml in the working directory', () => {
    writeFileSync(join(dir, 'bunfig.toml'), 'preload = ["./evil.js"]\n')
    return answers({})
  })
  it('reads no .env in the working directory', async () => {
    for (const name of ['.env', '.env.local', '.env.production']) writeFileSync(join(dir, name), 'CNI_COMMAND=ADD\nBUN_OPTIONS="--preload ./evil.js"\n')
    await answers({})
    // With no CNI_COMMAND of its own, the file's would be the one to answer.
    const { stdout, exitCode } = await execa(join(DIST, 'loopback'), { cwd: dir, extendEnv: false, input: '' })
    assert.deepEqual({ stdout, exitCode }, { stdout: '', exitCode: 0 })
  })
  it('takes no code from argv', () => answers({}, '-e', `require('node:fs').writeFileSync(${JSON.stringify(proof)}, '')`, '--preload', join(dir, 'evil.js')))

  it('is one file on disk under the names of all plugins, and one that the agent runs', () => {
    const names = readdirSync(DIST).filter((name) => !name.startsWith('.') && name !== 'plumb')
    assert.ok(names.includes('loopback'))
    const [whole, ...others] = new Set([...names, 'plumb'].map((name) => statSync(join(DIST, name)).ino))
    assert.deepEqual([others.length, statSync(join(DIST, 'plumb')).ino === whole], [1, false])
    assert.ok(readFileSync(join(DIST, 'plumb')).equals(readFileSync(join(DIST, 'loopback'))))
  })

  it('has its code where huge pages can hold it', async () => {
    const path = join(DIST, 'loopback')
    // It waits for its configuration; VERSION would be over before its maps are read.
    const call = execa(path, { env: { CNI_COMMAND: 'STATUS' } })
    const [, address, offset] = (await until(() => new RegExp(`^(\\w+)-\\w+ r-xp (\\w+) .*${path}$`, 'm').exec(readFileSync(`/proc/${call.pid}/maps`, 'utf8')))) as RegExpExecArray
    call.stdin.end('{"cniVersion":"1.1.0","name":"net","type":"loopback"}')
    await call
    assert.equal((Number(`0x${address}`) - Number(`0x${offset}`)) % (2 << 20), 0)
  })

  for (const [what, argv] of Object.entries({
    'where no memory may be made executable (MemoryDenyWriteExecute=, SELinux without execmem)': [process.execPath, '-e', WITHOUT_WX],
    'with an address space of 2 GB (ulimit -v)': ['sh', '-c', 'ulimit -v 2000000 && exec "$0"'],
  }))
    it(`[FP7] ${what}: one CNI error says what is missing, and VERSION works`, async function () {
      const call = (command: string) =>
        execa(argv[0] as string, [...argv.slice(1), join(DIST, 'bridge')], {
          env: { CNI_COMMAND: command, CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: '/run/netns/none', CNI_PATH: DIST },
          extendEnv: false,
          input: '{"cniVersion":"1.1.0","name":"net","type":"bridge"}',
          reject: false,
        })
      if ((await call('VERSION')).exitCode === 77) skip(this, 'this kernel has no PR_SET_MDWE (Linux 6.3)')
      assert.ok(JSON.parse((await call('VERSION')).stdout).supportedVersions.includes('1.1.0'))
      for (const command of ['ADD', 'DEL', 'STATUS']) {
        const { stdout, exitCode } = await call(command)
        assert.equal(exitCode, 1)
        const { code, msg, details } = JSON.parse(stdout)
        assert.deepEqual([code, msg], [5, 'Cannot call libc: this process may not make memory executable, or has too little address space'])
        assert.match(details, /MemoryDenyWriteExecute=.*execmem.*ulimit -v/)
      }
    })
})
