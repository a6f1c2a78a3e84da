// lane: long
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { inNamespaces, type Namespace, plugin, type Row, snapshot } from '../../support/harness.ts'
import { mappings, type Port, portNetwork, portsAsNetwork, watched, works } from '../../support/host-ports.ts'
import { noted, ports } from '../../support/journal.ts'
import { bridgeConf, containerId, settled } from '../../support/network.ts'
import { reach, serve } from '../../support/servers.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'
import { shimmed, without } from '../../support/tool-shims.ts'

const PORTS: readonly Port[] = [
  { hostPort: 8080, containerPort: 80 },
  { hostPort: 5353, containerPort: 53, protocol: 'udp', hostIP: '10.1.0.1' },
]
const serving = new WeakSet<Namespace>()

testPlugin({
  type: 'portmap',
  conf: () => ({ cniVersion: '1.1.0', name: bridgeConf().name, type: 'portmap' }),
  refused: (conf) => ({ ...conf, markMasqBit: 32 }),
  again: 'same',
  network: portsAsNetwork,
  async works(pod, _, node) {
    if (!serving.has(pod)) await serve(pod, pod.name, 'tcp 80')
    serving.add(pod)
    for (const address of ['10.1.0.1', 'fd00:1::1'])
      assert.match(await reach(node, address, pod.name === 'other' ? 8081 : 8080), new RegExp(`^${pod.name} `))
  },
})

/** What goes wrong with a mapping, and what CHECK says of it. */
const FAULTS: Record<string, { readonly break: string; readonly says: RegExp }> = {
  'an element of the port map is gone': {
    break: 'nft delete element inet plumb ports4 { tcp . 8080 }',
    says: /^nft element tcp \. 8080 of ports4 is missing$/,
  },
  'an element for one address of the node is gone': {
    break: 'nft delete element inet plumb ports4at { 10.1.0.1 . udp . 5353 }',
    says: /^nft element 10\.1\.0\.1 \. udp \. 5353 of ports4at is missing$/,
  },
  'the port leads elsewhere': {
    break:
      'nft delete element inet plumb ports6 { tcp . 8080 }; nft add element inet plumb ports6 { tcp . 8080 : fd00:1::77 . 80 }',
    says: /^nft element tcp \. 8080 of ports6 has value fd00:1::77 \. 80, want fd00:1::2 \. 80$/,
  },
  'two of them, and each is named': {
    break: 'nft flush map inet plumb ports4; nft flush map inet plumb ports6',
    says: /^nft element tcp \. 8080 of ports4 is missing; nft element tcp \. 8080 of ports6 is missing$/,
  },
  'the target is not masqueraded for its neighbours': {
    break: 'nft delete element inet plumb snat4 { tcp . 10.1.0.2 . 80 }',
    says: /^nft element tcp \. 10\.1\.0\.2 \. 80 of snat4 is missing$/,
  },
  'nobody knows who its neighbours are': {
    break: 'nft flush set inet plumb local4',
    says: /^nft element 10\.1\.0\.0\/24 \. 10\.1\.0\.0\/24 of local4 is missing$/,
  },
  'the chain at prerouting is empty': {
    break: 'nft flush chain inet plumb prerouting',
    says: /^nft chain prerouting has 0 rules, want 1$/,
  },
  'the chain at output is gone': {
    break: 'nft delete chain inet plumb output',
    says: /^nft chain output has 0 rules, want 1$/,
  },
  'the chain that marks neighbours is empty': {
    break: 'nft flush chain inet plumb neighbours',
    says: /^nft chain neighbours has 0 rules, want 3$/,
  },
  'the chain of the port maps is empty': {
    break: 'nft flush chain inet plumb leading',
    says: /^nft chain leading has 0 rules, want 8$/,
  },
  'the masquerading chain is empty': {
    break: 'nft flush chain inet plumb inward',
    says: /^nft chain inward has 0 rules, want 7$/,
  },
  'the chain at postrouting is empty': {
    break: 'nft flush chain inet plumb translated',
    says: /^nft chain translated has 0 rules, want 1$/,
  },
  'the martian guard is gone': {
    break: 'nft flush chain inet plumb martians',
    says: /^nft chain martians has 0 rules, want 2$/,
  },
  'the firewall is flushed': {
    break: 'nft flush ruleset',
    says: /nft element tcp \. 8080 of ports4 is missing.*nft chain prerouting has 0 rules, want 1/,
  },
  'the chain of the conditions is empty': {
    break: 'nft flush chain inet plumb $(nft list table inet plumb | grep -o "cond6_[0-9a-f]*" | head -n 1)',
    says: /^nft chain cond6_[0-9a-f]+ is missing$/,
  },
  'route_localnet is off': {
    break: 'echo 0 >/proc/sys/net/ipv4/conf/br0/route_localnet',
    says: /^sysctl net\/ipv4\/conf\/br0\/route_localnet has value 0, want 1$/,
  },
  'hairpin is off': {
    break: 'bridge link set dev $(bridge link | cut -d: -f2 | cut -d@ -f1) hairpin off',
    says: /^link veth\w+ has port\.hairpin off, want true$/,
  },
  'the claim is gone': {
    break: 'rm /run/cni/plumb/shared/ports/tcp-8080/any4*',
    says: /^claim to host port 8080\/tcp is missing$/,
  },
}

