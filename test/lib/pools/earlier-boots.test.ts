// lane: netns
// needs: reference
// Tests lib/pools/earlier-boots.ts, lib/os/namespaces.ts and plugins/host-local.ts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace, plugin } from '../../support/harness.ts'
import { addresses, pool } from '../../support/pool.ts'
import { skip } from '../../support/skip.ts'

/** The reference plugin as Debian packages it, and its newest release. */
const PEERS = ['/usr/lib/cni/host-local', '/var/cache/plumb/peers/bin-1.9.1/host-local']
const FREED = /^plumb: freed addresses that an earlier boot of the node left network=net addresses=(\S+)\n$/
const FULL = /^no IP addresses available in range set/
/** Five addresses: 10.1.0.2 to 10.1.0.6. */
const small = { subnet: '10.1.0.0/29' }

/** Makes all reservations older than the boot, and empties /run/cni, as a boot does. */
function reboot(net: ReturnType<typeof pool>): void {
  const [, boot] = /^btime (\d+)$/m.exec(readFileSync('/proc/stat', 'utf8')) ?? []
  for (const name of net.reserved()) utimesSync(join(net.dir, name), Number(boot) - 600, Number(boot) - 600)
  rmSync('/run/cni', { recursive: true, force: true })
}

/** Gives a link of a namespace an address, as a plugin that plumb does not know. */
async function wear(ns: Namespace, address: string): Promise<void> {
  await ns.ip('link', 'add', 'theirs', 'type', 'veth', 'peer', 'name', 'theirs2')
  await ns.ip('address', 'add', address, 'dev', 'theirs')
}

