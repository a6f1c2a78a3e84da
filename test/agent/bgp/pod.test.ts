// lane: netns
// Tests agent/bgp and agent/parts/bgp.ts as a pod of the chart has them: the configuration in a ConfigMap, and BIRD that
// ends with its container.
import assert from 'node:assert/strict'
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdPid, established, TOR, torConf, WITH_TOR, withBgp } from '../../support/bgp.ts'
import { until } from '../../support/harness.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('BGP in a pod', () => {
  it('a ConfigMap in a folder, as the kubelet mounts it: a change is followed, and nonsense is named with object and line', async function () {
    await withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1] }) }, async (scene) => {
      const { agents, nodes, dir } = scene
      const [node, first] = [nodes[0], agents[0]]
      assert.ok(node && first)
      // The kubelet writes a new folder, and swaps the link ..data in one step (atomic writer).
      const mounted = join(dir, 'configmaps/plumb-bgp')
      mkdirSync(mounted, { recursive: true })
      symlinkSync('..data/bgp.yaml', join(mounted, 'bgp.yaml'))
      let serial = 0
      const swap = (text: string) => {
        const now = `..2026_11_28_${++serial}`
        mkdirSync(join(mounted, now))
        writeFileSync(join(mounted, now, 'bgp.yaml'), text)
        symlinkSync(now, join(mounted, '..data_tmp'))
        renameSync(join(mounted, '..data_tmp'), join(mounted, '..data'))
        rmSync(join(mounted, `..2026_11_28_${serial - 1}`), { recursive: true, force: true })
      }
      await first.stop()
      const [good, lines] = [WITH_TOR, `asn: 64512\n${WITH_TOR}`]
      const file = join(mounted, 'bgp.yaml')
      const says = (agent: (typeof agents)[0], text: string) =>
        until(async () => (await agent.status())?.degraded.some((one) => one === text), 20_000)
      // A first configuration that nobody can read stops nothing but BGP.
      swap(lines.replace('asn: 65000', 'asn: many'))
      const agent = node.agent(`--bgp-config=${file}`)
      agents[0] = agent
      await agent.ready(30_000)
      const wrong = `Cannot use ${file}: line 2: Cannot read peers[0].asn "many": want a whole number, 1 to 4294967295`
      // The BIRD of the agent before goes on with what it had accepted.
      await says(agent, `${wrong}; BGP goes on as before`)
      swap(good)
      await until(async () => (await agent.status())?.state === 'ready', 40_000)
      const { pid, sessions } = await established(agent, ['tor'])
      swap(good.replace('name: tor', 'name: spine'))
      await established(agent, ['spine'])
      swap('asn: 64512\npeers: nonsense\n')
      await says(
        agent,
        `Cannot use ${file}: line 2: Cannot read peers "nonsense": want an array; BGP goes on as before`,
      )
      const now = (await agent.status())?.bgp
      assert.deepEqual([now?.pid, now?.sessions[0]?.since], [pid, sessions[0]?.since])
      // The object is deleted, and the volume is optional.
      rmSync(join(mounted, '..data'))
      await says(agent, `Cannot use ${file}: there is no such file; BGP goes on as before`)
      assert.equal((await agent.status())?.ready, true)
    }).call(this)
  })

  it('agent and BIRD are killed, as with their container: the cleanup removes the routes that BIRD has left, and no other', async function () {
    const tor = torConf({ nodes: [1], routes: ['0.0.0.0/0', '198.51.100.0/24'] })
    const yaml = WITH_TOR.replace('0.0.0.0/0', '0.0.0.0/0, 198.51.100.0/24')
    await withBgp({ count: 1, yaml, tor }, async ({ agents, nodes }) => {
      const [node, agent] = [nodes[0], agents[0]]
      assert.ok(node && agent)
      await established(agent)
      const byBird = () => node.ns.ip('route', 'show', 'proto', 'bird')
      await until(async () => (await byBird()).trim().split('\n').length === 2, 20_000)
      await node.ns.ip('route', 'add', '192.0.2.0/24', 'via', TOR.ip, 'proto', 'bird', 'metric', '7')
      await agent.stop('SIGKILL')
      process.kill(birdPid(node) as number, 'SIGKILL')
      const cleanup = (...more: readonly string[]) =>
        node.ns.exec([PLUMB, 'agent', 'cleanup', ...node.options, ...more])
      const done = await cleanup()
      assert.equal(done.status, 0, done.stderr)
      assert.match(done.stdout, /^removed 2 routes of a BIRD that was killed$/m)
      assert.match(await byBird(), /^192\.0\.2\.0\/24 via 172\.30\.0\.254 dev eth0 metric 7 ?\n?$/)
      assert.doesNotMatch((await cleanup()).stdout, /BIRD/)
    }).call(this)
  })
})