describe('portmap: CHECK', () => {
  for (const [what, fault] of Object.entries(FAULTS)) {
    it(
      `${what}: it is named, and nothing is changed; another ADD puts it right`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        await node.exec([
          'sh',
          '-c',
          'for one in iptables ip6tables; do echo 1 >/proc/sys/net/bridge/bridge-nf-call-$one; done',
        ])
        const net = portNetwork(node, {
          portmap: /conditions/.test(what) ? { conditionsV6: ['meta', 'mark', '!=', '1'] } : {},
        })
        const prevResult = await net.add(pod, PORTS)
        const given = { prevResult, runtimeConfig: { portMappings: PORTS } }
        works(await net.call('CHECK', pod, given))
        const { status, stderr } = await node.exec(['bash', '-ec', fault.break])
        assert.equal(status, 0, stderr)
        const before = await settled(() => snapshot(node))
        const { error } = await net.call('CHECK', pod, given)
        assert.match(error.details ?? 'it passed', fault.says)
        assert.equal(await snapshot(node), before)
        works(await net.call('ADD', pod, given))
        works(await net.call('CHECK', pod, given))
      }),
    )
  }

  it(
    'says nothing of what is not asked for: no mappings, and a pod with no address of the family',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = portNetwork(node, { subnets: ['10.1.0.0/24'] })
      const prevResult = await net.add(pod, [{ hostPort: 8080, containerPort: 80, hostIP: '::' }])
      assert.deepEqual(await mappings(node), [])
      works(
        await net.call('CHECK', pod, {
          prevResult,
          runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, hostIP: '::' }] },
        }),
      )
      works(await net.call('CHECK', pod, { prevResult }))
    }),
  )
})

