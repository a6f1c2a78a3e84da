// lane: netns
// Tests plugins/tuning.ts.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { chain, good } from '../../support/chained.ts'
import { chainedNetwork } from '../../support/chained-network.ts'
import { inNamespaces, type Namespace, ping, type Row, until } from '../../support/harness.ts'
import { watched } from '../../support/host-ports.ts'
import { noted } from '../../support/journal.ts'
import { bridgeConf, containerId, traces } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'
import { ALL, looks, MAC, mtuOf, sysctl } from '../../support/tuning.ts'

const SET = { mac: MAC, mtu: 1400, txQLen: 77, promisc: true, allmulti: true }
const LIST = '/etc/cni/tuning/allowlist.conf'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

testPlugin({
  type: 'tuning',
  conf: () => ({
    cniVersion: '1.1.0',
    name: bridgeConf().name,
    type: 'tuning',
    mtu: 1400,
    allmulti: true,
    sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1', 'net.core.somaxconn': '512' },
  }),
  refused: (conf) => ({ ...conf, mtu: -1 }),
  again: 'same',
  network: chainedNetwork,
  async works(pod, _, node) {
    const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
    assert.deepEqual(
      [
        eth0?.['mtu'],
        eth0?.['flags'].includes('ALLMULTI'),
        await sysctl(pod, 'ipv4/conf/eth0/arp_filter'),
        await sysctl(pod, 'core/somaxconn'),
      ],
      [1400, true, '1', '512'],
    )
    for (const { local, scope } of eth0?.['addr_info'] ?? [])
      if (scope === 'global') assert.ok(await until(() => ping(node, local)), local)
  },
})

