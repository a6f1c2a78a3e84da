// Tests lib/pools/earlier-boots.ts: addresses that containers had before the node was booted.
import assert from 'node:assert/strict'
import { rmSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, plugin } from '../support/harness.ts'
import { containerId } from '../support/network.ts'
import { pool } from '../support/pool.ts'

/** Six addresses, one of them the gateway's: 10.233.77.2 to 10.233.77.6 are for pods. */
const SMALL = { ranges: [[{ subnet: '10.233.77.0/29' }]] }
const ALL = [2, 3, 4, 5, 6].map((last) => `10.233.77.${last}`)
const LONG_AGO = 1_000_000_000

/** Puts reservations as a container of an earlier boot left them. */
function earlier(some: ReturnType<typeof pool>, ips: readonly string[]): void {
  for (const ip of ips) {
    some.put(ip, `before-${ip}\r\neth0`)
    utimesSync(join(some.dir, ip), LONG_AGO, LONG_AGO)
  }
}

describe('host-local after a reboot', () => {
  it(
    'F17 a full pool takes back what containers of an earlier boot had, says which, and leaves the rest byte for byte',
    inNamespaces(['node'], async ({ node }) => {
      const some = pool(node, SMALL)
      earlier(some, ALL.slice(0, 4))
      assert.deepEqual(await some.add('new'), ['10.233.77.6'])
      // Nothing is taken back while there are free addresses.
      assert.equal(some.reserved().length, 5)
      const mine = some.files()['10.233.77.6']
      const { status, stderr, result } = await some.call('ADD', 'newer')
      assert.equal(status, 0, stderr)
      assert.equal(result['ips'][0].address, '10.233.77.2/29')
      for (const ip of ALL.slice(0, 4)) assert.match(stderr, new RegExp(`took back ${ip.replaceAll('.', '\\.')}: container before-${ip.replaceAll('.', '\\.')} had it before the node was booted`))
      assert.deepEqual(some.reserved(), ['10.233.77.2', '10.233.77.6'])
      assert.equal(some.files()['10.233.77.6'], mine)
      // A late DEL of the forgotten container does not touch the new owner.
      await some.does('DEL', 'before-10.233.77.2')
      assert.deepEqual(some.reserved(), ['10.233.77.2', '10.233.77.6'])
    }),
  )

  it(
    'F17 an address that is asked for by name is taken back, too',
    inNamespaces(['node'], async ({ node }) => {
      const some = pool(node, SMALL)
      earlier(some, ['10.233.77.3'])
      const { status, result, stdout } = await some.call('ADD', 'new', { args: 'IP=10.233.77.3' })
      assert.equal(status, 0, stdout)
      assert.equal(result['ips'][0].address, '10.233.77.3/29')
    }),
  )

  it(
    'F17 what a namespace of the node has stays reserved, whoever made it and whatever the clock says',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const some = pool(node, SMALL)
      earlier(some, ALL)
      await pod.exec(['ip', 'addr', 'add', '10.233.77.2/32', 'dev', 'lo'])
      await other.exec(['ip', 'addr', 'add', '10.233.77.4/32', 'dev', 'lo'])
      await some.call('ADD', 'new')
      assert.deepEqual(
        Object.keys(some.files()).filter((name) => some.files()[name]?.startsWith('before-')),
        ['10.233.77.2', '10.233.77.4'],
      )
      for (const id of ['b', 'c']) await some.call('ADD', id)
      await some.fails('ADD', 'd', 11, /no IP addresses available/)
    }),
  )

  it(
    'F17 what the journal of this boot has stays reserved, although its namespace is gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const some = pool(node, SMALL)
      const id = containerId(pod)
      const conf = { ...some.conf, bridge: 'br0' }
      const made = await plugin('bridge', { command: 'ADD', conf, containerId: id, netns: pod }, node)
      assert.equal(made.status, 0, made.stdout)
      const [mine] = some.reserved() as [string]
      utimesSync(join(some.dir, mine), LONG_AGO, LONG_AGO)
      earlier(
        some,
        ALL.filter((ip) => ip !== mine),
      )
      // The link goes, and with it the address. The runtime knows the container, and will send DEL.
      await pod.exec(['ip', 'link', 'del', 'eth0'])
      await some.call('ADD', 'new')
      assert.ok(some.reserved().includes(mine))
      assert.equal(some.files()[mine]?.split('\r\n')[0], id)
      const gone = await plugin('bridge', { command: 'DEL', conf, containerId: id, netns: pod }, node)
      assert.equal(gone.status, 0, gone.stdout)
      assert.ok(!some.reserved().includes(mine))
    }),
  )

  it(
    'F17 reservations of this boot stay: a full pool is full, and STATUS says so; with forgotten ones STATUS is well and changes nothing',
    inNamespaces(['node'], async ({ node }) => {
      const some = pool(node, SMALL)
      const status = { conf: { ...some.conf, cniVersion: '1.1.0' } }
      for (const ip of ALL) some.put(ip, `now-${ip}\r\neth0`)
      await some.fails('ADD', 'new', 11, /no IP addresses available/)
      await some.fails('STATUS', '', 50, /no IP addresses available/, status)
      assert.deepEqual(some.reserved(), ALL)
      rmSync(join(some.dir, '10.233.77.2'))
      earlier(some, ['10.233.77.2'])
      const before = some.files()
      await some.does('STATUS', '', status)
      assert.deepEqual(some.files(), before)
    }),
  )
})