describe('portmap: DEL, GC and STATUS', () => {
  const del: Record<string, { readonly keys: (result: Row) => object; readonly netns?: string }> = {
    'without runtimeConfig': { keys: (prevResult) => ({ prevResult }) },
    'without runtimeConfig and prevResult': { keys: () => ({}) },
    'with the other backend': { keys: () => ({ backend: 'iptables' }) },
    'with other mappings': { keys: () => ({ runtimeConfig: { portMappings: [{ hostPort: 1, containerPort: 1 }] } }) },
    'with mappings that ADD refuses': {
      keys: () => ({ runtimeConfig: { portMappings: [{ hostPort: 0, containerPort: 80 }] }, conditionsV4: 'x' }),
    },
    'with an empty CNI_NETNS': { keys: () => ({}), netns: '' },
    'of an older version': { keys: () => ({ cniVersion: '0.3.1' }) },
  }
  for (const [what, { keys, netns }] of Object.entries(del)) {
    it(
      `DEL ${what} removes all that ADD made, and nothing of another pod`,
      inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
        const net = portNetwork(node)
        await net.add(other, [{ hostPort: 8081, containerPort: 80 }])
        await net.add(pod, [])
        const before = await settled(() => snapshot(node))
        const prevResult = await again(net, pod)
        assert.notEqual(await snapshot(node), before)
        works(await net.call('DEL', pod, keys(prevResult), netns === undefined ? {} : { netns }))
        assert.equal(await snapshot(node), before)
        assert.deepEqual([noted('portmap').includes(containerId(pod)), ports()], [false, ['tcp-8081']])
      }),
    )
  }

  it(
    'DEL with nothing to remove starts no tool at all, whether it names mappings or not; one that has something does',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = portNetwork(node)
      await net.add(other, PORTS)
      const prevResult = await net.add(pod, [])
      const call = (command: string, of: Namespace, keys: object) =>
        watched(node, 'portmap', { command, conf: { ...net.conf, ...keys }, containerId: containerId(of), netns: of })
      const mapped = { runtimeConfig: { portMappings: PORTS } }
      for (const keys of [{}, { prevResult }, mapped, { ...mapped, prevResult, backend: 'iptables' }]) {
        const { answer, tools } = await call('DEL', pod, keys)
        works(answer)
        assert.deepEqual(tools, [])
      }
      // An ADD without mappings does not either.
      for (const keys of [{ prevResult }, { prevResult, runtimeConfig: { portMappings: [] } }]) {
        const { answer, tools } = await call('ADD', pod, keys)
        assert.deepEqual([works(answer).result, tools], [prevResult, []])
      }
      const { answer, tools } = await call('DEL', other, {})
      works(answer)
      assert.deepEqual(tools, ['nft', 'conntrack'])
      assert.deepEqual((await call('DEL', other, mapped)).tools, [])
    }),
  )

  it(
    'GC with a list frees the ports of what is not on it, also of pods that are gone; what is listed keeps working',
    inNamespaces(['node', 'pod', 'stale', 'gone'], async ({ node, pod, stale, gone }) => {
      const net = portNetwork(node, { bridge: { cniVersion: '1.1.0' } })
      for (const [i, one] of [pod, stale, gone].entries())
        await net.add(one, [{ hostPort: 8080 + i, containerPort: 80 }])
      const foreign = portNetwork(node, { bridge: { cniVersion: '1.1.0', bridge: 'br1' }, subnets: ['10.2.0.0/24'] })
      await foreign.add(stale, [{ hostPort: 9000, containerPort: 80 }], { ifname: 'eth1' })
      await execa('ip', ['netns', 'delete', containerId(gone)])
      works(
        await net.call('GC', undefined, {
          'cni.dev/valid-attachments': [{ containerID: containerId(pod), ifname: 'eth0' }],
        }),
      )
      assert.deepEqual(await mappings(node), [
        'tcp . 8080 10.1.0.2 . 80',
        'tcp . 8080 fd00:1::2 . 80',
        'tcp . 9000 10.2.0.2 . 80',
      ])
      assert.deepEqual(ports(), ['tcp-8080', 'tcp-9000'])
      await serve(pod, 'pod', 'tcp 80')
      assert.match(await reach(node, '10.1.0.1', 8080), /^pod /)
      // With none left, what the network's pods shared goes too.
      works(await net.call('GC', undefined, { 'cni.dev/valid-attachments': [] }))
      const { stdout } = await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])
      assert.doesNotMatch(stdout, /10\.1\.0|fd00:1:/)
      assert.match(stdout, /10\.2\.0/)
    }),
  )

  it(
    'STATUS is 50 without nft, and silent with it',
    inNamespaces(['node'], async ({ node }) => {
      const conf = { cniVersion: '1.1.0', name: 'status', type: 'portmap' }
      const call = { command: 'STATUS', conf, containerId: null, ifname: null }
      assert.equal(works(await plugin('portmap', call, node)).stdout, '')
      const { error } = await plugin('portmap', { ...call, file: shimmed('portmap', {}, without('nft')).file }, node)
      assert.deepEqual(
        [error.code, error.msg, error.details],
        [50, 'Cannot map ports: nft is not installed', 'install the package nftables'],
      )
    }),
  )
})

/** The mappings for a pod that the bridge has attached already. */
async function again(net: ReturnType<typeof portNetwork>, pod: Namespace): Promise<Row> {
  const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
  const ips = eth0?.['addr_info']
    .filter(({ scope }: Row) => scope === 'global')
    .map(({ local, prefixlen }: Row) => ({ address: `${local}/${prefixlen}` }))
  const prevResult = { ips }
  works(await net.call('ADD', pod, { prevResult, runtimeConfig: { portMappings: PORTS } }))
  return prevResult
}
