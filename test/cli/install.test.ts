// lane: netns
// Tests cli/install.ts and agent/node.
import assert from 'node:assert/strict'
import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { inNamespaces } from '../support/harness.ts'

const ROOT = join(import.meta.dir, '../..')
const PLUMB = join(ROOT, 'dist/plumb')
const NAMES = readdirSync(join(ROOT, 'plugins'))
  .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
  .sort()

describe('plumb install', () => {
  let dir = ''
  const alone = () => join(dir, 'usr/plumb')
  const bin = (name = '') => join(dir, 'bin', name)
  const places = () => ['--bin-dir', bin(), '--conf-dir', join(dir, 'net.d'), '--state-dir', join(dir, 'state')]
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-install-'))
    mkdirSync(join(dir, 'usr'))
    await execa('cp', [PLUMB, alone()])
    // A file beside it is no plugin.
    writeFileSync(join(dir, 'usr/kubectl'), 'kubectl', { mode: 0o755 })
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('plumb alone installs all of its plugins and nothing else, twice the same, and uninstall puts back what was there', async () => {
    mkdirSync(bin())
    writeFileSync(bin('bridge'), 'the one before', { mode: 0o755 })
    const { stdout } = await execa(alone(), ['install', ...places().filter((_, i) => i !== 2 && i !== 3)])
    assert.match(
      stdout,
      new RegExp(`^kept what was there before: ${bin('bridge')} as ${bin('.before-plumb/bridge')}$`, 'm'),
    )
    assert.deepEqual(
      readdirSync(bin())
        .filter((name) => !name.startsWith('.'))
        .sort(),
      NAMES,
    )
    const files = new Set(NAMES.map((name) => statSync(bin(name)).ino))
    assert.equal(files.size, 2)
    assert.equal(statSync(bin('flannel')).nlink, 1)
    assert.equal(statSync(bin('flannel')).mtimeMs, statSync(bin('bridge')).mtimeMs)
    for (const name of NAMES)
      assert.match((await execa(bin(name), { env: { CNI_COMMAND: 'VERSION' } })).stdout, /"supportedVersions"/)
    assert.match(
      (await execa(alone(), ['install', ...places().filter((_, i) => i !== 2 && i !== 3)])).stdout,
      / already$/m,
    )
    assert.deepEqual([...files].sort(), [statSync(bin('bridge')).ino, statSync(bin('flannel')).ino].sort())
    // As the init container of kube-flannel does it.
    writeFileSync(bin('flannel'), 'of flannel')
    assert.match((await execa(bin('bridge'), { env: { CNI_COMMAND: 'VERSION' } })).stdout, /"supportedVersions"/)
    await execa(alone(), ['install', ...places().filter((_, i) => i !== 2 && i !== 3)])
    assert.equal(statSync(bin('flannel')).mtimeMs, statSync(bin('bridge')).mtimeMs)
    const undone = await execa(alone(), ['uninstall', '--force', ...places()])
    assert.match(undone.stdout, new RegExp(`^put back ${bin('bridge')}$`, 'm'))
    assert.deepEqual(
      [readdirSync(bin()).sort(), readFileSync(bin('bridge'), 'utf8'), readFileSync(bin('flannel'), 'utf8')],
      [['bridge', 'flannel'], 'the one before', 'of flannel'],
    )
  })

  it('a plugin that is called meanwhile is never missing', async () => {
    // Another version: the same program with a byte more.
    mkdirSync(bin())
    const [first = '', ...others] = NAMES.map(bin)
    writeFileSync(first, Buffer.concat([readFileSync(join(ROOT, 'dist/bridge')), Buffer.from(' ')]), { mode: 0o755 })
    for (const path of others) linkSync(first, path)
    let isDone = false
    const again = execa(alone(), ['install', '--bin-dir', bin(), '--state-dir', join(dir, 'state')]).finally(() => {
      isDone = true
    })
    let calls = 0
    for (; !isDone || calls === 0; calls++)
      assert.match((await execa(bin('bridge'), { env: { CNI_COMMAND: 'VERSION' } })).stdout, /"supportedVersions"/)
    assert.match((await again).stdout, new RegExp(`^installed ${NAMES.length} programs`))
    assert.equal(existsSync(bin('.before-plumb')), false)
  })

  it('says in one line what it does not know', async () => {
    for (const [argv, said] of [
      [['install', '--bin-dir', 'bin'], /^Cannot read --bin-dir "bin": want the whole path of a folder/],
      [['install', 'all'], /^plumb install takes no "all"; see plumb install --help$/],
      [['uninstall', '--bin'], /^plumb uninstall has no option --bin.*see plumb uninstall --help$/],
    ] as const) {
      const { exitCode, stderr } = await execa(PLUMB, argv, { reject: false })
      assert.equal(exitCode, 2)
      assert.match(stderr, said)
    }
    for (const name of ['install', 'uninstall'])
      assert.match((await execa(PLUMB, ['help', name])).stdout, new RegExp(`^usage: plumb ${name} `))
  })

  it(
    'plumb demo works where plumb stands alone',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      const { status, stdout, stderr } = await node.exec([alone(), 'demo', 'pods'])
      assert.equal(status, 0, stdout + stderr)
    }),
  )
})

describe('README.md', () => {
  it(
    'its way onto an empty node ends with plugins, a network and a pod that was wired by hand',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      const [, section = ''] =
        /^## Onto a node$([\s\S]*?)^## /m.exec(readFileSync(join(ROOT, 'README.md'), 'utf8')) ?? []
      const blocks = [...section.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, text = '']) =>
        text.replace(/^npm .*$/gm, ''),
      )
      assert.ok(blocks.length >= 3)
      const empty = 'for dir in /opt /etc/cni /var/lib; do mkdir -p $dir; mount -t tmpfs tmpfs $dir; done\n'
      const all = `${empty}${blocks.join('\n')}\nls /opt/cni/bin\n`
      const { status, stdout, stderr } = await node.exec(
        ['unshare', '--mount', '--propagation', 'private', 'sh', '-eu'],
        { stdin: all, cwd: ROOT },
      )
      assert.equal(status, 0, stdout + stderr)
      assert.deepEqual(
        stdout
          .trimEnd()
          .split('\n')
          .slice(-NAMES.length - 1),
        [...NAMES, 'plumb'].sort(),
      )
      assert.match(stdout, /inet 10\.99\.0\.2\/24/)
    }),
  )
})
