// lane: peers
// Tests scripts/engine.ts and native/host.c by executables that the tests make.
import assert from 'node:assert/strict'
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { sha256 } from '../../scripts/archive.ts'
import { plugins } from '../../scripts/build.ts'
import { CACHE } from '../../scripts/engine.ts'
import { DIST } from '../support/cnitool.ts'
import { inNamespaces } from '../support/harness.ts'

const ROOT = join(import.meta.dir, '../..')
/** Makes an executable in the checkout that it runs in: the file, and the names of the plugins. */
const MAKE = `
const { compilePlugins } = await import('./scripts/engine.ts')
const [file, ...names] = process.argv.slice(1)
await compilePlugins(file, names, process.arch, { isPlain: process.env.PLAIN !== undefined })
`

describe('the executable of the plugins', () => {
  it('has no segment that can be written and run, and its tables of addresses are read-only once it runs', async () => {
    const { stdout } = await execa('readelf', ['-lW', join(DIST, 'bridge')])
    const segments = [...stdout.matchAll(/^ +(LOAD|GNU_\w+) +(?:0x\w+ +){5}([RWE ]+?) +0x/gm)].map(
      ([, type, flags]) => `${type} ${flags}`,
    )
    assert.ok(segments.includes('LOAD R') && segments.includes('LOAD R E'), segments.join(', '))
    assert.deepEqual(
      segments.filter((one) => /W.*E/.test(one)),
      [],
    )
    assert.ok(
      segments.some((one) => one.startsWith('GNU_RELRO R')),
      segments.join(', '),
    )
  })

  it('is bit for bit the same when everything is compiled again, in another folder and another environment', async function () {
    this.timeout(240_000)
    const dir = mkdtempSync(join(tmpdir(), 'plumb-engine-'))
    try {
      // The sources are downloaded once. pip checks their hash then.
      for (const source of globSync(join(CACHE, 'source-*')))
        cpSync(source, join(dir, basename(source)), { recursive: true })
      const env = { PLUMB_ENGINE: dir, TMPDIR: dir, HOME: dir, LC_ALL: 'C', TZ: 'Asia/Tokyo' }
      await execa(
        'sh',
        ['-c', 'umask 077; exec "$@"', 'sh', process.execPath, '-e', MAKE, join(dir, 'made'), ...plugins()],
        { cwd: ROOT, env },
      )
      assert.ok(readdirSync(dir).some((name) => name.startsWith(`objects-${process.arch}-`)))
      assert.equal(sha256(readFileSync(join(dir, 'made'))), sha256(readFileSync(join(DIST, 'bridge'))))
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it(
    'names the function, the file and the line of the source where an error was thrown',
    inNamespaces(['pod'], async ({ pod }) => {
      const dir = mkdtempSync(join(tmpdir(), 'plumb-engine-'))
      const env = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: pod.path, CNI_PATH: dir }
      const source = (name: string) => readFileSync(join(dir, 'plugins', name), 'utf8')
      const called = (name: string) =>
        execa(join(dir, 'made', name), {
          env,
          extendEnv: false,
          input: '{"cniVersion":"1.1.0","name":"net"}',
          reject: false,
        })
      try {
        for (const name of ['lib', 'native', 'plugins', 'scripts'])
          cpSync(join(ROOT, name), join(dir, name), { recursive: true })
        for (const name of ['node_modules', 'package.json']) symlinkSync(join(ROOT, name), join(dir, name))
        writeFileSync(
          join(dir, 'plugins/loopback.ts'),
          source('loopback.ts').replace(/^function bringUp.*$/m, '$&\n  undefined.flags'),
        )
        writeFileSync(
          join(dir, 'plugins/dummy.ts'),
          `${source('dummy.ts')}function breaks() {\n  undefined.flags\n}\nbreaks()\n`,
        )
        mkdirSync(join(dir, 'made'))
        const make = (file: string, names: readonly string[], env: Record<string, string> = {}) =>
          execa(process.execPath, ['-e', MAKE, join(dir, 'made', file), ...names], { cwd: dir, env })
        await make('loopback', ['loopback'])
        // A module that cannot be evaluated stops the build where the heap is frozen.
        await assert.rejects(make('dummy', ['dummy']), /breaks \(plugins\/dummy\.ts:/)
        await make('dummy', ['dummy'], { PLAIN: '1' })
        // As does one that looks at the machine.
        writeFileSync(
          join(dir, 'plugins/static.ts'),
          `${source('static.ts')}import { fs } from '../lib/os/fs.ts'\nexport const isThere = fs.existsSync('/etc')\n`,
        )
        await assert.rejects(make('static', ['static']), /a module calls access while the build evaluates it/)
        const line = (name: string) => source(name).split('\n').indexOf('  undefined.flags') + 1
        // A call that fails while it is served, and a plugin that cannot even be loaded.
        const [served, loaded] = [await called('loopback'), await called('dummy')]
        assert.equal(served.exitCode, 1)
        assert.match(
          JSON.parse(served.stdout).msg,
          new RegExp(`^Unexpected failure in bringUp \\(plugins/loopback\\.ts:${line('loopback.ts')}\\): `),
        )
        assert.equal(loaded.exitCode, 1)
        assert.match(JSON.parse(loaded.stdout).msg, /^Unexpected failure: TypeError: /)
        assert.match(
          JSON.parse(loaded.stdout).details,
          new RegExp(`^    at breaks \\(plugins/dummy\\.ts:${line('dummy.ts')}:\\d+\\)\n`),
        )
      } finally {
        rmSync(dir, { recursive: true })
      }
    }),
  )
})
