// lane: netns
// Tests lib/wiring.
import assert from 'node:assert/strict'
import { type Answer, inNamespaces, type Namespace, plugin } from '../../support/harness.ts'
import { bridgeConf, type Conf, network } from '../../support/network.ts'

const FAMILIES = {
  IPv4: { subnets: ['10.1.0.0/24'], switches: ['ipv4/ip_forward'] },
  IPv6: { subnets: ['fd00:1::/64'], switches: ['ipv6/conf/all/forwarding'] },
  both: { subnets: ['10.1.0.0/24', 'fd00:1::/64'], switches: ['ipv4/ip_forward', 'ipv6/conf/all/forwarding'] },
}

describe('STATUS where the node does not forward', () => {
  for (const [name, { type, ...keys }] of Object.entries({
    bridge: { type: 'bridge', isGateway: true },
    ptp: { type: 'ptp', bridge: undefined },
    'ptp with routed': { type: 'ptp', bridge: undefined, routed: true },
  }))
    for (const [family, { subnets, switches }] of Object.entries(FAMILIES))
      it(
        `${name}, pods of ${family}: ready after ADD, code 51 naming each switch that is off, and none that its pods do not need`,
        inNamespaces(['node', 'pod'], async ({ node, pod }) => {
          const { conf, add } = network(node, bridgeConf({ type, ...keys }, ...subnets))
          assert.equal((await ask(node, conf)).status, 0)
          await add(pod)
          assert.equal((await ask(node, conf)).status, 0)
          for (const one of switches) {
            await write(node, one, 0)
            const { error } = await ask(node, conf)
            assert.deepEqual([error.code, error.details], [51, `sysctl net/${one} is 0; the next ADD sets it to 1`])
            await write(node, one, 1)
          }
        }),
      )

  it(
    'bridge that is no gateway: ready',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { conf, add } = network(node, bridgeConf())
      await add(pod)
      assert.equal((await ask(node, conf)).status, 0)
    }),
  )
})

function ask(node: Namespace, conf: Conf): Promise<Answer> {
  return plugin(conf['type'] as string, { command: 'STATUS', conf, containerId: null, ifname: null }, node)
}

async function write(node: Namespace, name: string, value: number): Promise<void> {
  assert.equal((await node.exec(['sh', '-c', `echo ${value} >/proc/sys/net/${name}`])).status, 0)
}
