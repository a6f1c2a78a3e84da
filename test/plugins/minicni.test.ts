// lane: netns
// needs: reference
// Tests lib/verbs with a plugin of twenty lines.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { references } from '../../scripts/peers.ts'
import { leftOf } from '../support/attachment-leftovers.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, snapshot, until } from '../support/harness.ts'
import { type Conf, containerId, network, traces } from '../support/network.ts'
import { addresses } from '../support/pool.ts'
import { skip } from '../support/skip.ts'
import { testPlugin } from '../support/suites/testPlugin.ts'

/** As the tutorial has it, to the letter. */
const VERBATIM =
  '{"cniVersion":"0.1.0","name":"minicni","type":"minicni","bridge":"minicni0","mtu":1500,"subnet":"10.244.0.0/24"}'
const POOLS = '/var/lib/cni/networks'
let serial = 0

testPlugin({
  type: 'minicni',
  conf: () => miniConf(),
  refused: (conf) => ({ ...conf, subnet: '10.244.0.1/24' }),
  again: 'refused',
  async works(pod, result, node) {
    const [address = ''] = addresses(result)
    assert.ok(await until(() => ping(node, address)))
    assert.ok(await until(() => ping(pod, '10.244.0.1')))
  },
})

describe('minicni', () => {
  it(
    "the tutorial's own configuration: gateway on the bridge, first addresses to the pods, default routes, packets between them, addresses kept as host-local keeps them, DEL frees",
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      assert.equal(readFileSync(join(import.meta.dir, '../../conf/minicni.conf'), 'utf8').trim(), VERBATIM)
      const net = network(node, JSON.parse(VERBATIM))
      const result = await net.add(pod, { conf: VERBATIM })
      assert.deepEqual(result, {
        cniVersion: '0.1.0',
        ip4: { ip: '10.244.0.2/24', gateway: '10.244.0.1', routes: [{ dst: '0.0.0.0/0', gw: '10.244.0.1' }] },
        dns: {},
      })
      assert.deepEqual(addresses(await net.add(other, { conf: VERBATIM })), ['10.244.0.3'])
      assert.deepEqual(await shape(node, 'minicni0'), [1500, ['10.244.0.1/24']])
      assert.deepEqual(await shape(pod, 'eth0'), [1500, ['10.244.0.2/24']])
      assert.equal((await pod.json('route', 'show', 'default'))[0]?.['gateway'], '10.244.0.1')
      for (const [from, to] of [
        [pod, '10.244.0.3'],
        [other, '10.244.0.2'],
        [pod, '10.244.0.1'],
        [node, '10.244.0.2'],
      ] as const)
        assert.ok(await until(() => ping(from, to)), `${from.name} to ${to}`)
      assert.deepEqual(held('minicni'), {
        '10.244.0.2': `${containerId(pod)}\r\neth0`,
        '10.244.0.3': `${containerId(other)}\r\neth0`,
      })
      await net.del(pod, { conf: VERBATIM })
      assert.deepEqual(Object.keys(held('minicni')), ['10.244.0.3'])
      assert.ok(await ping(node, '10.244.0.3'))
      await net.del(other, { conf: VERBATIM, netns: '' })
      assert.deepEqual([held('minicni'), await leftOf(net.conf, node, pod)], [{}, []])
    }),
  )

  it(
    'bridge and mtu have their defaults, and an IPv6 subnet is one, too',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      for (const [keys, mtu, gateway] of [
        [{}, 1500, '10.244.0.1'],
        [{ mtu: 1400, bridge: '' }, 1400, '10.244.0.1'],
        [{ subnet: 'fd00:244::/64' }, 1500, 'fd00:244::1'],
      ] as const) {
        const net = network(node, miniConf({ bridge: undefined, mtu: undefined, ...keys }))
        const result = await net.add(pod)
        assert.equal(result['interfaces'][0].name, 'minicni0')
        assert.equal((await shape(pod, 'eth0'))[0], mtu)
        assert.ok(await until(() => ping(pod, gateway)), gateway)
        await net.check(pod, result)
        await net.del(pod)
        await node.ip('link', 'delete', 'minicni0')
      }
    }),
  )

  it(
    'its pool is its own, whatever CNI_PATH holds: nothing, no host-local, or a foreign one',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const [reference] = references()
      for (const path of [null, mkdtempSync('/run/empty-'), ...(reference ? [reference.path] : [])]) {
        const net = network(node, miniConf())
        const result = await net.add(pod, { path })
        assert.deepEqual(addresses(result), ['10.244.0.2'])
        assert.ok(await until(() => ping(pod, '10.244.0.1')))
        await net.add(other, { path })
        await net.check(pod, result, { path })
        const valid = [{ containerID: containerId(pod), ifname: 'eth0' }]
        for (const command of ['STATUS', 'GC'])
          assert.equal(
            (
              await plugin(
                'minicni',
                {
                  command,
                  path,
                  conf: { ...net.conf, 'cni.dev/valid-attachments': valid },
                  containerId: null,
                  ifname: null,
                },
                node,
              )
            ).stdout,
            '',
          )
        assert.deepEqual(Object.keys(held(net.conf.name)), ['10.244.0.2'])
        await net.del(pod, { path })
        assert.deepEqual([held(net.conf.name), traces(pod, net.conf), traces(other, net.conf)], [{}, [], []])
      }
    }),
  )

  it(
    'the reference host-local reads what it keeps: it gives out none of its addresses, and frees them',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
      const [reference] = references()
      if (!reference) return skip(test, 'no reference plugins (package containernetworking-plugins)')
      const net = network(node, miniConf({ cniVersion: '1.0.0' }))
      await net.add(pod)
      const conf = { ...net.conf, ipam: { type: 'host-local', subnet: '10.244.0.0/24' } }
      const theirs = (command: string, ns: Namespace) =>
        plugin(
          'host-local',
          { command, conf, containerId: containerId(ns), netns: ns, file: `${reference.path}/host-local` },
          node,
        )
      assert.deepEqual(addresses((await theirs('ADD', other)).result), ['10.244.0.3'])
      for (const ns of [pod, other]) assert.equal((await theirs('DEL', ns)).status, 0)
      assert.deepEqual(held(net.conf.name), {})
      await net.del(pod)
    }),
  )

  it(
    '24 ADDs at once give 24 addresses, 24 DELs at once free them all',
    inNamespaces(['node', ...Array.from({ length: 24 }, (_, i) => `pod${i}`)], async (all) => {
      const { node, ...rest } = all as Record<string, Namespace>
      const pods = Object.values(rest)
      const net = network(node as Namespace, miniConf())
      const given = await Promise.all(pods.map((pod) => net.add(pod)))
      assert.equal(new Set(given.flatMap(addresses)).size, 24)
      assert.deepEqual(Object.keys(held(net.conf.name)).sort(), given.flatMap(addresses).sort())
      const [one, two] = pods as [Namespace, Namespace]
      assert.ok(await until(() => ping(one, addresses(given[1] as Row)[0] as string)))
      assert.ok(await until(() => ping(two, '10.244.0.1')))
      await Promise.all(pods.map((pod) => net.del(pod)))
      assert.deepEqual([held(net.conf.name), await (node as Namespace).json('link', 'show', 'type', 'veth')], [{}, []])
    }),
  )

  const bad: Record<string, { keys: object; msg: RegExp }> = {
    'no subnet': {
      keys: { subnet: undefined },
      msg: /^Cannot read subnet: it is missing; want the network of this node's pods, such as 10\.244\.0\.0\/24$/,
    },
    'a subnet without a length': {
      keys: { subnet: '10.244.0.0' },
      msg: /^Cannot read subnet "10\.244\.0\.0": want an address with a prefix length/,
    },
    'a subnet with host bits': {
      keys: { subnet: '10.244.0.9/24' },
      msg: /^Cannot read subnet "10\.244\.0\.9\/24": want a network without host bits, here 10\.244\.0\.0\/24$/,
    },
    'a subnet that holds no pod': {
      keys: { subnet: '10.244.0.0/31' },
      msg: /^Cannot read subnet "10\.244\.0\.0\/31": want a \/30 or wider, for a gateway and a pod$/,
    },
    'a bridge that is no name': {
      keys: { bridge: 'mini cni' },
      msg: /^Cannot read bridge "mini cni": want an interface name/,
    },
    'an mtu that is none': { keys: { mtu: '1500' }, msg: /^Cannot read mtu "1500": want a whole number/ },
    'an unknown key, with "strict"': {
      keys: { strict: true, subnett: '10.244.0.0/24' },
      msg: /unknown key "subnett", did you mean "subnet"\?/,
    },
  }
  it(
    'refuses, by its own keys and before anything is made; DEL works all the same',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const before = await snapshot(node)
      for (const [what, { keys, msg }] of Object.entries(bad)) {
        const net = network(node, miniConf(keys))
        for (const command of ['ADD', 'CHECK']) {
          const error = await net.fails(command, pod)
          assert.deepEqual([error.code, msg.test(error.msg)], [7, true], `${what}: ${error.msg}`)
        }
        await net.del(pod)
        assert.deepEqual(
          [await snapshot(node), traces(pod, net.conf), existsSync(join(POOLS, net.conf.name))],
          [before, [], false],
          what,
        )
      }
    }),
  )

  it(
    'CHECK fails when the link, its address or its route is not as ADD made it, STATUS when the subnet is full',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, miniConf({ subnet: '10.244.0.0/30' }))
      const result = await net.add(pod)
      const full = await net.fails('STATUS', pod)
      assert.deepEqual([full.code, full.msg], [50, 'no IP addresses available in range set: 10.244.0.1-10.244.0.2'])
      assert.equal((await net.fails('ADD', other)).code, 11)
      for (const [damage, says] of [
        ['route delete default', /route 0\.0\.0\.0\/0 in the pod is missing/],
        ['addr delete 10.244.0.2/30 dev eth0', /address 10\.244\.0\.2\/30 on eth0 in the pod is missing/],
        ['link set eth0 down', /link eth0 in the pod has up off, want true/],
        ['link delete eth0', /link eth0 in the pod is missing/],
      ] as const) {
        await pod.ip(...damage.split(' '))
        assert.match((await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).details, says)
      }
      await net.del(pod)
      await net.add(other)
    }),
  )
})

/** The tutorial's configuration in a version with all verbs, as a network of its own. */
function miniConf(keys: object = {}): Conf {
  return { ...JSON.parse(VERBATIM), cniVersion: '1.1.0', name: `mini${++serial}`, ...keys }
}

/** The reservations of a network: address and owner. */
function held(name: string): Record<string, string> {
  const dir = join(POOLS, name)
  const files = existsSync(dir) ? readdirSync(dir).filter((file) => /^[\d.]+$/.test(file)) : []
  return Object.fromEntries(files.sort().map((file) => [file, readFileSync(join(dir, file), 'utf8')]))
}

async function shape(ns: Namespace, dev: string): Promise<[number, string[]]> {
  const [link] = await ns.json('addr', 'show', 'dev', dev)
  return [
    link?.['mtu'],
    link?.['addr_info']
      .filter(({ scope }: Row) => scope === 'global')
      .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`),
  ]
}
