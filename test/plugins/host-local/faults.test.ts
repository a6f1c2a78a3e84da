// lane: netns
// Tests plugins/host-local.ts and lib/pools.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Call, inNamespaces } from '../../support/harness.ts'
import { pool, two } from '../../support/pool.ts'
import { STRACE } from '../../support/recording.ts'
import { skip } from '../../support/skip.ts'

/** The reference plugin as Debian packages it, and its newest release. */
const PEERS = ['/usr/lib/cni/host-local', '/var/cache/plumb/peers/bin-1.9.1/host-local']

describe('host-local: at scale and after faults', () => {
  it(
    '200 ADDs at once get distinct addresses; ADD and DEL in a storm leave none',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]] })
      const ids = Array.from({ length: 200 }, (_, i) => `c${i}`)
      const given = await Promise.all(ids.map((id) => net.add(id)))
      assert.equal(new Set(given.flat()).size, 400)
      await Promise.all(
        ids.map(async (id, i) => {
          await net.does('DEL', id)
          if (i % 2 === 0) await net.add(`again-${id}`)
        }),
      )
      assert.equal(net.reserved().length, 200)
      await Promise.all(ids.filter((_, i) => i % 2 === 0).map((id) => net.does('DEL', `again-${id}`)))
      assert.deepEqual(net.reserved(), [])
    }),
  ).timeout(60_000)

  it(
    'GC frees what is not listed, files of before a reboot too, and keeps lock and last_reserved_ip',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two, { cniVersion: '1.1.0' })
      net.put('10.1.0.6', 'dead\r\neth0')
      net.put('10.1.0.5', 'dead')
      for (const id of ['a', 'b', 'c']) await net.add(id)
      const stamp = join(net.dataDir, '.plumb/net/stamp')
      writeFileSync(stamp, readFileSync(stamp, 'utf8').replace(/^\S+/, '00000000-0000-0000-0000-000000000000'))
      await net.does('CHECK', 'b')
      await net.does('GC', '', {
        conf: {
          ...net.conf,
          'cni.dev/valid-attachments': [
            { containerID: 'b', ifname: 'eth0' },
            { containerID: 'c', ifname: 'eth7' },
          ],
        },
      })
      assert.deepEqual(net.left(), ['10.1.0.3', 'fd00::3', 'last_reserved_ip.0', 'last_reserved_ip.1'])
      assert.ok(existsSync(join(net.dir, 'lock')))
      await net.does('CHECK', 'b')
      await net.does('GC', '', { conf: { ...net.conf, 'cni.dev/valid-attachments': [] } })
      assert.deepEqual(net.reserved(), [])
    }),
  )

  it(
    'STATUS is ready until a set is full, and says so with figures',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(
        node,
        { ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/126' }]] },
        { cniVersion: '1.1.0' },
      )
      await net.does('STATUS', '')
      assert.deepEqual(readdirSync(net.dataDir), [])
      await net.add('a')
      await net.does('STATUS', '')
      await net.add('b')
      const { error } = await net.call('STATUS', '')
      assert.deepEqual(
        { code: error.code, msg: error.msg },
        { code: 50, msg: 'no IP addresses available in range set: fd00::1-fd00::3' },
      )
      assert.match(error.details, /^2 of 2 are in use; /)
      await net.does('DEL', 'a')
      await net.does('STATUS', '')
    }),
  )

  it(
    'an empty or torn file is free',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { subnet: '10.1.0.0/29' })
      for (const [i, text] of ['', '\r\n', '\0\0\0', ' ', ''].entries()) net.put(`10.1.0.${i + 2}`, text)
      for (const id of ['a', 'b', 'c', 'd', 'e']) await net.add(id)
      assert.deepEqual(net.reserved().length, 5)
      await net.fails('ADD', 'f', 11, /^no IP addresses available/)
    }),
  )

  it(
    'a folder that has the name of an address is one address less, and all others go on',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { ranges: [[{ subnet: '10.1.0.0/29' }]] }, { cniVersion: '1.1.0' })
      mkdirSync(join(net.dir, '10.1.0.3'), { recursive: true })
      const works = async (verb: string, id: string, more?: Partial<Call>) => {
        const { status, stdout } = await net.call(verb, id, more)
        assert.equal(status, 0, `${verb}: ${stdout}`)
      }
      for (const id of ['a', 'b', 'c', 'd']) await works('ADD', id)
      assert.deepEqual(net.reserved(), ['10.1.0.2', '10.1.0.3', '10.1.0.4', '10.1.0.5', '10.1.0.6'])
      assert.equal((await net.call('ADD', 'e')).error.code, 11)
      await works('CHECK', 'b')
      await works('DEL', 'b')
      await works('GC', '', {
        conf: { ...net.conf, 'cni.dev/valid-attachments': [{ containerID: 'a', ifname: 'eth0' }] },
      })
      assert.deepEqual(net.reserved(), ['10.1.0.2', '10.1.0.3'])
    }),
  )

  it(
    'ADD and DEL beside 8,000 reservations take at most twice the time of an empty pool',
    inNamespaces(['node'], async ({ node }) => {
      const [empty, full] = [pool(node, { subnet: '10.0.0.0/8' }), pool(node, { subnet: '10.0.0.0/8' })]
      for (let i = 2; i < 8002; i++) full.put(`10.0.${i >> 8}.${i & 255}`, `c${i}\r\neth0`)
      full.put('last_reserved_ip.0', '10.0.31.65')
      const times = new Map([empty, full].map((net) => [net, [] as number[]]))
      for (let round = 0; round < 16; round++) {
        for (const [net, list] of times) {
          const started = performance.now()
          await net.add('x')
          await net.does('DEL', 'x')
          // The first call finds foreign files, and reads them.
          if (round > 0) list.push(performance.now() - started)
        }
      }
      const [base = 0, loaded = 0] = [...times.values()].map((list) => list.sort((a, b) => a - b)[list.length >> 1])
      assert.ok(loaded < 2 * base, `${loaded} ms against ${base} ms`)
      assert.equal(full.reserved().length, 8000)
    }),
  )

  it(
    'the first ADD beside 8,000 reservations of another program asks the kernel no more than the reference does',
    inNamespaces(['node'], async ({ node }, test) => {
      const reference = PEERS.find(existsSync)
      if (reference === undefined || !existsSync(STRACE)) skip(test, 'no reference plugin or no strace')
      const asked = async (file: string) => {
        const net = pool(node, { subnet: '10.0.0.0/8' })
        for (let i = 2; i < 8002; i++) net.put(`10.0.${i >> 8}.${i & 255}`, `c${i}\r\neth0`)
        net.put('last_reserved_ip.0', '10.0.31.65')
        const counted = join(net.dataDir, 'calls')
        writeFileSync(join(net.dataDir, 'run'), `#!/bin/sh\nexec ${STRACE} -f -c -o ${counted} ${file}\n`, {
          mode: 0o755,
        })
        await net.add('x', { file: join(net.dataDir, 'run') })
        return Number(/ (\d+) +\d* *total$/m.exec(readFileSync(counted, 'utf8'))?.[1])
      }
      const [ours, theirs] = [
        await asked(join(import.meta.dir, '../../../dist/host-local')),
        await asked(reference as string),
      ]
      assert.ok(ours > 8000 && ours < theirs, `${ours} calls against ${theirs}`)
    }),
  ).timeout(60_000)

  it(
    'a full or read-only disk is named by ADD and by STATUS; DEL frees on a full one',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { subnet: '10.1.0.0/24' }, { cniVersion: '1.1.0' })
      const mount = async (...args: string[]) =>
        assert.deepEqual(await node.exec(args), { status: 0, stdout: '', stderr: '' })
      await mount('mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', net.dataDir)
      try {
        await net.add('a')
        await node.exec(['dd', 'if=/dev/zero', `of=${net.dataDir}/filler`, 'bs=4k'])
        const before = net.files()
        await net.fails('ADD', 'b', 5, /^Cannot use the address pool \/run\/ipam-\w+\/net: ENOSPC at /)
        await net.fails(
          'STATUS',
          '',
          50,
          /^Cannot write to the address pool \/run\/ipam-\w+\/net: no pod can be attached$/,
        )
        assert.deepEqual(net.files(), before)
        await mount('mount', '-o', 'remount,ro', net.dataDir)
        await net.fails(
          'STATUS',
          '',
          50,
          /^Cannot write to the address pool \/run\/ipam-\w+\/net: no pod can be attached$/,
        )
        await net.fails('DEL', 'a', 5, /^Cannot use the address pool .*: EROFS at /)
        await mount('mount', '-o', 'remount,rw', net.dataDir)
        await net.does('DEL', 'a')
        assert.deepEqual(net.reserved(), [])
      } finally {
        await mount('umount', net.dataDir)
      }
    }),
  )
})

