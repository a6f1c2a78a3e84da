// lane: quick
// Tests plugins/tuning.ts.
import assert from 'node:assert/strict'
import type { ChainedPlugin, NetConf, NodeFacts } from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import { batches } from '../../lib/state/apply.ts'
import type { Plan, Resource } from '../../lib/state/resource.ts'
import { repeatedKeys } from '../../lib/text/json.ts'
import { read } from '../../lib/text/shape.ts'
import type { IfName } from '../../lib/text/values.ts'
import { fileOf } from '../../lib/wiring/tuning.ts'
import tuning from '../../plugins/tuning.ts'
import { AT } from '../support/attachment.ts'

const { conf, wire } = tuning as ChainedPlugin<NetConf>
const BRIDGED = {
  interfaces: [{ name: 'cni0' }, { name: 'veth1' }, { name: 'eth0', sandbox: '/run/netns/pod' }],
} as Result
const KEYS = {
  mac: '02:00:00:00:00:09',
  mtu: 1400,
  promisc: true,
  allmulti: false,
  txQLen: 5,
  sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1', 'net.core.somaxconn': '512' },
}
const SEEN = [
  {
    kind: 'setting',
    ns: '/run/netns/pod',
    dev: 'eth0',
    mac: '02:00:00:00:00:01',
    mtu: 1500,
    promisc: false,
    allmulti: false,
    txQLen: 1000,
  },
  {
    kind: 'setting',
    ns: 'host',
    dev: 'veth1',
    mac: '02:00:00:00:00:02',
    mtu: 1500,
    promisc: false,
    allmulti: false,
    txQLen: 1000,
  },
  { kind: 'sysctl', ns: '/run/netns/pod', name: 'ipv4/conf/eth0/arp_filter', value: '0' },
  { kind: 'sysctl', ns: '/run/netns/pod', name: 'core/somaxconn', value: '4096' },
] as unknown as Resource[]

describe('tuning.wire()', () => {
  it('wants one line for each end of a pair, and the sysctls before; where nobody looked there is nothing to put back', () => {
    const { own } = wired(KEYS)
    assert.equal(
      lines({ put: own, drop: [] }),
      `
# host ip
link set dev veth1 mtu 1400
# /run/netns/pod file
net/ipv4/conf/eth0/arp_filter = 1
net/core/somaxconn = 512
# /run/netns/pod ip
link set dev eth0 address 02:00:00:00:00:09 mtu 1400 txqueuelen 5 promisc on allmulticast off`,
    )
    assert.equal(lines({ put: [], drop: own }), '\n')
  })

  it('puts back what was otherwise, in the order of the reference, and leaves the sysctls of the whole pod', () => {
    const { own } = wired(KEYS, { bridgeNf: false, before: SEEN })
    assert.equal(
      lines({ put: [], drop: own }),
      `
# host ip
link set dev veth1 mtu 1500
# host file
remove /run/cni/tuning/c1_eth0.json
# /run/netns/pod file
net/ipv4/conf/eth0/arp_filter = 0
# /run/netns/pod ip
link set dev eth0 mtu 1500
link set dev eth0 address 02:00:00:00:00:01
link set dev eth0 promisc off
link set dev eth0 txqueuelen 1000`,
    )
  })

  it('leaves alone what stands before the link in the result and is no other end of it', () => {
    const { own, result } = wired({ mtu: 1400 }, { bridgeNf: false, before: SEEN.slice(0, 1) })
    assert.equal(own.filter(({ kind, ns }) => kind === 'setting' && ns === 'host').length, 0)
    assert.deepEqual(result.interfaces, [
      { name: 'cni0' },
      { name: 'veth1' },
      { name: 'eth0', mtu: 1400, sandbox: '/run/netns/pod' },
    ])
  })
})

describe('tuning: fileOf()', () => {
  const names: Record<string, string> = {
    'net.ipv4.conf.IFNAME.arp_filter': 'ipv4/conf/eth0.7/arp_filter',
    'net/ipv4/conf/IFNAME/arp_filter': 'ipv4/conf/eth0.7/arp_filter',
    'net/ipv4/conf/eth0.7/arp_filter': 'ipv4/conf/eth0.7/arp_filter',
    'net.ipv4.conf.eth0/7.arp_filter': 'ipv4/conf/eth0.7/arp_filter',
    'net.ipv4.IFNAME.IFNAME': 'ipv4/eth0.7/eth0.7',
  }
  it('reads a name as sysctl(8) does', () => {
    assert.deepEqual(
      Object.fromEntries(Object.keys(names).map((name) => [name, fileOf(name, 'eth0.7' as IfName)])),
      names,
    )
  })

  it('refuses what is not below net', () => {
    for (const name of [
      '',
      'net',
      'net.',
      'net/',
      '/net/core/x',
      'kernel.x',
      'net/../kernel/x',
      'net/./x',
      'net..x',
      'net/core//x',
      'netx.core',
      'net.core.x\0',
      'net./../../kernel.x',
    ])
      assert.throws(() => fileOf(name, 'eth0' as IfName), /want the name of a sysctl below net/, name)
  })
})

describe('repeatedKeys()', () => {
  it('finds a key that stands twice in one object, at any depth, however it is escaped', () => {
    assert.deepEqual(
      repeatedKeys('{"a": {"b": 1, "c": "\\"b\\": {", "\\u0062" : [{"b": 2}, {"b": 3}]}, "d": {"b": 1}}'),
      [['a', 'b']],
    )
    assert.deepEqual(repeatedKeys('[1, {"x": [{"y": {"z": 1, "z": 2}}]}, {"x": 1}, "a:b"]'), [['x', 'y', 'z']])
  })
})

function wired(keys: object, node: NodeFacts = { bridgeNf: false }) {
  return wire(read(conf, { name: 'net', type: 'tuning', ...keys }).value, AT, BRIDGED, node)
}

function lines(plan: Plan): string {
  return `\n${batches(plan)
    .map(({ ns, tool, steps }) => `# ${ns} ${tool}\n${steps.map(({ line }) => line.text).join('\n')}`)
    .join('\n')}`
}
