// lane: netns
// Tests lib/cni and lib/verbs.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { inNamespaces, plugin, snapshot } from '../../support/harness.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'

/** Starts a program with exactly these variables, also with two of one name. */
const START = `
import ctypes, sys
texts = lambda all: (ctypes.c_char_p * (len(all) + 1))(*[one.encode() for one in all], None)
ctypes.CDLL(None).execve(sys.argv[1].encode(), texts(sys.argv[1:2]), texts(sys.argv[2:]))`

describe('protocol: the namespace, CNI_ARGS, prevResult', () => {
  it(
    'of two variables of one name the first counts, as for the reference plugins',
    inNamespaces(['node'], async ({ node }) => {
      const program = join(import.meta.dir, '../../../dist/host-local')
      const variables = ['CNI_COMMAND=ADD', 'CNI_COMMAND=FOO', 'toString=x', 'CNI_COMMAND=VERSION']
      const { stdout } = await node.exec(['/usr/bin/python3', '-c', START, program, ...variables])
      assert.match(JSON.parse(stdout).msg, /^required env variables \[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME\] missing$/)
    }),
  )

  it(
    'CNI_NETNS of plumb itself has code 8 and leaves nothing; CNI_NETNS_OVERRIDE lets it pass',
    inNamespaces(['node'], async ({ node }) => {
      const net = network(node, bridgeConf({ isGateway: true, ipMasq: true }))
      const before = await snapshot(node)
      for (const command of ['ADD', 'DEL', 'CHECK']) {
        const { code, msg, details } = await net.fails(command, node, { conf: { ...net.conf, prevResult: {} } })
        assert.deepEqual(
          [code, msg, details],
          [
            8,
            `Cannot use CNI_NETNS ${node.path}: it is the namespace that plumb itself runs in`,
            'a pod needs one of its own; CNI_NETNS_OVERRIDE=1 lets it pass',
          ],
        )
      }
      assert.equal(
        (await plugin('loopback', { command: 'DEL', conf: { name: 'lo', cniVersion: '1.1.0' }, netns: node }, node))
          .error.code,
        8,
      )
      assert.equal(await snapshot(node), before)
      assert.deepEqual(traces(node, net.conf), [])
      for (const value of ['1', 'TRUE', 'true']) {
        const env = { CNI_NETNS_OVERRIDE: value }
        const result = await net.add(node, { env })
        assert.equal(
          (await node.json('addr', 'show', 'dev', 'eth0'))[0]?.['addr_info'][0].local,
          result['ips'][0].address.split('/')[0],
        )
        await net.check(node, result, { env })
        await net.del(node, { env })
      }
      assert.equal((await net.fails('ADD', node, { env: { CNI_NETNS_OVERRIDE: '0' } })).code, 8)
    }),
  )

  it(
    'CNI_ARGS: an unknown key fails unless IgnoreUnknown is true, a pair that is none fails, empty text is fine',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf())
      const known = 'known are MAC, IP, GATEWAY; IgnoreUnknown=1 lets others pass'
      const bad: Record<string, [string, string]> = {
        'K8S_POD_NAME=x': ['unknown args ["K8S_POD_NAME=x"]', known],
        'K8S_POD_NAME=x;IgnoreUnknown=0': ['unknown args ["K8S_POD_NAME=x"]', known],
        'A=1;B=2;IgnoreUnknown=false': ['unknown args ["A=1" "B=2"]', known],
        'mac=02:00:00:00:00:01': ['unknown args ["mac=02:00:00:00:00:01"]', known],
        A: ['invalid pair "A"', 'want KEY=VALUE;KEY=VALUE'],
        'A=B=C': ['invalid pair "A=B=C"', 'want KEY=VALUE;KEY=VALUE'],
        'IgnoreUnknown=1;': ['invalid pair ""', 'want KEY=VALUE;KEY=VALUE'],
        'IgnoreUnknown=maybe': ['IgnoreUnknown "maybe": want 1, true, 0 or false', ''],
      }
      for (const [args, [why, details]] of Object.entries(bad)) {
        const error = await net.fails('ADD', pod, { args })
        assert.deepEqual([error.code, error.msg, error.details ?? ''], [4, `Cannot read CNI_ARGS: ${why}`, details])
        assert.deepEqual(traces(pod, net.conf), [])
      }
      for (const args of [
        '',
        'IgnoreUnknown=1',
        'IgnoreUnknown=true;K8S_POD_NAME=x',
        'K8S_POD_NAMESPACE=x;IgnoreUnknown=True',
        'IgnoreUnknown=0',
        'MAC=02:00:00:00:00:01',
      ]) {
        const result = await net.add(pod, { args })
        await net.check(pod, result, { args })
        // What ADD would refuse is no reason not to remove what is there.
        await net.del(pod, { args: 'A=B=C' })
      }
      const { code, msg } = await net.fails('ADD', pod, { args: 'MAC=nonsense' })
      assert.deepEqual(
        [code, msg],
        [4, 'Cannot read MAC of CNI_ARGS "nonsense": want a unicast Ethernet address such as 02:00:0a:f4:00:02'],
      )
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  for (const cniVersion of ['0.3.0', '0.4.0', '1.0.0', '1.1.0']) {
    it(
      `a result of ${cniVersion} comes out as it went in: index 0 kept, a missing index missing, gateways optional`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const ip = (address: string, more: object = {}) => ({
          ...(cniVersion < '1.0.0' ? { version: address.includes(':') ? '6' : '4' } : {}),
          address,
          ...more,
        })
        const prevResult = {
          cniVersion,
          interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:01', sandbox: pod.path }],
          ips: [
            ip('10.1.0.2/24', { interface: 0, gateway: '10.1.0.1' }),
            ip('fd00::2/64', { interface: 0 }),
            ip('10.2.0.2/24'),
          ],
          routes: [{ dst: '0.0.0.0/0' }, { dst: '10.9.0.0/16', gw: '10.1.0.1' }],
          dns: { nameservers: ['10.1.0.53'] },
        }
        const { result } = await plugin(
          'loopback',
          { command: 'ADD', conf: { name: 'lo', cniVersion, prevResult }, netns: pod },
          node,
        )
        assert.deepEqual(result, prevResult)
      }),
    )
  }

  for (const cniVersion of ['0.1.0', '0.2.0']) {
    it(
      `${cniVersion} cannot show a result without addresses: an error, and nothing is left`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const before = await snapshot(node)
        const error = await network(node, bridgeConf({ cniVersion, ipam: undefined })).fails('ADD', pod)
        assert.deepEqual(
          [error.code, error.msg],
          [7, `Cannot answer as CNI ${cniVersion} asks: the result has no address`],
        )
        assert.equal(await snapshot(node), before)
      }),
    )
  }

  it(
    "a prevResult without cniVersion is read as the configuration's, one of an unknown version or that cannot be read is an error",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ isGateway: true }))
      const { cniVersion, ...bare } = await net.add(pod)
      assert.equal(cniVersion, '1.1.0')
      await net.check(pod, bare)
      await net.check(pod, { ...bare, cniVersion: '1.0.0' })
      const bad: Record<string, unknown> = {
        'Cannot read prevResult.cniVersion "9.9.9": want one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0': {
          ...bare,
          cniVersion: '9.9.9',
        },
        'Cannot read prevResult.ips "10.1.0.2": want an array': { ...bare, ips: '10.1.0.2' },
        'Cannot read prevResult.ips[0].address "10.1.0.2": want an address with a prefix length such as 10.1.0.0/24 or fd00::/64':
          { ...bare, ips: [{ address: '10.1.0.2' }] },
        'Cannot read prevResult.interfaces[0].name: it is missing': { ...bare, interfaces: [{}] },
        'Cannot read prevResult "text": want an object': 'text',
      }
      for (const [msg, prevResult] of Object.entries(bad)) {
        const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult } })
        assert.deepEqual([error.code, error.msg], [7, msg])
        await net.add(pod, { ifname: 'eth1', conf: { ...net.conf, bridge: 'br0' } })
        // DEL needs none of it.
        await net.del(pod, { ifname: 'eth1', conf: { ...net.conf, prevResult } })
      }
    }),
  )

  it(
    'keys in other case are accepted with a warning, unknown ones warned about, and refused with "strict"',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { ipam, ...rest } = bridgeConf()
      const conf = {
        ...rest,
        ISGATEWAY: true,
        Ipam: { Type: 'host-local', DATADIR: ipam?.dataDir, Ranges: [[{ Subnet: '10.1.0.0/24' }]] },
        brigde: 'br1',
        whatever: 1,
      }
      const { status, result, stderr } = await plugin(
        'bridge',
        { command: 'ADD', conf, containerId: containerId(pod), netns: pod },
        node,
      )
      assert.deepEqual([status, result['ips']], [0, [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 2 }]])
      for (const note of [
        'key "ISGATEWAY" is read as "isGateway"',
        'key "Ipam" is read as "ipam"',
        'unknown key "brigde", did you mean "bridge"?',
        'unknown key "whatever"',
      ])
        assert.ok(stderr.includes(note), `${note}\n${stderr}`)
      const strict = await plugin(
        'bridge',
        { command: 'ADD', conf: { ...conf, strict: true }, containerId: 'c2', netns: pod, ifname: 'eth1' },
        node,
      )
      assert.deepEqual(
        [strict.error.code, strict.error.msg],
        [
          7,
          'Cannot read the configuration: unknown key "brigde", did you mean "bridge"?; unknown key "whatever"; "strict" is true',
        ],
      )
    }),
  )
})
