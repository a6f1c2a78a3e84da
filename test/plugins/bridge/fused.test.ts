// lane: netns
// Tests cli/fuse.ts and the fused plugins.
import assert from 'node:assert/strict'
import { fuse } from '../../../cli/fuse.ts'
import { inNamespaces, type Namespace, plugin, type Row, snapshot, until } from '../../support/harness.ts'
import { watched, works } from '../../support/host-ports.ts'
import { bridgeConf, type Conf, containerId, type Network, network, settled, traces } from '../../support/network.ts'
import { reach, serve } from '../../support/servers.ts'
import { testKill } from '../../support/suites/testKill.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

const DUAL = ['10.1.0.0/24', 'fd00:1::/64']
const serving = new WeakSet<Namespace>()
const RATES = { ingressRate: 1e8, ingressBurst: 8e6, egressRate: 1e8, egressBurst: 8e6 }
const subject = {
  type: 'bridge',
  conf: () => ({
    ...bridgeConf({ isDefaultGateway: true, ipMasq: true }, ...DUAL),
    portMappings: mapped(8080),
    firewall: { ingressPolicy: 'same-bridge' },
    bandwidth: RATES,
    tuning: { sysctl: { 'net.core.somaxconn': '500' }, txQLen: 500 },
  }),
  refused: (conf: Conf) => ({ ...conf, portMappings: { markMasqBit: 32 } }),
  again: 'refused',
  network: portsApart,
  async works(pod: Namespace, _: Row, node: Namespace) {
    if (!serving.has(pod)) await serve(pod, pod.name, 'tcp 80')
    serving.add(pod)
    for (const address of ['10.1.0.1', 'fd00:1::1'])
      assert.match(await reach(node, address, portOf(pod)), new RegExp(`^${pod.name} `))
  },
} as const

describe('bridge with portMappings, firewall, bandwidth and tuning of its own', () => {
  testPlugin(subject)
  testKill(subject)
})

/** Lists as people write them for the reference plugins; each interface plugin comes with what is chained behind it. */
const LISTS: Record<string, readonly object[]> = {
  'bridge, portmap': [
    { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true },
    { type: 'portmap', snat: true, capabilities: { portMappings: true } },
  ],
  'bridge, portmap, firewall, bandwidth, tuning': [
    { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'firewall', ingressPolicy: 'same-bridge' },
    { type: 'bandwidth', ...RATES },
    {
      type: 'tuning',
      sysctl: { 'net.core.somaxconn': '500', 'net.ipv4.conf.IFNAME.arp_filter': '1' },
      mtu: 1400,
      mac: '02:00:00:00:00:77',
    },
  ],
  'bridge, firewall, isolated': [
    { type: 'bridge', bridge: 'br0', isGateway: true },
    { type: 'firewall', ingressPolicy: 'isolated' },
  ],
  'ptp, portmap, firewall, bandwidth': [
    { type: 'ptp', ipMasq: true },
    { type: 'portmap', capabilities: { portMappings: true }, conditionsV4: ['ip', 'saddr', '!=', '192.0.2.7'] },
    { type: 'firewall' },
    { type: 'bandwidth', egressRate: 1e7, egressBurst: 1e6 },
  ],
}

// The kernel adds and removes these by itself, up to a second after a bridge gains or loses its carrier.
function withoutKernels(text: string): string {
  return text.replace(/^.*(table local proto kernel| 33:33:|^33:33:).*\n/gm, '')
}

