import assert from 'node:assert/strict'
import { join } from 'node:path'
import { bridgeBefore } from '../behind.ts'
import { hasPlugin, lanes } from '../beside/lanes.ts'
import { inNamespaces, plugin } from '../harness.ts'
import { works } from '../hostports.ts'
import { skip } from '../skip.ts'

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
        const prevResult = works(await plugin('bridge', { ...call, command: 'ADD', conf: bridgeBefore(conf) }, node)).result
        const shown = async () => (await node.exec(['sh', '-c', look])).stdout
        works(await plugin(type, { ...call, command: 'ADD', conf: { ...conf, prevResult }, file: join(lane.path, type) }, node))
        assert.match(await shown(), type === 'firewall' ? /10\.1\.0\.2[\s\S]*fd00:1::2/ : /bwp/)
        works(await plugin(type, { ...call, command: 'DEL', conf: { ...conf, prevResult } }, node))
        assert.doesNotMatch(await shown(), /10\.1\.0\.2|fd00:1::2|bwp/)
      }),
    )
})
