// lane: netns
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import {
  type Call,
  inNamespaces,
  isSilent,
  type Namespace,
  ping,
  type Row,
  snapshot,
  until,
} from '../../support/harness.ts'
import { bridgeConf, network, traces } from '../../support/network.ts'

const [FIRST, SECOND, THIRD] = ['02:00:00:00:00:01', '02:00:00:00:00:02', '02:00:00:00:00:03']

describe('bridge: the port', () => {
  const refusals: Record<string, [object, string]> = {
    'vlan -1': [{ vlan: -1 }, 'Cannot read vlan -1: invalid VLAN ID (must be between 0 and 4094)'],
    'vlan 4095': [{ vlan: 4095 }, 'Cannot read vlan 4095: invalid VLAN ID (must be between 0 and 4094)'],
    'ipam with disableContainerInterface': [
      { disableContainerInterface: true },
      'cannot use IPAM when DisableContainerInterface flag is set: want "ipam" or "disableContainerInterface", not both',
    ],
    'hairpinMode with promiscMode': [
      { hairpinMode: true, promiscMode: true },
      'cannot set hairpin mode and promiscuous mode at the same time: want "hairpinMode" or "promiscMode", not both',
    ],
    'a bridge name of 16 bytes': [
      { bridge: 'b'.repeat(16) },
      'Cannot read bridge "bbbbbbbbbbbbbbbb": want an interface name of 1 to 15 bytes without "/", ":" or blanks',
    ],
    'a bridge name with a second command': [
      { bridge: 'br0\nlink delete lo' },
      'Cannot read bridge "br0\\nlink delete lo": want an interface name of 1 to 15 bytes without "/", ":" or blanks',
    ],
    'an mtu that is text': [{ mtu: '1400' }, 'Cannot read mtu "1400": want a whole number, 0 to 65535'],
    'a multicast MAC': [
      { args: { cni: { mac: '01:00:5e:00:00:01' } } },
      'Cannot read args.cni.mac "01:00:5e:00:00:01": want a unicast Ethernet address such as 02:00:0a:f4:00:02',
    ],
    'an unknown backend': [
      { ipMasqBackend: 'ebtables' },
      'Cannot read ipMasqBackend "ebtables": want one of iptables, nftables',
    ],
  }
  for (const [what, [keys, msg]] of Object.entries(refusals)) {
    it(
      `${what} is refused, and nothing is made`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const before = await snapshot(node)
        const net = network(node, bridgeConf(keys))
        const error = await net.fails('ADD', pod)
        assert.deepEqual({ code: error.code, msg: error.msg }, { code: 7, msg })
        assert.equal(await snapshot(node), before)
        assert.deepEqual(traces(pod, net.conf), [])
      }),
    )
  }

  const macs: Record<string, [Partial<Call>, object, string]> = {
    'CNI_ARGS MAC': [{ args: `MAC=${FIRST}` }, {}, FIRST],
    'args.cni.mac': [{}, { args: { cni: { mac: SECOND } } }, SECOND],
    'runtimeConfig.mac': [{}, { runtimeConfig: { mac: THIRD } }, THIRD],
    'args.cni.mac before CNI_ARGS': [{ args: `MAC=${FIRST}` }, { args: { cni: { mac: SECOND } } }, SECOND],
    'runtimeConfig.mac before both': [
      { args: `MAC=${FIRST}` },
      { args: { cni: { mac: SECOND } }, runtimeConfig: { mac: THIRD } },
      THIRD,
    ],
    'runtimeConfig.Mac in capitals and upper case': [
      {},
      { runtimeConfig: { Mac: '02:AB:CD:EF:00:01' } },
      '02:ab:cd:ef:00:01',
    ],
    dashes: [{ args: 'MAC=02-00-00-00-00-0A' }, {}, '02:00:00:00:00:0a'],
    'an empty one as none': [{ args: 'MAC=' }, { args: { cni: { mac: FIRST } }, runtimeConfig: { mac: '' } }, FIRST],
  }
  for (const [what, [more, keys, mac]] of Object.entries(macs)) {
    it(
      `takes the MAC of ${what}`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = network(node, bridgeConf({ isGateway: true, ...keys }))
        const result = await net.add(pod, more)
        assert.equal(result['interfaces'][2].mac, mac)
        assert.equal((await pod.json('link', 'show', 'dev', 'eth0'))[0]?.['address'], mac)
        assert.ok(await ping(node, '10.1.0.2'))
        await net.check(pod, result, more)
        // The writer of the result may have spelled it in another way.
        const spelled = {
          ...result,
          interfaces: result['interfaces'].map((one: Row) => ({
            ...one,
            mac: one['mac'].toUpperCase().replaceAll(':', '-'),
          })),
        }
        await net.check(pod, spelled, more)
      }),
    )
  }

  it(
    'macspoofchk: a forged source address is dropped, by every protocol, and the own one passes',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      const net = network(node, bridgeConf({ isGateway: true, macspoofchk: true }, '10.1.0.0/24', 'fd00:1::/64'))
      const result = await net.add(pod)
      await net.add(peer)
      const victims = ['10.1.0.1', 'fd00:1::1', '10.1.0.3', 'fd00:1::3']
      for (const address of victims) assert.ok(await ping(pod, address), address)
      for (const forged of [SECOND, await macOf(peer)]) {
        await wear(pod, forged)
        for (const address of victims)
          assert.ok(await isSilent(pod, address), `${address} was reached with a forged address`)
      }
      await wear(pod, result['interfaces'][2].mac)
      for (const address of victims) await until(() => ping(pod, address))
      // The forger did not take over the peer's way either.
      assert.ok(await ping(node, '10.1.0.3'))
    }),
  )

  it(
    'macspoofchk leaves nothing after DEL: namespace live, empty and gone',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, bridgeConf({ isGateway: true, macspoofchk: true }))
      await net.add(other)
      const mine = async () => (await node.exec(['sh', '-c', 'bridge fdb; nft list ruleset'])).stdout
      for (const netns of [pod, '', '/run/netns/gone']) {
        const { interfaces } = await net.add(pod)
        const names = new RegExp(`${interfaces[1].name}|${interfaces[2].mac}`)
        assert.match(await mine(), names)
        await net.del(pod, { netns })
        assert.doesNotMatch(await mine(), names)
      }
    }),
  )

  it(
    'disableContainerInterface leaves the container end down, and ADD does not wait for it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ ipam: undefined, disableContainerInterface: true }))
      const result = await net.add(pod)
      const [eth0] = await pod.json('link', 'show', 'dev', 'eth0')
      assert.ok(!eth0?.['flags'].includes('UP'))
      assert.equal(result['interfaces'].length, 3)
      await net.check(pod, result)
    }),
  )

  for (const portIsolation of [true, false]) {
    it(
      `portIsolation ${portIsolation}: the pods ${portIsolation ? 'reach the gateway only' : 'reach each other'}`,
      inNamespaces(['node', 'one', 'two'], async ({ node, one, two }) => {
        const net = network(node, bridgeConf({ isGateway: true, portIsolation }))
        await net.add(one)
        await net.add(two)
        assert.deepEqual(await port(node, 'isolated'), [portIsolation, portIsolation])
        assert.ok(await ping(one, '10.1.0.1'))
        assert.ok(await ping(two, '10.1.0.1'))
        assert.equal(await ping(one, '10.1.0.3'), !portIsolation)
      }),
    )
  }

  for (const hairpinMode of [true, false]) {
    it(
      `hairpinMode ${hairpinMode} is set on the port`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        await network(node, bridgeConf({ hairpinMode })).add(pod)
        assert.deepEqual(await port(node, 'hairpin'), [hairpinMode])
      }),
    )
  }
})

async function port(node: Namespace, flag: string): Promise<boolean[]> {
  return (await node.json('link', 'show', 'master', 'br0')).map(({ linkinfo }) => linkinfo.info_slave_data[flag])
}

async function macOf(pod: Namespace): Promise<string> {
  return (await pod.json('link', 'show', 'dev', 'eth0'))[0]?.['address']
}

/**
 * Gives a pod's link another address, as a process with CAP_NET_ADMIN in the pod can; what it knew of its neighbours
 * stays.
 */
async function wear(pod: Namespace, mac: string): Promise<void> {
  await pod.ip('link', 'set', 'eth0', 'address', mac)
}
