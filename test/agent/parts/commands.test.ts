// lane: long
// Tests agent/parts/commands.ts with a command that hangs.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = '10.244.0.0/16'
const LIMIT_MS = 30_000

describe('plumb agent with extension and a command that hangs', () => {
  it(
    'it is ended after 30 s and named, the next peer is added, and the agent ends at once while it hangs again',
    inCluster(
      1,
      (cluster) => {
        // Hangs for the first peer only.
        const hang = 'case $SUBNET in 10.244.7.0/24) sleep 1000;; *) ip route add $SUBNET via $PUBLIC_IP;; esac'
        const script = join(cluster.dir, 'hang')
        writeFileSync(script, `#!/bin/sh\n${hang}\n`, { mode: 0o755 })
        const Backend = { Type: 'extension', SubnetAddCommand: script }
        return [...fileStore(cluster, { Network: NETWORK, SubnetMin: '10.244.50.0', Backend }), '--allow-extension']
      },
      async ({ nodes, dir }, test) => {
        test.timeout(180_000)
        const [one] = nodes as [Node]
        const agent = one.agent()
        await agent.ready(20_000)
        for (const n of [7, 8]) put(dir, n)
        await until(async () => (await one.ns.ip('route')).includes('10.244.8.0/24'), LIMIT_MS + 20_000)
        const said =
          'Cannot run SubnetAddCommand for 10.244.7.0/24 of node 172.30.0.7: it was killed after 30 s; the log has what it wrote'
        await until(async () => (await agent.status())?.degraded.includes(said), LIMIT_MS + 20_000)
        await until(async () => (await processes(script(dir))) > 0, LIMIT_MS)
        const begun = performance.now()
        await agent.stop()
        assert.ok(performance.now() - begun < LIMIT_MS / 2)
        await until(async () => (await processes(script(dir))) === 0)
      },
    ),
  )

  it('another backend instead of it: the status says what runs, the agent ends at once, and its next start goes on', async function () {
    let Backend: object | undefined
    const options = (cluster: Cluster) => {
      Backend ??= { Type: 'extension', SubnetRemoveCommand: script(cluster.dir) }
      const conf = { Network: NETWORK, SubnetMin: '10.244.50.0', Backend }
      return [...fileStore(cluster, conf), '--allow-extension']
    }
    await inCluster(1, options, async ({ nodes, dir }, test) => {
      test.timeout(180_000)
      const [one] = nodes as [Node]
      writeFileSync(script(dir), '#!/bin/sh\n[ -e "$0.go" ] || sleep 1000\n', { mode: 0o755 })
      const first = one.agent()
      await first.ready(20_000)
      for (const n of [7, 8]) put(dir, n)
      const left = () => [...new Bun.Glob('commands*.json').scanSync({ cwd: join(one.dir, 'state') })].length
      await until(left)
      await first.stop()
      Backend = { Type: 'host-gw' }
      const second = one.agent()
      await until(async () => (await second.status())?.reasons.join().includes('SubnetRemoveCommand'), LIMIT_MS)
      const begun = performance.now()
      await second.stop()
      assert.ok(performance.now() - begun < LIMIT_MS / 2)
      assert.equal(left(), 1)
      await until(async () => (await processes(script(dir))) === 0)
      writeFileSync(`${script(dir)}.go`, '')
      await one.agent().ready(20_000)
      assert.equal(left(), 0)
    }).call(this)
  })
})

function put(dir: string, n: number): void {
  writeFileSync(
    join(dir, 'store/subnets', `10.244.${n}.0-24`),
    `{"PublicIP":"172.30.0.${n}","PublicIPv6":null,"BackendType":"extension"}`,
  )
}

function script(dir: string): string {
  return join(dir, 'hang')
}

// The number of processes that run this script.
async function processes(path: string): Promise<number> {
  const { stdout } = Bun.spawnSync(['pgrep', '-f', '-c', path])
  return Number(stdout.toString())
}
