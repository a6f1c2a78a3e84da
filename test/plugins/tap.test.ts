// lane: netns
// Tests plugins/tap.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import type { InterfacePlugin, NodeFacts } from '../../lib/cni/plugin.ts'
import { argvOf, batches } from '../../lib/state/apply.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { read } from '../../lib/text/shape.ts'
import { remaining } from '../../lib/verbs/add.ts'
import tapPlugin from '../../plugins/tap.ts'
import { AT } from '../support/attachment.ts'
import { inNamespaces, type Namespace, ping, type Row, snapshot, until } from '../support/harness.ts'
import { aliasOf, lanConf, linksOf } from '../support/lan.ts'
import { type Conf, network, traces } from '../support/network.ts'
import { testPlugin } from '../support/suites/testPlugin.ts'
import { shimmed } from '../support/tool-shims.ts'

testPlugin({
  type: 'tap',
  conf: () => tap(),
  refused: (conf) => ({ ...conf, mtu: -1 }),
  again: 'refused',
  async works(pod, result) {
    await pod.ip('link', 'set', 'lo', 'up')
    const addresses: string[] = (result['ips'] ?? [result['ip4'], result['ip6']]).map(
      (ip: Row) => (ip['address'] ?? ip['ip']).split('/')[0],
    )
    assert.equal(addresses.length, 2)
    for (const address of addresses) await until(() => ping(pod, address))
  },
})

