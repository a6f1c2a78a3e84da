import assert from 'node:assert/strict'
import { connections } from '../connections.ts'
import { podOn } from '../flows.ts'
import { inNamespaces, type Namespace, until } from '../harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../nodes.ts'

/**
 * Defines the test that every backend has to pass with pods of two nodes. `mtu` is the MTU of the pods in bytes, on an
 * uplink of 1500.
 */
export function testConnections(type: string, mtu: number, count = 1000): void {
  it(
    `${type}: ${count} TCP connections of pods outlast SIGTERM and SIGKILL of both agents: none ends, data flows without the agents and with them; packets of full size pass both ways`,
    inCluster(
      2,
      (one) => fileStore(one, { Network: '10.244.0.0/16', Backend: { Type: type } }),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [one, two] = nodes as [Node, Node]
        let agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(60_000)
        await inNamespaces(['a', 'b'], async ({ a, b }) => {
          const addresses = [await podOn(one, a), await podOn(two, b)] as const
          for (const node of nodes) assert.equal(subnetEnv(node)?.['FLANNEL_MTU'], `${mtu}`)
          await assertWhole(a, b, addresses, mtu)
          const held = await connections(a, b, addresses[1], count)
          await held.exchange(30_000, 100)
          for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
            for (const agent of agents) await agent.stop(signal)
            await held.exchange(30_000, 100)
            agents = nodes.map((node) => node.agent())
            for (const agent of agents) await agent.ready(60_000)
            await held.exchange(30_000, 100)
          }
          await assertWhole(a, b, addresses, mtu)
          await held.end()
        }).call(test)
      },
    ),
  )
}

/** Throws unless packets of that size pass between two pods, both ways and in one piece. */
export async function assertWhole(
  one: Namespace,
  two: Namespace,
  [first, second]: readonly [string, string],
  size: number,
): Promise<void> {
  const ways = [
    [one, second],
    [two, first],
  ] as const
  for (const [from, to] of ways) {
    const argv = ['ping', '-n', '-q', '-c', '1', '-w', '1', '-M', 'do', '-s', `${size - 28}`, to]
    await until(async () => (await from.exec(argv)).status === 0, 20_000).catch(() =>
      assert.fail(`${from.name} does not reach ${to} with ${size} bytes`),
    )
  }
}
