// lane: netns
// Tests plugins/host-local.ts and lib/pools.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces } from '../../support/harness.ts'
import { addresses, pool, two } from '../../support/pool.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

/** The newest release of the reference plugin. */
const PEER = '/var/cache/plumb/peers/bin-1.9.1/host-local'
const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']
let serial = 0

testPlugin({
  type: 'host-local',
  conf: () => ({
    cniVersion: '1.1.0',
    name: `pool${++serial}`,
    type: 'host-local',
    ipam: {
      type: 'host-local',
      dataDir: mkdtempSync('/run/ipam-'),
      ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]],
    },
  }),
  refused: (conf) => ({ ...conf, ipam: { ...conf.ipam, ranges: [[{ subnet: '10.1.0.0' }]] } }),
  again: 'refused',
  async works(pod, result, _, conf) {
    const id = pod.path.slice(pod.path.lastIndexOf('/') + 1)
    for (const ip of addresses(result))
      assert.equal(readFileSync(join(conf.ipam?.dataDir as string, conf.name, ip), 'utf8'), `${id}\r\neth0`)
    assert.equal(addresses(result).length, 2)
  },
})

describe('host-local: ADD, CHECK, DEL', () => {
  for (const cniVersion of VERSIONS) {
    it(
      `${cniVersion}: two v4 ranges and v6 make files, last_reserved_ip, gateway, routes and dns as the reference does, byte for byte where it is installed`,
      inNamespaces(['node'], async ({ node }) => {
        writeFileSync(
          '/run/resolv.conf',
          'nameserver 192.0.2.53\ndomain example.org\nsearch a.example b.example\noptions ndots:2\n',
        )
        const ipam = {
          ...two,
          routes: [{ dst: '0.0.0.0/0' }, { dst: '192.0.2.0/24', gw: '10.1.0.1' }, { dst: '::/0', gw: 'fd00::9' }],
          resolvConf: '/run/resolv.conf',
        }
        const net = pool(node, ipam, { cniVersion })
        const { status, stdout, stderr, result } = await net.call('ADD', 'c1')
        assert.deepEqual({ status, stderr }, { status: 0, stderr: '' }, stdout)
        assert.deepEqual(addresses(result), ['10.1.0.2', 'fd00::2'])
        assert.deepEqual(result['dns'], {
          nameservers: ['192.0.2.53'],
          domain: 'example.org',
          search: ['a.example', 'b.example'],
          options: ['ndots:2'],
        })
        const first = cniVersion < '0.3.0' ? result['ip4'] : result['ips'][0]
        assert.equal(first['gateway'], '10.1.0.1')
        assert.deepEqual(net.files(), {
          '10.1.0.2': 'c1\r\neth0',
          'fd00::2': 'c1\r\neth0',
          'last_reserved_ip.0': '10.1.0.2',
          'last_reserved_ip.1': 'fd00::2',
        })
        if (existsSync(PEER)) {
          const theirs = pool(node, ipam, { cniVersion })
          assert.equal((await theirs.call('ADD', 'c1', { file: PEER })).stdout.trimEnd(), stdout.trimEnd())
          assert.deepEqual(theirs.files(), net.files())
        }
        if (cniVersion >= '0.4.0') await net.does('CHECK', 'c1')
        await net.does('DEL', 'c1')
        assert.deepEqual(net.left(), ['last_reserved_ip.0', 'last_reserved_ip.1'])
        if (cniVersion >= '0.4.0') await net.fails('CHECK', 'c1', 3, /^Cannot find an address of container c1 on eth0/)
      }),
    )
  }

  it(
    'one container on two interfaces: DEL takes only its own',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      await net.add('c1')
      await net.add('c1', { ifname: 'eth1' })
      await net.does('DEL', 'c1')
      assert.deepEqual(net.reserved(), ['10.1.0.3', 'fd00::3'])
      await net.does('CHECK', 'c1', { ifname: 'eth1' })
    }),
  )

  it(
    "a second ADD of the same key is refused in the reference's words, and the files stay",
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      await net.add('c1')
      const before = net.files()
      await net.fails('ADD', 'c1', 4, /^10\.1\.0\.2 has been allocated to c1, duplicate allocation is not allowed$/)
      assert.deepEqual(net.files(), before)
    }),
  )

  it(
    'files with a bare id, and with blanks, are found by CHECK and freed by DEL',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      net.put('10.1.0.4', 'old')
      net.put('10.1.0.5', '\n c2 \r\n eth0 \n')
      for (const id of ['old', 'c2']) {
        await net.does('CHECK', id)
        await net.does('DEL', id)
      }
      assert.deepEqual(net.reserved(), [])
    }),
  )

  it(
    'DEL of an unknown id succeeds and makes nothing; nothing is said on stderr',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      await net.does('DEL', 'c1')
      await net.does('DEL', 'c1', { netns: '' })
      assert.deepEqual(readdirSync(net.dataDir), [])
      await net.add('c2')
      await net.does('DEL', 'c1')
      assert.deepEqual(net.reserved(), ['10.1.0.2', 'fd00::2'])
    }),
  )

  it(
    'keys are read in any case, in the pool of any plugin, and routes keep their mtu, advmss, priority, table and scope',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, {})
      const route = { dst: '192.0.2.0/24', mtu: 1400, advmss: 1360, priority: 7, table: 100, scope: 253 }
      const conf = {
        cniVersion: '1.1.0',
        NAME: 'net',
        type: 'bridge',
        isGateway: true,
        IPAM: {
          Type: 'host-local',
          DataDir: net.dataDir,
          Ranges: [[{ Subnet: '10.1.0.0/24', RangeEnd: '10.1.0.255', gateway: '' }]],
          ROUTES: [route],
        },
        runtimeConfig: { IPS: ['10.1.0.9', '', '10.1.0.9/24'] },
      }
      const { status, result, stdout } = await net.call('ADD', 'c1', { conf })
      assert.equal(status, 0, stdout)
      assert.deepEqual(result, {
        cniVersion: '1.1.0',
        ips: [{ address: '10.1.0.9/24', gateway: '10.1.0.1' }],
        routes: [route],
      })
    }),
  )
})

