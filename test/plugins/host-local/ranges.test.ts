// lane: netns
// Tests plugins/host-local.ts and lib/pools.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces } from '../../support/harness.ts'
import { pool } from '../../support/pool.ts'

describe('host-local: the ranges', () => {
  it(
    'round robin over all ranges; a freed address after the rest; exhaustion names the set',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, {
        ranges: [[{ subnet: '10.1.0.0/30' }, { subnet: '10.2.0.0/29', rangeStart: '10.2.0.5', rangeEnd: '10.2.0.7' }]],
      })
      const given: string[][] = []
      for (const id of ['a', 'b']) given.push(await net.add(id))
      await net.does('DEL', 'a')
      for (const id of ['c', 'd']) given.push(await net.add(id))
      assert.deepEqual(given.flat(), ['10.1.0.2', '10.2.0.5', '10.2.0.6', '10.1.0.2'])
      const { error } = await net.call('ADD', 'e')
      assert.deepEqual(
        { code: error.code, msg: error.msg },
        { code: 11, msg: 'no IP addresses available in range set: 10.1.0.1-10.1.0.2,10.2.0.5-10.2.0.6' },
      )
      assert.match(error.details, /^3 of 3 are in use; .*run GC/)
    }),
  )

  it(
    'with "cooldown" a freed address rests',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, { subnet: '10.1.0.0/30', cooldown: 3600 }, { cniVersion: '1.1.0' })
      await net.add('a')
      await net.does('DEL', 'a')
      await net.fails('ADD', 'b', 11, /range set: 10\.1\.0\.1-10\.1\.0\.2$/)
      await net.fails('STATUS', '', 50, /range set: 10\.1\.0\.1-10\.1\.0\.2$/)
      assert.deepEqual(await net.add('b', { args: 'IP=10.1.0.2' }), ['10.1.0.2'])
    }),
  )

  it(
    "old style, new style and runtime ipRanges count together, the runtime's first",
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(
        node,
        { subnet: '10.1.0.0/24', rangeStart: '10.1.0.10', gateway: '10.1.0.254', ranges: [[{ subnet: 'fd00::/64' }]] },
        { runtimeConfig: { ipRanges: [[{ subnet: '10.3.0.0/24' }]] } },
      )
      const { result } = await net.call('ADD', 'a')
      assert.deepEqual(result['ips'], [
        { address: '10.3.0.2/24', gateway: '10.3.0.1' },
        { address: '10.1.0.10/24', gateway: '10.1.0.254' },
        { address: 'fd00::2/64', gateway: 'fd00::1' },
      ])
    }),
  )

  const one = (range: object) => ({ ranges: [[range]] })
  const wrong: Record<string, [object, RegExp, object?]> = {
    'no ipam': [{}, /^Cannot read ipam: it is missing$/, { ipam: undefined }],
    'no range': [{}, /^Cannot read ipam: no IP ranges specified; want "ranges"/],
    'an empty set': [{ ranges: [[]] }, /^Cannot read ipam\.ranges\[0\] \[\]: want at least one range$/],
    'host bits, telling the network': [
      { subnet: '10.1.0.9/29' },
      /^Cannot read ipam\.subnet "10\.1\.0\.9\/29": want a network without host bits, here 10\.1\.0\.8\/29$/,
    ],
    'too small': [
      one({ subnet: '10.1.0.0/31' }),
      /^Cannot read ipam\.ranges\[0\]\[0\]\.subnet "10\.1\.0\.0\/31": want a \/30 or wider/,
    ],
    'a start outside': [
      one({ subnet: '10.1.0.0/24', rangeStart: '10.2.0.1' }),
      /^Cannot read ipam\.ranges\[0\]\[0\]\.rangeStart "10\.2\.0\.1": want an address in 10\.1\.0\.0\/24$/,
    ],
    'an end outside': [
      one({ subnet: '10.1.0.0/24', rangeEnd: '10.2.0.1' }),
      /\.rangeEnd "10\.2\.0\.1": want an address in 10\.1\.0\.0\/24$/,
    ],
    'an overlap inside a set': [
      { ranges: [[{ subnet: '10.1.0.0/24' }, { subnet: '10.1.0.0/25' }]] },
      /^Cannot read ipam\.ranges\[0\]\[1\] .* does not overlap ipam\.ranges\[0\]\[0\]/,
    ],
    'an overlap between sets': [
      { subnet: '10.1.0.0/24', ranges: [[{ subnet: '10.1.0.0/25' }]] },
      /^Cannot read ipam\.ranges\[0\]\[0\] .* does not overlap ipam /,
    ],
    'mixed families': [
      { ranges: [[{ subnet: '10.1.0.0/24' }, { subnet: 'fd00::/64' }]] },
      /^Cannot read ipam\.ranges\[0\]\[1\]\.subnet "fd00::\/64": want IPv4/,
    ],
    'two of a family before 0.3.0': [
      { ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: '10.2.0.0/24' }]] },
      /CNI version 0\.2\.0 does not support more than 1 address per family/,
      { cniVersion: '0.2.0' },
    ],
    'two of a family where the version is empty, which is 0.1.0': [
      { ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: '10.2.0.0/24' }]] },
      /CNI version 0\.1\.0 does not support more than 1 address per family/,
      { cniVersion: '' },
    ],
    'a subnet that is none': [
      one({ subnet: '10.1.0.0' }),
      /^Cannot read ipam\.ranges\[0\]\[0\]\.subnet "10\.1\.0\.0": want an address with a prefix length/,
    ],
    'a line break': [{ subnet: '10.1.0.0/24\n' }, /^Cannot read ipam\.subnet "10\.1\.0\.0\/24\\n": want/],
    'a range of the wrong type': [
      { ranges: [{ subnet: '10.1.0.0/24' }] },
      /^Cannot read ipam\.ranges\[0\] .*: want an array$/,
    ],
    'a route without dst': [
      { subnet: '10.1.0.0/24', routes: [{ gw: '10.1.0.1' }] },
      /^Cannot read ipam\.routes\[0\]\.dst: it is missing$/,
    ],
    'a dataDir with NUL': [
      { subnet: '10.1.0.0/24', dataDir: '/run/a\0b' },
      /^Cannot read ipam\.dataDir "\/run\/a\\u0000b": want a path/,
    ],
    'a dataDir of 10 MB': [
      { subnet: '10.1.0.0/24', dataDir: 'x'.repeat(10_000_000) },
      /^Cannot read ipam\.dataDir "x{70,80}…": want a path of at most 4095 bytes$/,
    ],
    'a cooldown below zero': [
      { subnet: '10.1.0.0/24', cooldown: -1 },
      /^Cannot read ipam\.cooldown -1: want a whole number, 0 to/,
    ],
  }
  for (const [what, [ipam, msg, top = {}]] of Object.entries(wrong)) {
    it(
      `${what} is refused, and nothing is made`,
      inNamespaces(['node'], async ({ node }) => {
        const net = pool(node, ipam, top)
        await net.fails('ADD', 'a', 7, msg)
        assert.deepEqual(readdirSync(net.dataDir), [])
      }),
    )
  }

  it(
    'a /31 and a /127 are usable on request',
    inNamespaces(['node'], async ({ node }) => {
      const given = async (ipam: object, args?: string) =>
        (await pool(node, ipam).call('ADD', 'a', args ? { args } : {})).result['ips']
      assert.deepEqual(await given({ subnet: '10.1.0.0/31', rangeStart: '10.1.0.0' }), [
        { address: '10.1.0.0/31', gateway: '10.1.0.1' },
      ])
      assert.deepEqual(await given({ subnet: '10.1.0.0/31', rangeEnd: '10.1.0.1', gateway: '10.1.0.0' }), [
        { address: '10.1.0.1/31', gateway: '10.1.0.0' },
      ])
      assert.deepEqual(await given({ subnet: 'fd00::/127' }, 'IP=fd00::1'), [
        { address: 'fd00::1/127', gateway: 'fd00::' },
      ])
    }),
  )

  it(
    'resolv.conf: comments, domain, search and options are read; a missing file is named, before an address is taken',
    inNamespaces(['node'], async ({ node }) => {
      const file = join(mkdtempSync('/run/resolv-'), 'resolv.conf')
      writeFileSync(
        file,
        '# a comment\n; another\nnameserver 192.0.2.1\n\tnameserver\t2001:db8::1  \nnameserver\ndomain one.example\ndomain two.example\nsearch a.example b.example\nsearch c.example\noptions ndots:5 timeout:1\nsortlist 10.0.0.0\n',
      )
      const net = pool(node, { subnet: '10.1.0.0/24', resolvConf: file })
      const { result } = await net.call('ADD', 'a')
      assert.deepEqual(result['dns'], {
        nameservers: ['192.0.2.1', '2001:db8::1'],
        domain: 'two.example',
        search: ['a.example', 'b.example', 'c.example'],
        options: ['ndots:5', 'timeout:1'],
      })
      const none = pool(node, { subnet: '10.1.0.0/24', resolvConf: `${file}.no` })
      await none.fails('ADD', 'a', 5, /^Cannot read ipam\.resolvConf ".*resolv\.conf\.no": want a readable file$/)
      assert.deepEqual(readdirSync(none.dataDir), [])
    }),
  )
})