describe('host-local: addresses that an earlier boot left', () => {
  beforeEach(() => rmSync('/run/cni', { recursive: true, force: true }))

  it(
    'a full pool frees them, says which in one line, and gives them out',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { ranges: [[small], [{ subnet: 'fd00::/125' }]] })
      for (const id of ['a', 'b', 'c', 'd', 'e']) await net.add(id)
      net.put('fd00::7', 'old')
      reboot(net)
      const { status, stdout, stderr, result } = await net.call('ADD', 'new')
      assert.equal(status, 0, stdout)
      assert.equal(
        FREED.exec(stderr)?.[1],
        '10.1.0.2,10.1.0.3,10.1.0.4,10.1.0.5,10.1.0.6,fd00::2,fd00::3,fd00::4,fd00::5,fd00::6,fd00::7',
      )
      assert.deepEqual(addresses(result), ['10.1.0.2', 'fd00::7'])
      assert.deepEqual(net.files()['10.1.0.2'], 'new\r\neth0')
      for (const id of ['a', 'b', 'c', 'd']) await net.add(id)
      await net.fails('ADD', 'e', 11, FULL)
      await net.does('CHECK', 'new')
      assert.equal(net.reserved().length, 10)
    }),
  )

  it(
    'a pool with free addresses leaves them alone',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, small)
      await net.add('old')
      reboot(net)
      assert.deepEqual(await net.add('new'), ['10.1.0.3'])
      assert.deepEqual(net.reserved(), ['10.1.0.2', '10.1.0.3'])
    }),
  )

  it(
    'a container that starts again with the same id gets its address again, also one that an old host-local noted',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, small)
      for (const id of ['a', 'b']) await net.add(id)
      net.put('10.1.0.6', 'c')
      reboot(net)
      const { stdout, stderr, result } = await net.call('ADD', 'b')
      assert.deepEqual(addresses(result), ['10.1.0.3'], stdout)
      assert.match(stderr, FREED)
      net.put('10.1.0.6', 'c')
      reboot(net)
      assert.deepEqual(addresses((await net.call('ADD', 'c')).result), ['10.1.0.6'])
    }),
  )

  it(
    'a wanted address that an earlier boot left is given, and STATUS of a pool full of them is ready',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, small, { cniVersion: '1.1.0' })
      await net.add('a')
      reboot(net)
      const { stdout, stderr, result } = await net.call('ADD', 'b', { args: 'IP=10.1.0.2' })
      assert.deepEqual(addresses(result), ['10.1.0.2'], stdout)
      assert.match(stderr, FREED)
      for (const id of ['c', 'd', 'e', 'f']) await net.add(id)
      await net.fails('STATUS', '', 50, FULL)
      reboot(net)
      const ready = await net.call('STATUS', '')
      assert.deepEqual([ready.status, ready.stdout], [0, ''])
      assert.match(ready.stderr, FREED)
    }),
  )

  it(
    'a rest after DEL (cooldown) does not hold them',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { ...small, cooldown: 3600 })
      for (const id of ['a', 'b', 'c', 'd', 'e']) await net.add(id)
      reboot(net)
      assert.equal((await net.call('ADD', 'new')).status, 0)
    }),
  )

  it(
    'what a living namespace has stays: of a process, of a mounted file, of the node, in any network, after the clock was set forward',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = pool(node, small)
      for (const id of ['a', 'b', 'c', 'd', 'e']) await net.add(id)
      await wear(node, '10.1.0.2/29')
      // No process lives in these two.
      await wear(pod, '10.1.0.3/32')
      await wear(other, '10.1.0.4/16')
      const sleeper = Bun.spawn(
        [
          'unshare',
          '--net',
          'sh',
          '-ec',
          'ip link add theirs type veth peer name theirs2; ip address add 10.1.0.5/29 dev theirs; echo ready; exec sleep 60',
        ],
        { stdout: 'pipe' },
      )
      try {
        await sleeper.stdout.getReader().read()
        reboot(net)
        const { status, stderr } = await net.call('ADD', 'new')
        assert.equal(status, 0)
        assert.equal(FREED.exec(stderr)?.[1], '10.1.0.6')
        await net.fails('ADD', 'more', 11, FULL)
        await net.fails('ADD', 'more', 7, /^requested IP address 10\.1\.0\.5 is not available/, { args: 'IP=10.1.0.5' })
        await net.fails('ADD', 'd', 4, /^10\.1\.0\.5 has been allocated to d/)
      } finally {
        sleeper.kill()
        await sleeper.exited
      }
      const { status, stderr } = await net.call('ADD', 'more')
      assert.equal(status, 0)
      assert.equal(FREED.exec(stderr)?.[1], '10.1.0.5')
      assert.deepEqual(net.reserved().length, 5)
    }),
  )

  it(
    'what the journal has stays, although its file is older than the boot',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = pool(node, { subnet: '10.1.0.0/30' })
      const conf = { ...net.conf, bridge: 'br0' }
      const call = (command: string, containerId: string) =>
        plugin('bridge', { command, conf, containerId, netns: pod }, node)
      assert.equal((await call('ADD', 'a')).status, 0)
      utimesSync(join(net.dir, '10.1.0.2'), 1, 1)
      await pod.ip('address', 'flush', 'dev', 'eth0')
      await net.fails('ADD', 'b', 11, FULL)
      await net.fails('ADD', 'b', 7, /not available/, { args: 'IP=10.1.0.2' })
      assert.equal((await call('DEL', 'a')).status, 0)
      assert.deepEqual(net.reserved(), [])
    }),
  )

  it(
    'the bridge plugin attaches a pod although a runtime forgot the container that had the only address',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = pool(node, { subnet: '10.1.0.0/30' })
      const call = (command: string, conf: object = {}) =>
        plugin(
          'bridge',
          { command, conf: { ...net.conf, bridge: 'br0', ...conf }, containerId: 'new', netns: pod },
          node,
        )
      net.put('10.1.0.2', 'forgotten\r\neth0')
      reboot(net)
      const { status, stdout, stderr } = await call('ADD')
      assert.equal(status, 0, stdout)
      assert.equal(FREED.exec(stderr)?.[1], '10.1.0.2')
      assert.match(await pod.ip('-4', 'address'), /10\.1\.0\.2\/30/)
      assert.equal((await call('DEL')).status, 0)
      assert.deepEqual(net.reserved(), [])
    }),
  )

  it(
    'explain foresees it, and changes nothing',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { subnet: '10.1.0.0/30' })
      await net.add('a')
      reboot(net)
      const before = statSync(net.dir).mtimeMs
      writeFileSync(
        join(net.dataDir, '10-net.conflist'),
        JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: [net.conf] }),
      )
      const told = await node.exec([
        join(import.meta.dir, '../../../dist/plumb'),
        'cni',
        'explain',
        'net',
        '/run/netns/b',
        '--conf-dir',
        net.dataDir,
        '--bin-dir',
        join(import.meta.dir, '../../../dist'),
      ])
      assert.equal(told.status, 0, told.stderr)
      assert.match(told.stdout, /10\.1\.0\.2\/30/)
      assert.equal(statSync(net.dir).mtimeMs, before)
      assert.deepEqual(net.reserved(), ['10.1.0.2'])
    }),
  )

  for (const file of PEERS) {
    it(
      `what the reference ${file} reserved in an earlier boot is freed, and what it reserved in this boot stays`,
      inNamespaces(['node'], async ({ node }, test) => {
        if (!existsSync(file)) skip(test, `no reference plugin at ${file}`)
        const net = pool(node, small)
        for (const id of ['a', 'b', 'c']) await net.add(id, { file })
        reboot(net)
        for (const id of ['d', 'e']) await net.add(id, { file })
        const { status, stdout, stderr } = await net.call('ADD', 'new')
        assert.equal(status, 0, stdout)
        assert.equal(FREED.exec(stderr)?.[1], '10.1.0.2,10.1.0.3,10.1.0.4')
        assert.equal(net.reserved().length, 3)
        // The reference goes on with the same files.
        await net.add('theirs', { file })
        await net.does('DEL', 'd', { file })
        await net.does('DEL', 'new', { file })
      }),
    )
  }
})
