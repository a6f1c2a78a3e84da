// lane: vmlong
// Tests agent with agent/backend/types/wireguard.ts.
import assert from 'node:assert/strict'
import { assertReach, flow } from '../../support/etcd-networks.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { random } from '../../support/seed.ts'

/** How often an agent is killed. PLUMB_KILLS=100 takes ten minutes. */
const KILLS = Number(process.env['PLUMB_KILLS'] ?? 8)
/** In the virtual machine, a start is done within that time. */
const LONGEST_MS = 4000

describe('plumb agent with wireguard', () => {
  it(
    `SIGKILL ${KILLS} times at any moment: no packet between the nodes is lost`,
    inCluster(
      2,
      (one) => fileStore(one, { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } }),
      async ({ nodes }, test) => {
        test.timeout(120_000 + KILLS * 15_000)
        const [first, second] = nodes as [Node, Node]
        let agent = first.agent()
        for (const one of [agent, second.agent()]) await one.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const running = await flow(second.ns, await addressOf(second), await addressOf(first))
        for (let i = 0; i < KILLS; i++) {
          await agent.stop('SIGKILL')
          agent = first.agent()
          // Every fourth one comes to rest before it is killed.
          if (i % 4 === 0) await agent.ready(60_000)
          else await Bun.sleep(random() * LONGEST_MS)
        }
        await agent.ready(60_000)
        const { sent, lost } = await running.end()
        assert.ok(sent > 100 * KILLS, `${sent} packets sent`)
        assert.equal(lost, 0, `${lost} of ${sent} packets lost`)
        await assertReach(nodes, { v4: 1420 })
      },
    ),
  )
})

async function addressOf({ ns }: Node): Promise<string> {
  const [found] = await ns.json('-4', 'addr', 'show', 'dev', 'flannel-wg')
  return found?.['addr_info'][0].local
}