for (const file of PEERS) {
  describe(`host-local beside the reference ${file}`, () => {
    before(function () {
      if (!existsSync(file)) skip(this, `no reference plugin at ${file}`)
    })

    it(
      'each reads, counts on from and frees what the other reserved',
      inNamespaces(['node'], async ({ node }) => {
        const net = pool(node, two)
        assert.deepEqual(await net.add('theirs', { file }), ['10.1.0.2', 'fd00::2'])
        assert.deepEqual(await net.add('ours'), ['10.1.0.3', 'fd00::3'])
        assert.deepEqual(await net.add('theirs2', { file }), ['10.1.0.4', 'fd00::4'])
        await net.does('CHECK', 'theirs')
        await net.does('CHECK', 'ours', { file })
        await net.fails(
          'ADD',
          'theirs',
          4,
          /^10\.1\.0\.2 has been allocated to theirs, duplicate allocation is not allowed$/,
        )
        await net.fails(
          'ADD',
          'ours',
          999,
          /10\.1\.0\.3 has been allocated to ours, duplicate allocation is not allowed$/,
          { file },
        )
        await net.does('DEL', 'theirs')
        await net.does('DEL', 'ours', { file })
        assert.deepEqual(net.reserved(), ['10.1.0.4', 'fd00::4'])
        // The reference freed it: it is not believed to be held, and can be taken again.
        await net.fails('CHECK', 'ours', 3, /^Cannot find an address/)
        assert.deepEqual(await net.add('ours'), ['10.1.0.5', 'fd00::5'])
        await net.does('DEL', 'theirs2')
        await net.does('DEL', 'ours')
        assert.deepEqual(net.reserved(), [])
      }),
    )

    it(
      'both at once, 60 calls each, give distinct addresses and free all of them',
      inNamespaces(['node'], async ({ node }) => {
        const net = pool(node, { subnet: '10.1.0.0/24' })
        const calls = Array.from({ length: 120 }, (_, i) => ({ id: `c${i}`, more: i % 2 ? { file } : {} }))
        const given = await Promise.all(calls.map(({ id, more }) => net.add(id, more)))
        assert.equal(new Set(given.flat()).size, 120)
        // Each frees the other's.
        await Promise.all(calls.map(({ id }, i) => net.does('DEL', id, i % 2 ? {} : { file })))
        assert.deepEqual(net.reserved(), [])
      }),
    ).timeout(60_000)
  })
}