describe('tap', () => {
  it(
    'owner, group, multiQueue, mtu and mac are on the link, which is up and marked; the result says what it is like, and CHECK finds what changed',
    onNode(async ({ node, pod }) => {
      for (const [keys, args, want] of [
        [{}, '', { user: undefined, group: undefined, queues: false, mtu: 1500 }],
        [{ owner: 4_001_234 }, '', { user: '4001234', group: undefined, queues: false, mtu: 1500 }],
        [
          { owner: 4_001_234, group: 4_005_678, multiQueue: true, mtu: 9000, mac: '02:00:00:00:00:0a' },
          '',
          { user: '4001234', group: '4005678', queues: true, mtu: 9000, mac: '02:00:00:00:00:0a' },
        ],
        [
          { mac: '02:00:00:00:00:0a' },
          'MAC=02:00:00:00:00:0b',
          { user: undefined, group: undefined, queues: false, mtu: 1500, mac: '02:00:00:00:00:0b' },
        ],
        [
          { runtimeConfig: { mac: '02:00:00:00:00:0c' } },
          'MAC=02:00:00:00:00:0b',
          { user: undefined, group: undefined, queues: false, mtu: 1500, mac: '02:00:00:00:00:0c' },
        ],
      ] as const) {
        const net = network(node, tap(keys))
        const result = await net.add(pod, { args })
        const [link, ...others] = await linksOf(pod)
        const { type, user, group, multi_queue: queues, vnet_hdr: header } = (link as Row)['linkinfo'].info_data
        assert.deepEqual(
          [others, link?.['linkinfo'].info_kind, type, link?.['flags'].includes('UP'), link?.['ifalias']],
          [[], 'tun', 'tap', true, aliasOf(pod, net.conf)],
        )
        assert.equal(header, 'owner' in keys && 'group' in keys)
        // The tool prints names where it knows them.
        assert.deepEqual(
          {
            user: user && String(user),
            group: group && String(group),
            queues,
            mtu: link?.['mtu'],
            ...('mac' in want && { mac: link?.['address'] }),
          },
          want,
        )
        assert.deepEqual(result['interfaces'], [
          { name: 'eth0', mac: link?.['address'], mtu: want.mtu, sandbox: pod.path },
        ])
        await net.check(pod, result)
        assert.match(
          (await net.fails('CHECK', pod, { conf: { ...net.conf, multiQueue: !want.queues, prevResult: result } })).msg,
          /like\.multiQueue/,
        )
        await pod.ip('link', 'set', 'dev', 'eth0', 'address', '02:00:00:00:00:77')
        assert.match(
          (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
          /mac 02:00:00:00:00:77/,
        )
        await net.del(pod)
        assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
      }
    }),
  )

  it(
    "without ipam a link that is up; dns is the pool's unless the configuration has its own; wrong values are refused with what would be right",
    onNode(async ({ node, pod }) => {
      const bare = network(node, tap({ ipam: undefined }))
      const result = await bare.add(pod)
      assert.deepEqual(
        [Object.keys(result), (await linksOf(pod))[0]?.['flags'].includes('UP')],
        [['cniVersion', 'interfaces'], true],
      )
      await bare.check(pod, result)
      await bare.del(pod)
      const resolvConf = `${mkdtempSync('/run/resolv-')}/resolv.conf`
      writeFileSync(resolvConf, 'nameserver 10.1.0.53\n')
      const { ipam, ...rest } = tap()
      const net = network(node, { ...rest, ipam: { ...ipam, resolvConf } })
      assert.deepEqual((await net.add(pod))['dns'], { nameservers: ['10.1.0.53'] })
      await net.del(pod)
      for (const [keys, code, want] of [
        [{ owner: -1 }, 7, /^Cannot read owner -1: want a whole number, 0 to 4294967294$/],
        [{ group: 'wheel' }, 7, /^Cannot read group "wheel": want a whole number/],
        [{ mtu: 65522 }, 7, /^Cannot read mtu 65522: want a whole number, 0 to 65521$/],
        [{ multiQueue: 'yes' }, 7, /^Cannot read multiQueue "yes": want true or false$/],
        [{ bridge: 'br7' }, 7, /^Cannot find the bridge "br7" in \S+: there is no such link$/],
        [{ bridge: 'lo' }, 7, /^Cannot use "lo" in \S+ as a bridge: it is not a bridge$/],
        [
          { selinuxContext: 'not a context' },
          7,
          /^Cannot read selinuxContext "not a context": want an SELinux context such as /,
        ],
        [
          { selinuxContext: 'system_u:system_r:svirt_t:s0:c1,c2' },
          4,
          /^Cannot give the tap the SELinux context "system_u:system_r:svirt_t:s0:c1,c2": SELinux is not on in this kernel$/,
        ],
      ] as const) {
        const error = await net.fails('ADD', pod, { conf: { ...net.conf, ...keys } })
        assert.match(error.msg, want)
        assert.deepEqual([error.code, await linksOf(pod), traces(pod, net.conf)], [code, [], []], error.msg)
      }
    }),
  )

  it(
    'on a node without /dev/net/tun STATUS says 50, ADD why, nothing is left, and DEL works',
    onNode(async ({ node, pod }) => {
      const net = network(node, tap())
      // In a mount namespace of its own.
      const { file } = shimmed('tap', {}, 'mount -t tmpfs none /dev/net')
      for (const [command, code] of [
        ['STATUS', 50],
        ['ADD', 4],
      ] as const) {
        const error = await net.fails(command, pod, { file })
        assert.deepEqual([error.code, error.msg], [code, 'Cannot make a tap: the node has no /dev/net/tun'])
      }
      await net.del(pod, { file })
      assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
    }),
  )

  it('where SELinux is on, the tool that makes the tap runs in the context that was asked for, and no other does', () => {
    const plugin = tapPlugin as unknown as InterfacePlugin<never>
    const conf = read(plugin.conf, {
      name: 'net',
      type: 'tap',
      owner: 7,
      selinuxContext: 'system_u:system_r:svirt_t:s0',
    }).value
    const node = { bridgeNf: false, hasSelinux: true } as NodeFacts
    const told = (put: readonly Resource[]) =>
      batches({ put, drop: [] }).flatMap((batch) =>
        batch.tool === 'file'
          ? []
          : [
              [
                batch.ns,
                ...argvOf(batch),
                ...batch.steps.map(({ line }) => line.text.replace(/plumb[0-9a-f]+|02(:\w\w){5}/g, '_')),
              ],
            ],
      )
    const links = plugin.links?.(conf, AT, node) ?? []
    assert.deepEqual(told(links), [
      [
        '/run/netns/pod',
        'runcon',
        'system_u:system_r:svirt_t:s0',
        'ip',
        '-batch',
        '-',
        'tuntap add mode tap name _ user 7',
        'link set dev _ address _',
      ],
    ])
    assert.deepEqual(told(remaining(links, plugin.wire(conf, AT, {}, node)).put), [
      [
        '/run/netns/pod',
        'ip',
        '-batch',
        '-',
        'link set dev _ alias plumb/net/c1/eth0 name eth0',
        'link set dev eth0 up',
      ],
    ])
  })

  it(
    'a port of a bridge of the pod, which CHECK knows',
    onNode(async ({ node, pod }) => {
      await pod.ip('link', 'add', 'br5', 'type', 'bridge')
      const net = network(node, tap({ bridge: 'br5', ipam: undefined }))
      const result = await net.add(pod)
      const link = (await linksOf(pod)).find(({ ifname }) => ifname === 'eth0')
      assert.deepEqual([link?.['master'], link?.['flags'].includes('UP')], ['br5', true])
      await net.check(pod, result)
      await pod.ip('link', 'set', 'dev', 'eth0', 'nomaster')
      assert.match(
        (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
        /port\.master off, want br5/,
      )
      await net.del(pod)
      assert.deepEqual(
        (await linksOf(pod)).map(({ ifname }) => ifname),
        ['br5'],
      )
    }),
  )

  it(
    'a taken interface name is an error, and the other link, itself a tap, stays as it is, also by the DEL and the GC that follow',
    onNode(async ({ node, pod }) => {
      const others = network(node, tap())
      await others.add(pod)
      await pod.ip('tuntap', 'add', 'mode', 'tap', 'name', 'eth1')
      const before = await snapshot(pod)
      const net = network(node, tap())
      for (const ifname of ['eth0', 'eth1']) {
        const { code, msg } = await net.fails('ADD', pod, { ifname })
        assert.deepEqual(
          [code, msg],
          [4, `Cannot create ${ifname} in ${pod.path}: a link of that name is there already`],
        )
      }
      for (const ifname of ['eth0', 'eth1']) await net.del(pod, { ifname })
      await net.gc()
      assert.equal(await snapshot(pod), before)
      await others.del(pod, { netns: '' })
      assert.deepEqual(
        (await linksOf(pod)).map(({ ifname }) => ifname),
        ['eth1'],
      )
    }),
  )
})

function tap(keys: object = {}): Conf {
  return lanConf('tap', keys)
}

function onNode(
  work: (all: Record<'node' | 'pod', Namespace>) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node', 'pod'], work)
}