describe('tuning: ADD', () => {
  const sources: Record<string, { readonly keys: object; readonly args?: string }> = {
    'its own keys': { keys: ALL },
    'args.cni': {
      keys: {
        mac: '02:00:00:00:00:01',
        mtu: 1300,
        promisc: false,
        txQLen: 1,
        allmulti: false,
        runtimeConfig: { mac: '02:00:00:00:00:02' },
        args: { cni: ALL },
      },
      args: 'MAC=02:00:00:00:00:03',
    },
    'runtimeConfig, for mac': {
      keys: { ...ALL, mac: '02:00:00:00:00:01', runtimeConfig: { mac: MAC } },
      args: 'MAC=02:00:00:00:00:03;IgnoreUnknown=1;K8S_POD_NAME=x',
    },
    'CNI_ARGS, for mac': { keys: { ...ALL, mac: '02:00:00:00:00:01' }, args: `MAC=${MAC};IP=10.1.0.9` },
  }
  for (const [what, { keys, args }] of Object.entries(sources)) {
    it(
      `sets mac, mtu, promisc, allmulti and txQLen by ${what}; the state file says what was, and DEL puts it back`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const dataDir = mkdtempSync('/run/state-')
        const net = chain(node, { type: 'tuning', dataDir, ...keys })
        const prevResult = await net.link(pod)
        const was = await looks(pod)
        const outer = (await node.json('link', 'show', 'type', 'veth'))[0]?.['ifname']
        const more = args === undefined ? {} : { args }
        const { result } = good(await net.call('ADD', pod, { prevResult }, more))
        assert.deepEqual(await looks(pod), SET)
        // Both ends, or frames of the larger one are lost without a word.
        assert.equal(await mtuOf(node, outer), 1400)
        const file = `${dataDir}/${containerId(pod)}_eth0.json`
        assert.equal(
          readFileSync(file, 'utf8'),
          `{\n "mac": "${was['mac']}",\n "promisc": false,\n "mtu": 1500,\n "allmulti": false,\n "txQLen": ${was['txQLen']}\n}`,
        )
        // and with them the result.
        assert.deepEqual(
          result['interfaces'].map(({ name, mac, mtu }: Row) => [
            name === outer ? 'outer' : name,
            name === 'eth0' ? mac : '',
            mtu,
          ]),
          [
            ['br0', '', prevResult['interfaces'][0].mtu],
            ['outer', '', 1400],
            ['eth0', MAC, 1400],
          ],
        )
        good(await net.call('CHECK', pod, { prevResult: result }, more))
        good(await net.call('DEL', pod))
        assert.deepEqual(
          [await looks(pod), await mtuOf(node, outer), readdirSync(dataDir), noted('tuning')],
          [was, 1500, [], []],
        )
      }),
    )
  }

  it(
    'the mac is told of every entry of that name, and what a version does not know is left out',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await pod.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', node.path)
      const net = chain(node, { cniVersion: '1.0.0', type: 'tuning', mac: MAC, mtu: 1300 })
      const prevResult = {
        interfaces: [
          { name: 'eth0', mac: '02:00:00:00:00:07' },
          { name: 'eth0', mac: '02:00:00:00:00:08', sandbox: pod.path },
          { name: 'eth1' },
        ],
      }
      const { result } = good(await net.call('ADD', pod, { prevResult }))
      assert.deepEqual(result['interfaces'], [
        { mac: MAC, name: 'eth0' },
        { mac: MAC, name: 'eth0', sandbox: pod.path },
        { name: 'eth1' },
      ])
    }),
  )

  it(
    'sysctls with IFNAME, with slashes, and of a link whose name has a dot; DEL puts back those of the link and leaves those of the pod',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const ifname = 'eth0.7'
      const net = chain(node, {
        type: 'tuning',
        sysctl: {
          'net.ipv4.conf.IFNAME.arp_filter': '1',
          'net/ipv4/conf/eth0.7/arp_ignore': '2',
          'net.ipv4.conf.eth0/7.arp_announce': '1',
          'net.ipv4.tcp_rmem': '4096 131072 6291456',
          'net.core.somaxconn': '99',
        },
      })
      await net.add(pod, {}, { ifname })
      const names = [
        'ipv4/conf/eth0.7/arp_filter',
        'ipv4/conf/eth0.7/arp_ignore',
        'ipv4/conf/eth0.7/arp_announce',
        'core/somaxconn',
      ]
      const values = () => Promise.all(names.map((name) => sysctl(pod, name)))
      assert.deepEqual(await values(), ['1', '2', '1', '99'])
      // The kernel prints tabs.
      good(await net.call('CHECK', pod, { prevResult: {} }, { ifname }))
      good(await net.call('DEL', pod, {}, { ifname }))
      assert.deepEqual(await values(), ['0', '0', '0', '99'])
    }),
  )

  it(
    'sysctls of args.cni alone work, and win over those of the file',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning' })
      await net.add(pod, { args: { cni: { sysctl: { 'net.core.somaxconn': '77' } } } })
      assert.equal(await sysctl(pod, 'core/somaxconn'), '77')
      good(
        await net.call('ADD', pod, {
          prevResult: {},
          sysctl: { 'net.core.somaxconn': '78' },
          args: { cni: { sysctl: { 'net.core.somaxconn': '79' } } },
        }),
      )
      assert.equal(await sysctl(pod, 'core/somaxconn'), '79')
      // Nothing of the link is asked for: the reference has no state file then.
      assert.equal(existsSync('/run/cni/tuning'), false)
    }),
  )

  it(
    'with nothing to do, or an empty mac, it answers with prevResult, as podman has it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, {
        cniVersion: '0.4.0',
        type: 'tuning',
        mac: '',
        mtu: 0,
        promisc: false,
        args: null,
        runtimeConfig: { mac: '' },
      })
      const prevResult = await net.link(pod)
      const { answer, tools } = await watched(node, 'tuning', {
        command: 'ADD',
        conf: { ...net.conf, prevResult },
        containerId: containerId(pod),
        netns: pod,
      })
      assert.deepEqual(
        [good(answer).result, tools, traces(pod, net.conf).filter((path) => path.includes('tuning'))],
        [prevResult, [], []],
      )
    }),
  )

  const refused: Record<
    string,
    { readonly keys: object; readonly says: RegExp; readonly list?: string; readonly code?: number }
  > = {
    'a sysctl outside net': {
      keys: { sysctl: { 'net.core.somaxconn': '1', 'kernel.shmmax': '1' } },
      says: /^Cannot read sysctl "kernel\.shmmax": want the name of a sysctl below net/,
    },
    'a way out of net': {
      keys: { sysctl: { 'net/../kernel/shmmax': '1' } },
      says: /^Cannot read sysctl "net\/\.\.\/kernel\/shmmax": want/,
    },
    'a value that is no text': {
      keys: { sysctl: { 'net.core.somaxconn': 1 } },
      says: /^Cannot read sysctl \{"net\.core\.somaxconn":1\}: want a text/,
    },
    'a sysctl that the kernel has not': {
      keys: { sysctl: { 'net.core.somaxconn': '1', 'net.core.nosuch': '1' } },
      says: /^Cannot set sysctl "net\.core\.nosuch": this kernel has none of that name$/,
    },
    'one sysctl in two spellings': {
      keys: { sysctl: { 'net.core.somaxconn': '1', 'net/core/somaxconn': '2' } },
      says: /^Cannot set sysctl "net\/core\/somaxconn" twice/,
    },
    'a sysctl that the list has not': {
      keys: { sysctl: { 'net.core.somaxconn': '1' } },
      list: '^net\\.ipv4\\.conf\\.[[:alnum:]]+\\.\n\nrmem',
      says: /^Sysctl "net\.core\.somaxconn" is not allowed$/,
    },
    'a list with a line that is no expression': {
      keys: { sysctl: { 'net.core.somaxconn': '1' } },
      list: 'net\n(',
      says: /^Cannot read line 2 of \/etc\/cni\/tuning\/allowlist\.conf "\(": want a regular expression$/,
    },
    'a group address as mac': {
      keys: { mac: '01:00:00:00:00:01' },
      says: /^Cannot read mac "01:00:00:00:00:01": want a unicast/,
    },
    'a mac in args.cni that is none': {
      keys: { args: { cni: { mac: 'x' } } },
      says: /^Cannot read args\.cni\.mac "x": want/,
    },
    'no prevResult': { keys: { mtu: 1400, prevResult: null }, says: /^Required prevResult missing$/ },
    // These the kernel refuses, after other things were set.
    'a sysctl value that the kernel refuses': {
      keys: {
        sysctl: { 'net.core.somaxconn': '1', 'net.ipv4.conf.IFNAME.arp_filter': '1', 'net.ipv4.tcp_rmem': 'many' },
        mtu: 1400,
      },
      code: 5,
      says: /EINVAL/,
    },
    'an mtu that the link does not take': {
      keys: { sysctl: { 'net.core.somaxconn': '1', 'net.ipv4.conf.IFNAME.arp_filter': '1' }, mac: MAC, mtu: 1_000_000 },
      code: 999,
      says: /refused: .*mtu/i,
    },
  }
  for (const [what, { keys, says, list, code = 7 }] of Object.entries(refused)) {
    it(
      `${what}: refused, and nothing is changed`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        mkdirSync('/etc/cni/tuning', { recursive: true })
        if (list) writeFileSync(LIST, list)
        try {
          const net = chain(node, { type: 'tuning' })
          const prevResult = await net.link(pod)
          const before = await state(pod)
          const { status, error } = await net.call('ADD', pod, { prevResult, ...keys })
          assert.deepEqual([status, error.code], [1, code], JSON.stringify(error))
          assert.match(error.msg, says)
          assert.deepEqual(
            [await state(pod), traces(pod, net.conf).filter((path) => path.includes('tuning'))],
            [before, []],
          )
        } finally {
          rmSync(LIST, { force: true })
        }
      }),
    )
  }

  it(
    'what the list has may be set: an expression is found anywhere in the name as it is written',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      mkdirSync('/etc/cni/tuning', { recursive: true })
      writeFileSync(LIST, '^nothing$\n\n  (?i)CORE.SOM[[:lower:]]+$\n')
      try {
        await chain(node, { type: 'tuning', sysctl: { 'net.core.somaxconn': '31' } }).add(pod)
        assert.equal(await sysctl(pod, 'core/somaxconn'), '31')
      } finally {
        rmSync(LIST)
      }
    }),
  )

  it(
    'a key that stands twice is refused by name, as an interface name with a slash is, before anything is changed',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning', sysctl: { 'net.core.somaxconn': '3' } })
      const prevResult = await net.link(pod)
      const before = await state(pod)
      const conf = JSON.stringify({ ...net.conf, prevResult }).replace(
        '"sysctl":{',
        '"SysCtl":{"net.core.somaxconn":"3",',
      )
      const twice = await net.call('ADD', pod, {}, { conf })
      assert.deepEqual(
        [twice.error.code, twice.error.msg],
        [7, 'Cannot read "SysCtl.net.core.somaxconn": the key stands there twice; want each sysctl once'],
      )
      const slash = await net.call('ADD', pod, { prevResult }, { ifname: 'eth/0' })
      assert.deepEqual([slash.error.code, await state(pod)], [4, before])
    }),
  )
})

async function state(pod: Namespace): Promise<unknown> {
  return [
    await looks(pod),
    await sysctl(pod, 'core/somaxconn'),
    await sysctl(pod, 'ipv4/conf/eth0/arp_filter'),
    await sysctl(pod, 'ipv4/tcp_rmem'),
  ]
}