describe('plumb cni fuse', () => {
  for (const [name, plugins] of Object.entries(LISTS))
    it(
      `${name}: the list and its fused form make the same node and pod, and give the same result; DEL of either form leaves nothing of the other`,
      inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
        test.timeout(60_000)
        const { name, ipam } = bridgeConf({}, ...DUAL)
        const [first, ...others] = plugins
        const list = { cniVersion: '1.1.0', name, plugins: [{ ...first, ipam }, ...others] }
        const { list: fused } = fuse(list)
        assert.equal((fused['plugins'] as unknown[]).length, 1)
        // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
        await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
        // What attachments share stays: both begin with it.
        await chain(node, pod, list, 'ADD')
        await chain(node, pod, list, 'DEL')
        const before = withoutKernels(await settled(() => snapshot(node)))
        const seen: Record<string, unknown> = {}
        for (const [form, made, removed] of [
          ['list', list, fused],
          ['fused', fused, list],
        ] as const) {
          const result = await chain(node, pod, made, 'ADD')
          await chain(node, pod, made, 'CHECK', result)
          seen[form] = [
            addressless(beforeTuning(result)),
            await settled(async () => [addressless(await snapshot(node)), addressless(await snapshot(pod))]),
          ]
          await chain(node, pod, removed, 'DEL')
          await until(async () => withoutKernels(await snapshot(node)) === before, 15_000).catch(async () =>
            assert.equal(withoutKernels(await snapshot(node)), before),
          )
          assert.deepEqual(traces(pod, { name, ipam: ipam as { dataDir: string } }), [])
        }
        assert.deepEqual(seen['fused'], seen['list'])
      }),
    )

  it(
    "a sysctl that stands twice in bridge's tuning is refused by name, and nothing is made",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const before = await snapshot(node)
      const conf = JSON.stringify(subject.conf()).replace('"sysctl":{', '"sysctl":{"net.core.somaxconn":"3",')
      const { error } = await plugin(
        'bridge',
        { command: 'ADD', conf, containerId: containerId(pod), netns: pod },
        node,
      )
      assert.deepEqual(
        [error.code, error.msg],
        [7, 'Cannot read "sysctl.net.core.somaxconn": the key stands there twice; want each sysctl once (in tuning)'],
      )
      assert.equal(await snapshot(node), before)
    }),
  )

  it(
    'bridge with portMappings, firewall, bandwidth and tuning: two runs of ip, one of nft, one of tc, and no other process; DEL of it one of ip and one of nft',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const conf = subject.conf()
      // The first of a node makes the bridge, the second does not.
      await network(node, conf).add(other)
      const { answer, tools } = await watched(node, 'bridge', {
        command: 'ADD',
        conf: { ...conf, portMappings: mapped(8082) },
        containerId: containerId(pod),
        netns: pod,
      })
      works(answer)
      assert.deepEqual(tools.sort(), ['ip', 'ip', 'nft', 'tc'])
      const removal = await watched(node, 'bridge', { command: 'DEL', conf, containerId: containerId(pod), netns: pod })
      works(removal.answer)
      assert.deepEqual(removal.tools.sort(), ['ip', 'nft'])
    }),
  )

  it(
    'GC frees the host ports of attachments that are not on its list, and DEL with nothing but the name those of its own',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const conf = subject.conf()
      const net = portsApart(node, conf)
      await net.add(pod)
      await net.add(other)
      await net.gc(pod)
      assert.deepEqual(traces(other, conf), [])
      await subject.works(pod, {}, node)
      const { portMappings: _, ...bare } = conf
      works(await plugin('bridge', { command: 'DEL', conf: bare, containerId: containerId(pod), netns: '' }, node))
      assert.deepEqual(traces(pod, conf), [])
      assert.doesNotMatch((await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout, /elements = \{ tcp/)
    }),
  )
})

function mapped(hostPort: number): object[] {
  return [{ hostPort, containerPort: 80 }]
}

function portOf(pod: Namespace): number {
  return pod.name === 'other' ? 8081 : 8080
}

// A host port belongs to one attachment: `other` has its own.
function portsApart(node: Namespace, conf: Conf): Network {
  const net = network(node, conf)
  const mine = (pod: Namespace) => ({ ...conf, portMappings: mapped(portOf(pod)) })
  return {
    ...net,
    add: (pod, more) => net.add(pod, { conf: mine(pod), ...more }),
    check: (pod, result, more) => net.check(pod, result, { conf: { ...mine(pod), prevResult: result }, ...more }),
  }
}

/** One verb of a list, as a runtime goes through it: the last result. */
async function chain(node: Namespace, pod: Namespace, list: Row, command: string, previous?: Row): Promise<Row> {
  let result = previous
  const plugins = list['plugins'] as Row[]
  for (const { capabilities, ...one } of command === 'DEL' ? [...plugins].reverse() : plugins) {
    const runtimeConfig = capabilities?.portMappings ? { runtimeConfig: { portMappings: mapped(8080) } } : {}
    const conf = {
      ...one,
      cniVersion: list['cniVersion'],
      name: list['name'],
      ...runtimeConfig,
      ...(result && { prevResult: result }),
    }
    const answer = works(await plugin(one['type'], { command, conf, containerId: containerId(pod), netns: pod }, node))
    if (command === 'ADD') result = answer.result
  }
  return result ?? {}
}

// What the list's bridge answers is what its link was like then: `tuning`, which comes later, may have made its port
// smaller, and the link follows.
function beforeTuning(result: Row): Row {
  return {
    ...result,
    interfaces: result['interfaces'].map(({ mtu, ...one }: Row) => (one['name'] === 'br0' ? one : { ...one, mtu })),
  }
}

// The pool gives each ADD the next address: what is told apart by it alone is the same.
function addressless(seen: unknown): unknown {
  // What the bridge has learned depends on who has spoken by then.
  const text = JSON.stringify(seen).replace(/[0-9a-f:]{17} dev \w+ master \w+ \\n/g, '')
  return JSON.parse(
    text.replace(/10\.1\.0\.\d+|fd00:1::[0-9a-f]+|33:33:ff:00:00:\w\w/g, (ip) => (/[.:]1$/.test(ip) ? ip : 'POD')),
  )
}
