// lane: netns
// Tests agent/firewall and agent/parts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { until } from '../../support/harness.ts'
import { bridgeConf, network } from '../../support/network.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const RESTART = ['ExecStop', 'ExecStart'].map((key) =>
  (
    new RegExp(`^${key}=(.*)$`, 'm').exec(readFileSync('/lib/systemd/system/nftables.service', 'utf8'))?.[1] ?? ''
  ).split(' '),
)
const store = (cluster: Cluster) => fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } })

describe('plumb agent and the rules of plugins', () => {
  it(
    'nft flush ruleset and systemctl restart nftables under a living pod: its rules and elements are back at once, without another ADD',
    inCluster(2, store, async ({ nodes: [one, pod] }, test) => {
      test.timeout(60_000)
      const { ns, agent } = started(one)
      await agent.ready(20_000)
      const net = network(ns, {
        ...bridgeConf(
          {
            isDefaultGateway: true,
            ipMasq: true,
            firewall: true,
            portMappings: [{ hostPort: 8080, containerPort: 80 }],
          },
          '10.1.0.0/24',
        ),
      })
      await net.add((pod as Node).ns, { ifname: 'net0' })
      const table = async () =>
        (await ns.exec(['nft', '--stateless', 'list', 'table', 'inet', 'plumb'])).stdout.split('\n').sort().join('\n')
      const before = await table()
      for (const set of ['masq4', 'pods4', 'snat4'])
        assert.match((await ns.exec(['nft', 'list', 'set', 'inet', 'plumb', set])).stdout, /10\.1\.0\.2/)
      await ns.exec(['nft', 'flush', 'ruleset'])
      await until(async () => assert.equal(await table(), before) === undefined, 10_000)
      await ns.exec(['nft', 'delete', 'table', 'inet', 'plumb'])
      await until(async () => assert.equal(await table(), before) === undefined, 10_000)
      // What `systemctl restart nftables` does: the commands of the unit of Debian's package, one after the other.
      for (const argv of RESTART) {
        const { status, stderr } = await ns.exec(argv)
        assert.equal(status, 0, stderr)
      }
      await until(async () => assert.equal(await table(), before) === undefined, 10_000)
      assert.match(await agent.readyz(), /^200 /)
      await net.del((pod as Node).ns, { ifname: 'net0' })
      assert.doesNotMatch(await table(), /10\.1\.0\.2/)
    }),
  )
})

function started(node: Node | undefined) {
  assert.ok(node)
  return { ns: node.ns, agent: node.agent() }
}
