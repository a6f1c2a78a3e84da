// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { remains } from '../../support/container-leftovers.ts'
import { type Setting, withContainerd } from '../../support/containerd.ts'
import { ping, until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { reach, serve } from '../../support/servers.ts'

const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

describe('plumb agent --install-cni under containerd', () => {
  it(
    'two nodes: not ready before the agent, which brings plugins and network; pods of both reach each other, and by host ports; they go when the agent has gone, and nothing stays',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, CONF), '--install-cni'],
      async ({ nodes }, test) => {
        const [one, two] = nodes as [Node, Node]
        await withContainerd(one.ns, settingOf(one), test, (first) =>
          withContainerd(two.ns, settingOf(two), test, async (second) => {
            for (const containerd of [first, second])
              assert.match((await containerd.network()).message, /cni plugin not initialized/)
            const agents = [one, two].map((node) => node.agent())
            for (const containerd of [first, second])
              await until(async () => (await containerd.network()).ready, 30_000)
            const [client, server] = [
              await first.run('client'),
              await second.run('server', { ports: [{ host: 8080, container: 80 }] }),
            ]
            for (const address of server.ips) assert.ok(await until(() => ping(client.ns, address)), address)
            await serve(server.ns, 'server', 'tcp 80')
            assert.equal(await reach(client.ns, server.ips[0] as string, 80), `server ${client.ips[0]}`)
            for (const address of [UNDERLAY.v4(2), UNDERLAY.v6(2)])
              assert.match(await reach(client.ns, address, 8080), /^server /)
            for (const agent of agents) await agent.stop()
            await Promise.all([first.away(client.id), second.away(server.id)])
            assert.deepEqual(
              await Promise.all([first.list(), second.list(), remains(one.ns, 'eth0'), remains(two.ns, 'eth0')]),
              [[], [], [], []],
            )
          }),
        )
      },
    ),
  )
})

function settingOf({ dir }: Node): Setting {
  return { bin: join(dir, 'bin'), folder: join(dir, 'net.d') }
}
