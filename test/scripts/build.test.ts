// lane: quick
// Tests the executable that scripts/build.ts makes.
import assert from 'node:assert/strict'
import { linkSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { skip } from '../support/skip.ts'
import { BY_KERNEL } from '../support/without-executable-memory.ts'

const DIST = join(import.meta.dir, '../../dist')
const CHROOT = '/usr/sbin/chroot'

describe('the executable', () => {
  let dir = ''
  let proof = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-executable-'))
    proof = join(dir, 'executed')
    writeFileSync(join(dir, 'evil.js'), `require('node:fs').writeFileSync(${JSON.stringify(proof)}, 'by evil.js')`)
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  /**
   * Runs `loopback` with CNI_COMMAND=VERSION in the folder, and demands the usual answer and that nothing else was run
   * or written.
   */
  async function answers(env: Record<string, string>, ...args: string[]): Promise<void> {
    const before = readdirSync(dir)
    const { stdout, stderr, exitCode } = await execa(join(DIST, 'loopback'), args, {
      cwd: dir,
      env: { CNI_COMMAND: 'VERSION', ...env },
      extendEnv: false,
      input: '{"cniVersion":"1.1.0"}',
    })
    assert.equal(exitCode, 0)
    assert.equal(stderr, '')
    assert.ok(JSON.parse(stdout).supportedVersions.includes('1.1.0'), stdout)
    assert.deepEqual(readdirSync(dir), before)
  }

  it('is no bun for BUN_BE_BUN', () => answers({ BUN_BE_BUN: '1' }, '--version'))
  it('takes no options from BUN_OPTIONS', () => answers({ BUN_OPTIONS: `--preload ${join(dir, 'evil.js')}` }))
  it('writes no file for BUN_BYTECODE_ORDER_OUT', () => answers({ BUN_BYTECODE_ORDER_OUT: proof }))
  it('takes no options from NODE_OPTIONS and NODE_PATH', () =>
    answers({ NODE_OPTIONS: `--require ${join(dir, 'evil.js')}`, NODE_PATH: dir }))
  it('opens no inspector for BUN_INSPECT', () =>
    answers({ BUN_INSPECT: `unix://${proof}`, BUN_INSPECT_CONNECT_TO: `unix://${proof}` }))
  it('reads no bunfig.toml in the working directory', () => {
    writeFileSync(join(dir, 'bunfig.toml'), 'preload = ["./evil.js"]\n')
    return answers({})
  })
  it('reads no .env in the working directory', async () => {
    for (const name of ['.env', '.env.local', '.env.production'])
      writeFileSync(join(dir, name), 'CNI_COMMAND=ADD\nBUN_OPTIONS="--preload ./evil.js"\n')
    await answers({})
    // With no CNI_COMMAND of its own, the file's would be the one to answer.
    const { stdout, exitCode } = await execa(join(DIST, 'loopback'), { cwd: dir, extendEnv: false, input: '' })
    assert.deepEqual({ stdout, exitCode }, { stdout: '', exitCode: 0 })
  })
  it('takes no code from argv', () =>
    answers(
      {},
      '-e',
      `require('node:fs').writeFileSync(${JSON.stringify(proof)}, '')`,
      '--preload',
      join(dir, 'evil.js'),
    ))

  it('is one small static file on disk under the names of all plugins, and plumb holds the same bytes', async () => {
    const names = readdirSync(DIST).filter((name) => !name.startsWith('.') && name !== 'plumb')
    assert.ok(names.includes('loopback'))
    assert.equal(new Set(names.map((name) => statSync(join(DIST, name)).ino)).size, 1)
    assert.ok(statSync(join(DIST, 'loopback')).size < 6_000_000)
    assert.doesNotMatch(
      (await execa('readelf', ['--program-headers', '--wide', join(DIST, 'loopback')])).stdout,
      /INTERP|DYNAMIC/,
    )
    await execa(join(DIST, 'plumb'), ['install', '--bin-dir', join(dir, 'bin'), '--state-dir', join(dir, 'state')])
    assert.ok(readFileSync(join(dir, 'bin/bridge')).equals(readFileSync(join(DIST, 'bridge'))))
  })

  it('needs nothing of its root: it answers in an empty one', async () => {
    linkSync(join(DIST, 'loopback'), join(dir, 'loopback'))
    const { stdout } = await execa(CHROOT, [dir, '/loopback'], {
      env: { CNI_COMMAND: 'VERSION' },
      extendEnv: false,
      input: '',
    })
    assert.ok(JSON.parse(stdout).supportedVersions.includes('1.1.0'), stdout)
  })

  it('hands "dhcp daemon" over to the program plumb', async () => {
    const { stdout, exitCode } = await execa(join(DIST, 'dhcp'), ['daemon', '--help'], { extendEnv: false, input: '' })
    assert.equal(exitCode, 0)
    assert.match(stdout, /^usage: plumb dhcp/)
  })

  it('says where it looked for plumb when "dhcp daemon" finds none', async () => {
    linkSync(join(DIST, 'dhcp'), join(dir, 'dhcp'))
    const { stderr, exitCode } = await execa(CHROOT, [dir, '/dhcp', 'daemon'], {
      extendEnv: false,
      input: '',
      reject: false,
    })
    assert.equal(exitCode, 1)
    assert.match(stderr, /^Cannot start the DHCP daemon: the program plumb is not installed; looked in /)
  })

  for (const [what, argv] of Object.entries({
    'where no memory may be made executable (MemoryDenyWriteExecute=, SELinux without execmem)': BY_KERNEL,
    'with an address space of 40 MB (ulimit -v)': ['sh', '-c', 'ulimit -v 40000 && exec "$0"'],
  }))
    it(`${what} each verb works as elsewhere`, async function () {
      const call = (command: string) =>
        execa(argv[0] as string, [...argv.slice(1), join(DIST, 'bridge')], {
          env: {
            CNI_COMMAND: command,
            CNI_CONTAINERID: 'c1',
            CNI_IFNAME: 'eth0',
            CNI_NETNS: '/run/netns/none',
            CNI_PATH: DIST,
          },
          extendEnv: false,
          input: '{"cniVersion":"1.1.0","name":"net","type":"bridge"}',
          reject: false,
        })
      if ((await call('VERSION')).exitCode === 77) skip(this, 'this kernel has no PR_SET_MDWE (Linux 6.3)')
      assert.ok(JSON.parse((await call('VERSION')).stdout).supportedVersions.includes('1.1.0'))
      assert.equal((await call('STATUS')).exitCode, 0)
      assert.match((await call('ADD')).stdout, /"code": 3,\n +"msg": "Cannot .*\/run\/netns\/none/)
    })

  it('plumb says what is missing where no memory may be made executable', async () => {
    const argv = ['install', '--bin-dir', join(dir, 'bin'), '--state-dir', join(dir, 'state')]
    const { exitCode, stderr } = await execa(
      'sh',
      ['-c', 'ulimit -v 2000000 && exec "$0" "$@"', join(DIST, 'plumb'), ...argv],
      { reject: false },
    )
    assert.equal(exitCode, 1)
    assert.match(
      stderr,
      /Cannot call libc: this process may not make memory executable, or has too little address space.*MemoryDenyWriteExecute=.*execmem.*ulimit -v/s,
    )
  })

  // Below 6 MB the kernel cannot start it. A large configuration needs some more.
  for (const [what, limit, sizes, said, more] of [
    [
      'memory',
      'ulimit -v',
      [6000, 6500, 7000, 8000, 9000, 10_000, 12_000, 14_000, 16_000, 20_000, 40_000],
      /^Cannot run the plugin: there is no memory$/,
      4_000_000,
    ],
    [
      'stack',
      'ulimit -s',
      [16, 32, 48, 64, 96, 127, 128, 256, 8192],
      /^Cannot run the plugin: its stack is too small$/,
      0,
    ],
  ] as const)
    it(`answers with an error object when it has too little ${what}, and as elsewhere when it has enough`, async () => {
      const call = (command: string, size: number) =>
        execa('sh', ['-c', `${limit} ${size} && exec "$0"`, join(DIST, 'bridge')], {
          env: {
            CNI_COMMAND: command,
            CNI_CONTAINERID: 'c1',
            CNI_IFNAME: 'eth0',
            CNI_NETNS: '/run/netns/none',
            CNI_PATH: DIST,
          },
          extendEnv: false,
          input: JSON.stringify({ cniVersion: '1.1.0', name: 'net', type: 'bridge', unknown: 'x'.repeat(more) }),
          reject: false,
        })
      for (const [command, usual] of [
        ['VERSION', 0],
        ['STATUS', 0],
        ['ADD', 3],
      ] as const) {
        const answers = await Promise.all(sizes.map((size) => call(command, size)))
        const codes = answers.map(({ stdout, exitCode, signal }, i) => {
          const where = `${command}, ${limit} ${sizes[i]}: ${stdout}`
          if (exitCode === 0) return 0
          assert.deepEqual([exitCode, signal], [1, undefined], where)
          const { code, msg } = JSON.parse(stdout)
          assert.ok(code === usual || said.test(msg), where)
          return code
        })
        // VERSION reads no configuration.
        if (command !== 'VERSION' || more === 0) assert.equal(codes[0], 999)
        // All from some size on.
        assert.deepEqual(
          codes.slice(codes.indexOf(usual)),
          codes.slice(codes.indexOf(usual)).map(() => usual),
        )
      }
    })

  it('answers with an error object when its stdin is closed, and says on stderr what it could not write when its stdout is', async () => {
    const call = (closed: string) =>
      execa('sh', ['-c', `exec "$0" ${closed}`, join(DIST, 'bridge')], {
        env: { CNI_COMMAND: 'STATUS' },
        extendEnv: false,
        input: '',
        reject: false,
      })
    const [deaf, mute] = [await call('<&-'), await call('>&-')]
    assert.deepEqual([deaf.exitCode, JSON.parse(deaf.stdout).code], [1, 6])
    assert.equal(mute.exitCode, 1)
    assert.match(mute.stderr, /^Cannot write the error to stdout: EBADF/)
  })

  it('answers alike with another place of its stack and of its memory', async () => {
    for (const start of [
      'exec',
      'exec setarch -R',
      'ulimit -s unlimited && exec',
      'ulimit -s 256 && exec',
      'ulimit -v 40000 && exec',
    ]) {
      const { stdout } = await execa('sh', ['-c', `${start} "$0"`, join(DIST, 'bridge')], {
        env: { CNI_COMMAND: 'VERSION', PATH: process.env['PATH'] ?? '', FILLER: 'x'.repeat(20_000) },
        extendEnv: false,
        input: '',
      })
      assert.ok(JSON.parse(stdout).supportedVersions.includes('1.1.0'), start)
    }
  })
})
