// Tests agent/cleanup.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const store = (cluster: Cluster) => fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } })

describe('plumb agent cleanup', () => {
  it(
    '[FA9] beside a running agent is refused with its process and changes nothing; when that has ended it is done',
    inCluster(1, store, async ({ nodes: [node] }) => {
      const one = node as Node
      const cleanup = () => one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])
      const agent = one.agent()
      await agent.ready(30_000)
      const before = subnetEnv(one)
      const refused = await cleanup()
      assert.notEqual(refused.status, 0)
      assert.match(
        refused.stderr,
        new RegExp(`Cannot clean up: the agent runs, process ${agent.pid}, and answers at \\S+agent.sock`),
      )
      assert.deepEqual(subnetEnv(one), before)
      assert.equal(await agent.readyz(), '200 ready\n')
      await agent.stop()
      for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
        const again = one.agent()
        await again.ready(30_000)
        await again.stop(signal)
        const { status, stderr } = await cleanup()
        assert.equal(status, 0, stderr)
        assert.equal(subnetEnv(one), undefined)
      }
    }),
  )
})
