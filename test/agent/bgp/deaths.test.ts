// lane: long
// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: what dies, and a cable that is out.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdPid, established, TOR, torConf, WITH_TOR, WORLD, withBgp } from '../../support/bgp.ts'
import { flows } from '../../support/flows.ts'
import { until } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'

/** The hold time of the test without BFD. */
const HOLD_MS = 9000

describe('BGP: what dies', () => {
  it(
    'SIGKILL to the agent, to BIRD, and to both: no packet between pod and world is lost',
    withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1], routes: ['0.0.0.0/0'] }) }, async (scene) => {
      const { agents, nodes, pods, world, routes, tor } = scene
      const [node, pod] = [nodes[0], pods[0]]
      assert.ok(node && pod)
      let agent = agents[0] as (typeof agents)[0]
      await established(agent)
      const dst = pod.ip.replace(/\d+$/, '0/24')
      await until(async () => (await routes(dst)) !== '')
      const going = await flows(world, pod.ns, [WORLD, pod.ip])
      const before = birdPid(node)
      await agent.stop('SIGKILL')
      agent = node.agent()
      await agent.ready(30_000)
      assert.equal((await established(agent)).pid, before, 'the next agent takes BIRD over')
      assert.match(agent.log(), /BIRD runs on since an earlier start/)
      process.kill(before as number, 'SIGKILL')
      await until(async () => ((await agent.status())?.bgp?.pid ?? before) !== before, 20_000)
      // RFC 4724: the router forgets what it has not heard again before the next restart.
      const announces = ({ sessions }: { sessions: readonly { sent: number }[] }) =>
        sessions.every(({ sent }) => sent > 0)
      await until(async () => announces(await established(agent)), 60_000)
      await until(async () => !(await tor.ask('show', 'protocols', 'all')).includes('graceful restart active'), 60_000)
      assert.ok((await established(agent)).restarts >= 1)
      const second = birdPid(node) as number
      process.kill(second, 'SIGKILL')
      await agent.stop('SIGKILL')
      agent = node.agent()
      scene.agents[0] = agent
      await agent.ready(30_000)
      assert.notEqual((await established(agent)).pid, second)
      assert.match(await routes(dst), /via 172\.30\.0\.1/)
      const { broken, lost, echoed } = await going.end()
      assert.deepEqual({ broken, lost }, { broken: '', lost: 0 })
      assert.ok(echoed > 0)
    }),
  )

  it(
    'BIRD that no longer answers is ended and started again',
    withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1] }) }, async ({ agents, nodes, routes, pods }) => {
      const agent = agents[0] as (typeof agents)[0]
      const { pid } = await established(agent)
      process.kill(pid as number, 'SIGSTOP')
      await until(async () => ![undefined, pid].includes((await agent.status())?.bgp?.pid), 60_000)
      await established(agent)
      assert.match(agent.log(), /BIRD does not answer, ending it: BIRD has not answered for 5 s/)
      assert.match(await routes(pods[0]?.ip.replace(/\d+$/, '0/24') as string), /via 172\.30\.0\.1/)
      const [node, second] = [nodes[0], birdPid(nodes[0] as never)]
      assert.ok(node && second !== pid)
      // An agent without BGP ends what the one before has left.
      await agent.stop()
      const other = node.agent('--bgp-config=')
      agents[0] = other
      await other.ready(30_000)
      assert.match(other.log(), new RegExp(`BGP is off: ended BIRD, process ${second}`))
      await until(async () => (await routes(pods[0]?.ip.replace(/\d+$/, '0/24') as string)) === '')
    }),
  )

  for (const isLate of [true, false])
    it(`SIGKILL to the agent after a wrong change: ${isLate ? 'BIRD takes it back by itself, and' : 'at once'} the next agent takes it back and says so`, async function () {
      const yaml = `confirmSeconds: 8\n${WITH_TOR}`
      await withBgp({ count: 1, yaml, tor: torConf({ nodes: [1] }) }, async (scene) => {
        const { agents, nodes, dir, write, tor } = scene
        const [first, node] = [agents[0], nodes[0]]
        assert.ok(first && node)
        const { pid } = await established(first)
        writeFileSync(join(dir, 'secret'), 'not the same\n')
        write(yaml.replace('asn: 65000', `asn: 65000, passwordFile: ${join(dir, 'secret')}`))
        const isUp = async () => (await tor.ask('show', 'protocols', 'n1')).includes('Established')
        await until(async () => !(await isUp()), 20_000)
        await first.stop('SIGKILL')
        if (isLate) await until(isUp, 40_000)
        const agent = node.agent()
        agents[0] = agent
        await agent.ready(30_000)
        const says = async () => (await agent.status())?.degraded.some((text) => text.includes('is taken back'))
        await until(says, 40_000)
        assert.equal((await established(agent)).pid, pid)
        await until(isUp, 20_000)
      }).call(this)
    })

  for (const bfd of [true, false])
    it(
      `a cable is out: the router loses the route ${bfd ? 'within a second by BFD' : `after the hold time of ${HOLD_MS / 1000} s`}`,
      withBgp(
        {
          // The second node keeps the router's own link up.
          count: 2,
          yaml: `mesh: false\npeers: [{ name: tor, address: ${TOR.ip}, asn: 65000, ${bfd ? 'bfd: true' : 'holdTime: 9, gracefulRestart: 1'} }]\n`,
          tor: torConf({
            nodes: [1],
            session: bfd ? ['bfd on;'] : ['hold time 9;'],
            more: bfd ? ['protocol bfd { interface "*" { interval 300 ms; multiplier 3; }; }'] : [],
          }),
        },
        async ({ agents, hub, routes, pods, bird }) => {
          await established(agents[0] as never)
          const dst = pods[0]?.ip.replace(/\d+$/, '0/24') as string
          await until(async () => (await routes(dst)) !== '')
          if (bfd) await until(async () => /172\.30\.0\.254.* Up /.test(await bird(1, 'show', 'bfd', 'sessions')))
          const begun = performance.now()
          await hub.ip('link', 'set', 'port1', 'down')
          await until(async () => (await routes(dst)) === '', 30_000)
          const took = performance.now() - begun
          if (bfd) assert.ok(took < patient(3000), `${took} ms`)
          else assert.ok(took > (HOLD_MS * 2) / 3 - 1000 && took < HOLD_MS + 6000, `${took} ms`)
        },
      ),
    )
})