describe('host-local: wanted addresses', () => {
  it(
    'by CNI_ARGS with and without prefix, args.cni.ips and runtimeConfig.ips, in several ranges and both families',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      const want = (more: object) => ({ conf: { ...net.conf, ...more } })
      assert.deepEqual(await net.add('a', { args: 'IP=10.1.0.5' }), ['10.1.0.5', 'fd00::2'])
      assert.deepEqual(await net.add('b', { args: 'IgnoreUnknown=1;K8S_POD_NAME=w2;IP=10.2.0.5/29' }), [
        '10.2.0.5',
        'fd00::3',
      ])
      assert.deepEqual(await net.add('c', want({ args: { cni: { ips: ['fd00::77'] } } })), ['10.2.0.6', 'fd00::77'])
      assert.deepEqual(await net.add('d', want(wants(['10.1.0.3/29', 'fd00::99/64']))), ['10.1.0.3', 'fd00::99'])
      // As podman sends it after a reload: twice, and in several places.
      assert.deepEqual(
        await net.add('e', {
          args: 'IP=10.1.0.6',
          ...want({ args: { cni: { ips: ['', '10.1.0.6'] } }, ...wants(['10.1.0.6', '10.1.0.6', 'fd00::aa']) }),
        }),
        ['10.1.0.6', 'fd00::aa'],
      )
    }),
  )

  it(
    'out of range, taken, gateway, left over or unreadable: refused, and nothing is taken',
    inNamespaces(['node'], async ({ node }) => {
      const net = pool(node, two)
      await net.add('a')
      const before = net.files()
      const refused = (code: number, msg: RegExp, more: object, args = '') =>
        net.fails('ADD', 'b', code, msg, { args, conf: { ...net.conf, ...more } })
      await refused(7, /^failed to allocate all requested IPs: 10\.9\.0\.1$/, wants(['10.9.0.1']))
      await refused(7, /^failed to allocate all requested IPs: 10\.2\.0\.4$/, wants(['10.1.0.4', '10.2.0.4']))
      await refused(
        7,
        /^requested IP address fd00::2 is not available in range set fd00::1-/,
        wants(['10.1.0.4', 'fd00::2']),
      )
      await refused(7, /^requested ip fd00::1 is subnet's gateway$/, wants(['10.1.0.4', 'fd00::1']))
      await refused(
        7,
        /^Cannot read runtimeConfig\.ips\[1\] "10\.1\.0\.400": want an IP address/,
        wants(['10.1.0.4', '10.1.0.400']),
      )
      await refused(4, /^Cannot read IP of CNI_ARGS "nonsense": want an IP address/, {}, 'IP=nonsense')
      assert.deepEqual(net.files(), before)
      assert.deepEqual(await net.add('b'), ['10.1.0.3', 'fd00::3'])
    }),
  )
})

function wants(ips: string[]): object {
  return { runtimeConfig: { ips } }
}
