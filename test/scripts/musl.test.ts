// lane: peers
// needs: musl
// Tests the executable that scripts/build.ts makes beside another C library (scripts/musl.ts).
import assert from 'node:assert/strict'
import { copyFileSync, existsSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { musl } from '../../scripts/musl.ts'
import { skip } from '../support/skip.ts'

const DIST = join(import.meta.dir, '../../dist')
const CHROOT = '/usr/sbin/chroot'

describe('the executable', () => {
  let dir = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-musl-'))
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('gives out an address and takes it back as host-local in a root that has the C library musl and /proc alone', async function () {
    const library = musl() ?? skip(this, 'no musl (npm run setup unpacks it)')
    const at = `lib/${basename(library)}`
    for (const folder of ['lib', 'proc']) mkdirSync(join(dir, folder))
    copyFileSync(library, join(dir, at))
    linkSync(join(DIST, 'host-local'), join(dir, 'host-local'))
    assert.match((await execa(CHROOT, [dir, `/${at}`], { reject: false })).stderr, /^musl libc/)
    const call = (command: string) =>
      execa(CHROOT, [dir, '/host-local'], {
        env: {
          CNI_COMMAND: command,
          CNI_CONTAINERID: 'c1',
          CNI_IFNAME: 'eth0',
          CNI_NETNS: '/run/netns/none',
          CNI_PATH: '/',
        },
        extendEnv: false,
        input:
          '{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}',
      })
    const lease = join(dir, 'var/lib/cni/networks/net/10.9.0.2')
    await execa('mount', ['-t', 'proc', 'proc', join(dir, 'proc')])
    try {
      assert.deepEqual(JSON.parse((await call('ADD')).stdout).ips, [{ address: '10.9.0.2/24', gateway: '10.9.0.1' }])
      assert.match(readFileSync(lease, 'utf8'), /^c1\s+eth0$/)
      assert.equal((await call('DEL')).stdout, '')
      assert.ok(!existsSync(lease))
    } finally {
      await execa('umount', [join(dir, 'proc')])
    }
  })
})
