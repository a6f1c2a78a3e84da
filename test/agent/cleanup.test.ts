// lane: netns
// Tests agent/cleanup.ts.
import assert from 'node:assert/strict'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const store = (cluster: Cluster) => fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } })

describe('plumb agent cleanup', () => {
  it(
    'beside a running agent is refused with its process and changes nothing; when that has ended it is done',
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

  it(
    'leaves the programs of plumb install, itself among them, whoever came first; those that the agent alone put there go',
    inCluster(1, store, async ({ nodes: [node] }, test) => {
      test.timeout(90_000)
      const one = node as Node
      const [bin, state] = [join(one.dir, 'bin'), join(one.dir, 'state')]
      const here = () => (existsSync(bin) ? readdirSync(bin).filter((name) => !name.startsWith('.')) : [])
      const install = (...more: string[]) =>
        one.ns.exec([PLUMB, 'install', `--bin-dir=${bin}`, `--state-dir=${state}`, ...more])
      async function agent(): Promise<void> {
        const running = one.agent('--install-cni')
        await running.ready(30_000)
        await until(() => existsSync(join(one.dir, 'net.d/10-flannel.conflist')))
        await running.stop()
      }
      const cleanup = async (program = PLUMB) => {
        const { status, stdout, stderr } = await one.ns.exec([program, 'agent', 'cleanup', ...one.options])
        assert.equal(status, 0, stderr)
        assert.equal(existsSync(join(one.dir, 'net.d/10-flannel.conflist')), false)
        return stdout
      }
      await agent()
      assert.ok(here().includes('bridge'))
      assert.doesNotMatch(await cleanup(), /plumb uninstall removes them/)
      assert.deepEqual(here(), [])
      const own = join(bin, 'plumb')
      for (const order of ['install first', 'agent first']) {
        if (order === 'agent first') await agent()
        assert.equal((await install('--with-plumb')).status, 0)
        const all = here()
        if (order === 'install first') await agent()
        assert.match(
          await cleanup(own),
          new RegExp(`^left ${all.length} programs in ${bin}: plumb uninstall removes`, 'm'),
        )
        assert.deepEqual(here(), all, order)
        const { stdout } = await one.ns.exec([own, 'uninstall', `--bin-dir=${bin}`, `--state-dir=${state}`])
        assert.match(stdout, new RegExp(`^removed ${own}$`, 'm'))
        assert.deepEqual(here(), [], order)
      }
    }),
  )
})
