// lane: peers
// Tests chained plugins, after the reference plugins.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { hasPlugin, lanes } from '../../plugins/differential/lanes.ts'
import { bridgeBefore } from '../../support/chained-network.ts'
import { inNamespaces, type Namespace, plugin } from '../../support/harness.ts'
import { works } from '../../support/host-ports.ts'
import { skip } from '../../support/skip.ts'

describe('what a reference plugin made', () => {
  for (const [type, keys, look] of [
    ['firewall', { backend: 'iptables' }, 'iptables -S CNI-FORWARD; ip6tables -S CNI-FORWARD'],
    ['bandwidth', { egressRate: 8_000_000, egressBurst: 800_000 }, 'ip -o link show type ifb'],
  ] as const)
    it(
      `[${type === 'firewall' ? 'FW 196' : 'BW 188'}] ${type}: DEL of plumb removes what ADD of the reference left`,
      inNamespaces(['node', 'pod'], async function removed({ node, pod }, test) {
        const lane = lanes().find((one) => hasPlugin(one, type))
        if (!lane) return skip(test, `no reference plugin ${type} is installed`)
        const conf = { cniVersion: '1.0.0', name: `left-${type}`, type, ...keys }
        const call = { containerId: 'c1', netns: pod }
        const prevResult = works(
          await plugin('bridge', { ...call, command: 'ADD', conf: bridgeBefore(conf) }, node),
        ).result
        const shown = async () => (await node.exec(['sh', '-c', look])).stdout
        works(
          await plugin(
            type,
            { ...call, command: 'ADD', conf: { ...conf, prevResult }, file: join(lane.path, type) },
            node,
          ),
        )
        assert.match(await shown(), type === 'firewall' ? /10\.1\.0\.2[\s\S]*fd00:1::2/ : /bwp/)
        works(await plugin(type, { ...call, command: 'DEL', conf: { ...conf, prevResult } }, node))
        assert.doesNotMatch(await shown(), /10\.1\.0\.2|fd00:1::2|bwp/)
      }),
    )

  it(
    'DEL of bridge removes the link of the reference also when portmap of plumb has ports there and gets its DEL later',
    inNamespaces(['node', 'pod'], async function removed({ node, pod }, test) {
      const lane = lanes().find((one) => hasPlugin(one, 'bridge'))
      if (!lane) return skip(test, 'no reference plugin bridge is installed')
      const conf = { cniVersion: '1.0.0', name: 'left-bridge', type: 'portmap', snat: true }
      const before = bridgeBefore(conf)
      const call = { containerId: 'c1', netns: pod }
      const theirs = { path: lane.path, file: join(lane.path, 'bridge') }
      const prevResult = works(
        await plugin('bridge', { ...call, command: 'ADD', conf: before, ...theirs }, node),
      ).result
      const runtimeConfig = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] }
      const mapped = { ...conf, runtimeConfig, prevResult }
      works(await plugin('portmap', { ...call, command: 'ADD', conf: mapped }, node))
      works(await plugin('bridge', { ...call, command: 'DEL', conf: before }, node))
      works(await plugin('portmap', { ...call, command: 'DEL', conf: mapped }, node))
      assert.deepEqual(
        (await pod.json('link')).map(({ ifname }) => ifname),
        ['lo'],
      )
    }),
  )

  for (const verb of ['DEL', 'DEL without the namespace', 'GC'])
    it(
      `bridge with macspoofchk: ${verb} of plumb removes the chains that ADD of the reference left, and no other pod's`,
      inNamespaces(['node', 'pod', 'other'], async function removed({ node, pod, other }, test) {
        const lane = lanes().find((one) => hasPlugin(one, 'bridge'))
        if (!lane) return skip(test, 'no reference plugin bridge is installed')
        const ipam = (last: number) => ({ type: 'static', addresses: [{ address: `10.1.0.${last}/24` }] })
        const conf = { cniVersion: '1.1.0', name: 'checked', type: 'bridge', bridge: 'br0', macspoofchk: true }
        const made = (id: string, netns: Namespace, last: number) =>
          plugin(
            'bridge',
            {
              containerId: id,
              netns,
              path: lane.path,
              command: 'ADD',
              conf: { ...conf, cniVersion: '1.0.0', ipam: ipam(last) },
              file: join(lane.path, 'bridge'),
            },
            node,
          )
        const shown = async () => (await node.exec(['nft', 'list', 'table', 'bridge', 'nat'])).stdout
        works(await made('c1', pod, 2))
        works(await made('c11', other, 3))
        assert.match(await shown(), /cni-br-iface-c1-eth0-mac[\s\S]*cni-br-iface-c11-eth0-mac/)
        if (verb === 'GC') await pod.ip('link', 'delete', 'eth0')
        const whom =
          verb === 'DEL'
            ? { containerId: 'c1', netns: pod }
            : verb === 'GC'
              ? {
                  conf: {
                    ...conf,
                    ipam: ipam(2),
                    'cni.dev/valid-attachments': [{ containerID: 'c11', ifname: 'eth0' }],
                  },
                }
              : { containerId: 'c1', netns: '' }
        works(
          await plugin('bridge', { command: verb.slice(0, 3).trim(), conf: { ...conf, ipam: ipam(2) }, ...whom }, node),
        )
        assert.doesNotMatch(await shown(), /-c1-eth0/)
        assert.match(
          await shown(),
          /jump cni-br-iface-c11-eth0 [\s\S]*jump cni-br-iface-c11-eth0-mac [\s\S]*ether saddr .* return/,
        )
      }),
    )
})
