// lane: netns
// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: BIRD writes the routes to nodes instead of the agent.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type BgpScene, birdPid, endBird, established, TOR, torConf, withBgp } from '../../support/bgp.ts'
import { flows, unharmed } from '../../support/flows.ts'
import { ping, until } from '../../support/harness.ts'
import { type Agent, type Node, UNDERLAY } from '../../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const DUAL = { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' }, EnableIPv6: true, IPv6Network: 'fd00:244::/48' }
const BY_BIRD = 'programs: bird\n'
const tor = torConf({ nodes: [] })

// The routes of one program, without those to the node's own pods, as `DST via GATEWAY`.
async function routes({ ns }: Node, proto: string): Promise<string[]> {
  const all = await Promise.all(['-4', '-6'].map((family) => ns.ip(family, 'route', 'show', 'proto', proto)))
  const ways = all.join('\n').matchAll(/^(\S+) (?:nhid \d+ )?via (\S+) dev eth0/gm)
  return [...ways].map(([, dst, via]) => `${dst} via ${via}`).sort()
}

const isBy = (agent: Agent, programs: 'bird' | undefined) =>
  until(async () => (await agent.status())?.bgp?.programs === programs, 30_000)
const isDegraded = (agent: Agent, pattern: RegExp, wanted = true) =>
  until(async () => ((await agent.status())?.degraded.some((text) => pattern.test(text)) ?? false) === wanted, 30_000)

