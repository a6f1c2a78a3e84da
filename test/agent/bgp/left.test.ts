// lane: netns
// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: what an earlier agent or BIRD has left, another agent beside,
// and a file that somebody writes.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { established, TOR, torConf, WITH_TOR, withBgp } from '../../support/bgp.ts'
import { until } from '../../support/harness.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('BGP: what others have left', () => {
  it('a BIRD without its file of the process id is taken over; what a killed one has left in the kernel goes when BGP is switched off', async function () {
    const tor = torConf({ nodes: [1], routes: ['198.51.100.0/24', '192.0.2.0/24'] })
    const yaml = `peers: [{ name: tor, address: ${TOR.ip}, asn: 65000, import: [198.51.100.0/24, 192.0.2.0/24] }]\n`
    await withBgp({ count: 1, yaml, tor }, async ({ agents, nodes, bird }) => {
      const [node, first] = [nodes[0], agents[0]]
      assert.ok(node && first)
      const left = () => node.ns.ip('route', 'show', 'proto', 'bird')
      const { pid } = await established(first)
      await until(async () => (await left()).split('\n').length >= 2)
      await first.stop('SIGKILL')
      // As if the agent had been killed before BIRD wrote the file.
      rmSync(join(node.dir, 'bird/bird.pid'))
      const second = node.agent()
      agents[0] = second
      await second.ready(30_000)
      assert.equal((await established(second)).pid, pid)
      assert.match(await bird(1, 'show', 'status'), /Daemon is up/)
      await second.stop('SIGKILL')
      process.kill(pid as number, 'SIGKILL')
      assert.match(await left(), /198\.51\.100\.0\/24/)
      const other = node.agent('--bgp-config=')
      agents[0] = other
      await other.ready(30_000)
      assert.match(other.log(), /BGP is off: removed 2 routes of a BIRD that was killed/)
      assert.equal(await left(), '')
    }).call(this)
  })

  it('an agent of another network without BGP, whose socket stands beside: neither its start nor its cleanup touches BIRD', async function () {
    await withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1] }) }, async (scene) => {
      const { agents, nodes, dir } = scene
      const [node, agent] = [nodes[0], agents[0]]
      assert.ok(node && agent)
      const { pid, sessions } = await established(agent)
      const store = join(dir, 'other-store')
      mkdirSync(store)
      writeFileSync(join(store, 'config'), JSON.stringify({ Network: '10.99.0.0/16', Backend: { Type: 'host-gw' } }))
      const files = ['socket', 'policy-socket', 'subnet-file', 'state-dir']
      const own = files.map((name) => `--${name}=${join(node.dir, `other-${name}`)}`)
      const options = ['--bgp-config=', `--file-store-dir=${store}`, ...own]
      const other = node.agent(...options, '--socket', join(node.dir, 'other-socket'))
      await other.ready(30_000)
      await other.stop()
      const cleaned = await node.ns.exec([PLUMB, 'agent', 'cleanup', ...node.options, ...options])
      assert.equal(cleaned.status, 0, cleaned.stderr)
      const now = await established(agent)
      assert.deepEqual([now.pid, now.sessions[0]?.since], [pid, sessions[0]?.since])
    }).call(this)
  })

  it('a file that is empty for a moment, as while somebody writes it, changes nothing', async function () {
    await withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1] }) }, async ({ agents, write }) => {
      const agent = agents[0] as (typeof agents)[0]
      const { sessions } = await established(agent)
      // The agent looks each second.
      for (let i = 0; i < 5; i++) {
        write('')
        await Bun.sleep(500)
        write(WITH_TOR)
        await Bun.sleep(1700)
      }
      assert.equal((await established(agent)).sessions[0]?.since, sessions[0]?.since)
      assert.equal(agent.log().split('BGP goes by').length, 2)
    }).call(this)
  })
})
