// lane: peers
// Tests scripts/image.ts: the image without a container runtime. Its layers are a root, and its tools start there.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { version } from '../../package.json'
import { present } from '../../scripts/packages.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const DOCS = readFileSync(join(ROOT, 'docs/kubernetes.md'), 'utf8')

describe('the image', function () {
  this.timeout(280_000)
  const dir = mkdtempSync(join(tmpdir(), 'plumb-image-'))
  const [file, root] = [join(dir, 'image.tar'), join(dir, 'root')]
  before(async function () {
    if (!present('apt-get'))
      skip(this as unknown as Mocha.Context, 'no apt-get: the image is made of packages of Debian')
    const made = await execa(process.execPath, ['scripts/image.ts', '--out', file], { cwd: ROOT, reject: false })
    if (/apt-get .*download/s.test(made.stderr) && made.failed)
      skip(this as unknown as Mocha.Context, 'the packages of the image cannot be had')
    assert.equal(made.exitCode, 0, made.stderr)
    mkdirSync(root)
    await execa('tar', ['-xf', file, '-C', dir])
    const [{ Layers }] = JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8'))
    for (const layer of Layers) await execa('tar', ['-xzf', join(dir, layer), '-C', root])
  })
  after(() => rmSync(dir, { recursive: true, force: true }))

  for (const [name, argv, says] of [
    ['plumb', ['/usr/local/bin/plumb', '--version'], new RegExp(`^plumb ${version}$`)],
    ['ip', ['/sbin/ip', '-V'], /^ip utility, iproute2-/m],
    ['nft', ['/usr/sbin/nft', '--version'], /^nftables v/],
    ['BIRD, so that a node needs nothing for BGP', ['/usr/sbin/bird', '--version'], /^BIRD version 2\./],
  ] as const)
    it(`has ${name}`, async () => {
      // A runtime gives a container these two file systems.
      const script = 'for dir in proc dev; do mount --rbind /$dir "$0/$dir"; done; exec chroot "$0" "$@"'
      const { all } = await execa('unshare', ['--mount', 'sh', '-ec', script, root, ...argv], { all: true })
      assert.match(all, says)
    })

  it('has BIRD’s licence, and the size that docs/kubernetes.md says', () => {
    assert.ok(statSync(join(root, 'usr/share/doc/bird2/copyright')).size > 1000)
    const [, said = ''] = /The image has (\d+) MB/.exec(DOCS) ?? []
    const size = statSync(file).size / 1e6
    assert.ok(Math.abs(size - Number(said)) < 3, `${size} MB`)
  })
})