describe('BGP: routes to nodes by BIRD', () => {
  it('the change from agent to BIRD and back loses no packet, in both families', async function () {
    await withBgp({ count: 3, yaml: '', tor, conf: DUAL }, async ({ agents, nodes, pods, write }) => {
      for (const agent of agents) await established(agent)
      const first = nodes[0] as Node
      await until(async () => (await routes(first, '112')).length === 4)
      const before = await routes(first, '112')
      const [one, two] = [pods[0], pods[1]]
      assert.ok(one && two)
      const going = await flows(one.ns, two.ns, [one.ip, two.ip])
      write(BY_BIRD)
      for (const agent of agents) await isBy(agent, 'bird')
      await until(async () => (await routes(first, '112')).length === 0)
      assert.deepEqual(await routes(first, 'bird'), before)
      for (const { ip } of pods.slice(1)) assert.ok(await ping(one.ns, ip), ip)
      write('')
      for (const agent of agents) await isBy(agent, undefined)
      await until(async () => (await routes(first, 'bird')).length === 0)
      assert.deepEqual(await routes(first, '112'), before)
      unharmed(await going.end())
    }).call(this)
  })

  it(
    'a change from BIRD to agent that is taken back, as a session does not come back, loses no packet',
    refused(async ({ agents }, first) => {
      for (const agent of agents) await isDegraded(agent, /^The change of .* is taken back/)
      for (const agent of agents) await isBy(agent, 'bird')
      await until(async () => (await routes(first, '112')).length === 0, 30_000)
      assert.equal((await routes(first, 'bird')).length, 1)
    }),
  )

  it(
    'a route of the agent stays until BIRD has its own in the kernel, also when BIRD cannot write it for a while',
    refused(async ({ agents }, first, two) => {
      await until(async () => (await routes(first, 'bird')).length === 0, 30_000)
      // The kernel has no room for BIRD's route beside this one, which leads nowhere and counts less than the agent's.
      const blocking = ['unreachable', two.ip.replace(/\d+$/, '0/24'), 'proto', 'static', 'metric', '32']
      await first.ns.ip('route', 'add', ...blocking)
      for (const agent of agents) await isDegraded(agent, /^The change of .* is taken back/)
      for (const agent of agents) await isBy(agent, 'bird')
      await sleep(3000)
      assert.equal((await routes(first, '112')).length, 1)
      await first.ns.ip('route', 'delete', ...blocking)
      await until(async () => (await routes(first, 'bird')).length === 1, 30_000)
      await until(async () => (await routes(first, '112')).length === 0, 30_000)
    }),
  )

  it('an agent that starts with BGP by BIRD for the first time keeps its routes until BIRD has them', async function () {
    await withBgp({ count: 2, yaml: '', tor }, async ({ agents, nodes, pods, write }) => {
      const [first, one, two] = [nodes[0], pods[0], pods[1]]
      assert.ok(first && one && two)
      for (const agent of agents) await established(agent)
      for (const agent of agents) await agent.stop()
      for (const node of nodes) {
        await endBird(node)
        rmSync(join(node.dir, 'bird'), { recursive: true })
      }
      const going = await flows(one.ns, two.ns, [one.ip, two.ip])
      write(BY_BIRD)
      for (const [i, node] of nodes.entries()) agents[i] = node.agent()
      for (const agent of agents) await isBy(agent, 'bird')
      await until(async () => (await routes(first, 'bird')).length === 1, 30_000)
      await until(async () => (await routes(first, '112')).length === 0, 30_000)
      unharmed(await going.end())
    }).call(this)
  })

  it('a route that another program removes comes back, one that it adds is named, and SIGKILL to the agent changes none', async function () {
    await withBgp({ count: 2, yaml: BY_BIRD, tor }, async (scene: BgpScene) => {
      const { agents, nodes, pods } = scene
      const [first, pod, other] = [nodes[0], pods[0], pods[1]]
      assert.ok(first && pod && other)
      let agent = agents[0] as Agent
      await established(agent)
      const [dst, via] = [other.ip.replace(/\d+$/, '0/24'), UNDERLAY.v4(2)]
      const there = async () => (await routes(first, 'bird')).join() === `${dst} via ${via}`
      await until(there)
      assert.deepEqual(await routes(first, '112'), [])
      await first.ns.ip('route', 'delete', dst, 'proto', 'bird')
      await until(there)
      await first.ns.ip('route', 'add', dst, 'via', via, 'proto', 'static')
      const named = new RegExp(
        `^Another program writes routes to subnets of nodes beside BIRD: ${dst} \\(proto 4\\); stop it, or want programs agent in `,
      )
      await isDegraded(agent, named)
      await first.ns.ip('route', 'delete', dst, 'proto', 'static')
      await isDegraded(agent, named, false)
      const pid = birdPid(first)
      await agent.stop('SIGKILL')
      assert.ok(await ping(pod.ns, other.ip))
      agent = first.agent()
      agents[0] = agent
      await agent.ready(30_000)
      await isBy(agent, 'bird')
      assert.equal((await established(agent)).pid, pid)
      assert.ok(await there())
      assert.deepEqual(await routes(first, '112'), [])
      // The node's own subnet stays closed for addresses that no pod has.
      assert.match(await first.ns.ip('route', 'show', 'type', 'blackhole'), /proto 112/)
      const { stdout } = await first.ns.exec([PLUMB, 'bgp', '--socket', join(first.dir, 'agent.sock')])
      assert.match(stdout, /; BIRD writes the routes to nodes\n/)
      // Killed together, both leave their routes. The cleanup removes them.
      await agent.stop('SIGKILL')
      process.kill(pid as number, 'SIGKILL')
      assert.ok(await there())
      const cleaned = await first.ns.exec([PLUMB, 'agent', 'cleanup', ...first.options])
      assert.equal(cleaned.status, 0, cleaned.stderr)
      assert.match(cleaned.stdout, /removed 1 route of a BIRD that was killed/)
      assert.deepEqual(await routes(first, 'bird'), [])
    }).call(this)
  })

  it('a backend that needs more than routes refuses programs bird, and keeps what was', async function () {
    const conf = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
    await withBgp({ count: 2, yaml: '', tor, conf }, async ({ agents, pods, write }) => {
      const agent = agents[0] as Agent
      await established(agent)
      write(BY_BIRD)
      await isDegraded(
        agent,
        /programs bird: backend vxlan needs more than routes; want backend ipip, host-gw or alloc; BGP goes on as before$/,
      )
      assert.ok(await ping(pods[0]?.ns as never, pods[1]?.ip as string))
    }).call(this)
  })
})

/**
 * Wraps a test in which two nodes change from BIRD's routes to the agent's, with a session that does not come back: the
 * change will be taken back. Between the two nodes' pods no packet may be lost.
 */
function refused(work: (scene: BgpScene, first: Node, there: BgpScene['pods'][number]) => Promise<void>) {
  const yaml = (asn: number, programs: string) =>
    `confirmSeconds: 6\nprograms: ${programs}\npeers: [{ name: tor, address: ${TOR.ip}, asn: ${asn} }]\n`
  const given = { count: 2, yaml: yaml(TOR.asn, 'bird'), tor: torConf({ nodes: [1, 2] }) }
  return withBgp(given, async (scene) => {
    const { agents, nodes, pods, write } = scene
    for (const agent of agents) await established(agent)
    const [first, one, two] = [nodes[0], pods[0], pods[1]]
    assert.ok(first && one && two)
    await until(async () => (await routes(first, 'bird')).length === 1)
    const going = await flows(one.ns, two.ns, [one.ip, two.ip])
    write(yaml(65_009, 'agent'))
    await until(async () => (await routes(first, '112')).length === 1, 30_000)
    await work(scene, first, two)
    unharmed(await going.end())
  })
}
