// lane: netns
// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: what is wrong, and who is hostile.
import assert from 'node:assert/strict'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdPid, established, startRouter, TOR, torConf, WITH_TOR, withBgp } from '../../support/bgp.ts'
import { until } from '../../support/harness.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('BGP: what is wrong', () => {
  for (const [what, wrong, says] of [
    ['password', 'passwordFile: SECRET', /tor \(172\.30\.0\.254\) is \w+/],
    ['AS number', 'asn: 65009', /tor \(172\.30\.0\.254\) is \w+, .*Bad peer AS/],
  ] as const)
    it(
      `a change with a wrong ${what} is named and taken back, and the other session stays`,
      withBgp(
        { count: 2, yaml: `confirmSeconds: 6\n${WITH_TOR}`, tor: torConf({ nodes: [1, 2] }) },
        async ({ agents, dir, write, routes, pods }) => {
          for (const agent of agents) await established(agent)
          const agent = agents[0] as (typeof agents)[0]
          const mesh = async () => (await agent.status())?.bgp?.sessions.find(({ name }) => name === 'n2')
          const since = (await mesh())?.since
          writeFileSync(join(dir, 'secret'), 'not the same\n')
          const peer = ['name: tor', `address: ${TOR.ip}`, ...(what === 'password' ? ['asn: 65000'] : []), wrong].join(
            ', ',
          )
          write(`confirmSeconds: 6\npeers: [{ ${peer.replace('SECRET', join(dir, 'secret'))} }]\n`)
          const degraded = await until(
            async () => (await agent.status())?.degraded.find((text) => text.includes('is taken back')),
            60_000,
          )
          assert.match(degraded as string, says)
          await established(agent)
          // The router's routes come a moment after the session.
          const dst = pods[0]?.ip.replace(/\d+$/, '0/24') as string
          await until(async () => (await routes(dst)).includes('via 172.30.0.1'))
          const now = await mesh()
          assert.deepEqual([now?.state, now?.since], ['Established', since])
          assert.ok((await agent.status())?.ready)
          write(WITH_TOR)
          await until(async () => !(await agent.status())?.degraded.some((text) => text.includes('taken back')), 20_000)
          await established(agent)
        },
      ),
    )

  it('port 179 taken, and a second BIRD: each is named, and BIRD starts when it is gone', async function () {
    await withBgp({ count: 1, yaml: 'confirmSeconds: 5\n', tor: torConf({ nodes: [1] }) }, async (scene) => {
      const { agents, nodes, dir, write } = scene
      const [node, first] = [nodes[0], agents[0]]
      assert.ok(node && first)
      await until(async () => (await first.status())?.bgp?.pid)
      await first.stop()
      process.kill(birdPid(node) as number, 'SIGKILL')
      write(WITH_TOR)
      const listener = 'Bun.listen({hostname:"0.0.0.0",port:179,socket:{data(){}}});process.stdout.write("on\\n")'
      const taker = Bun.spawn(['nsenter', `--net=${node.ns.path}`, process.execPath, '-e', listener], {
        stdout: 'pipe',
      })
      try {
        await taker.stdout.getReader().read()
        const agent = node.agent()
        scene.agents[0] = agent
        const names = (pattern: RegExp) =>
          until(async () => (await agent.status())?.degraded.some((text) => pattern.test(text)), 40_000)
        await names(new RegExp(`Cannot run BGP: TCP port 179 is taken by process ${taker.pid} \\(.*\\); stop it`))
        await agent.ready(30_000)
        const { bgp } = (await agent.status()) ?? {}
        assert.deepEqual(
          [bgp?.pid, bgp?.sessions.map(({ name, state }) => `${name} ${state}`)],
          [undefined, ['tor Unknown']],
        )
        const shown = await node.ns.exec([PLUMB, 'bgp', '--socket', join(node.dir, 'agent.sock')])
        assert.match(shown.stdout, /^n1 is AS 64512, announced prefixes: 1; BIRD does not run \(see: plumb status\)/)
        taker.kill('SIGKILL')
        await taker.exited
        const other = await startRouter(node.ns, join(dir, 'other'), 'router id 192.0.2.1;\nprotocol device { }\n')
        await names(
          new RegExp(`Cannot run BGP: another BIRD runs on this node, process ${other.pid} \\(bird .*stop that one`),
        )
        assert.match(await other.ask('show', 'status'), /Daemon is up/)
        await other.stop()
        await established(agent, ['tor'], 60_000)
        // One that comes later, as with an upgrade of the package.
        const later = await startRouter(node.ns, join(dir, 'later'), 'router id 192.0.2.1;\nprotocol device { }\n')
        await names(new RegExp(`^BGP is disturbed: another BIRD runs on this node, process ${later.pid} \\(bird `))
        await later.stop()
        await until(async () => (await agent.status())?.state === 'ready', 40_000)
      } finally {
        taker.kill('SIGKILL')
      }
    }).call(this)
  })

  it('a file that cannot be read, and one that is missing, change nothing; both are named', async function () {
    await withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1] }) }, async ({ agents, file, write }) => {
      const agent = agents[0] as (typeof agents)[0]
      const { pid, sessions } = await established(agent)
      const names = (text: string) =>
        until(async () => (await agent.status())?.degraded.some((one) => one === text), 20_000)
      write('peers: [{ address: 192.0.2.1, asn: many }]\n')
      const wrong = 'Cannot read peers[0].asn "many": want a whole number, 1 to 4294967295'
      await names(`Cannot use ${file}: ${wrong}; BGP goes on as before`)
      rmSync(file)
      await names(`Cannot use ${file}: there is no such file; BGP goes on as before`)
      write(WITH_TOR)
      await until(async () => (await agent.status())?.state === 'ready', 20_000)
      const now = (await agent.status())?.bgp
      assert.deepEqual([now?.pid, now?.sessions[0]?.since], [pid, sessions[0]?.since])
    }).call(this)
  })

  it(
    'a hostile peer: default route, parts of the network, 100,000 prefixes, the own AS number in the path',
    withBgp(
      {
        count: 2,
        yaml: `peers: [{ name: tor, address: ${TOR.ip}, asn: 65000, import: [10.0.0.0/8 le 32, 198.51.100.0/24, 192.0.2.0/24], importLimit: 100 }]\n`,
        tor: torConf({
          nodes: [1, 2],
          routes: [
            '0.0.0.0/0',
            '10.244.0.0/16',
            '10.244.2.0/24',
            '10.244.2.128/25',
            '10.244.2.2/32',
            '198.51.100.0/24',
            '192.0.2.0/24',
          ],
          filter: ['if net = 198.51.100.0/24 then bgp_path.prepend(64512);'],
        }),
      },
      async ({ agents, nodes, tor, pods, dir }) => {
        for (const agent of agents) await established(agent)
        const byBird = async () => (await nodes[0]?.ns.ip('route', 'show', 'proto', 'bird')) ?? ''
        assert.match(await until(byBird), /^192\.0\.2\.0\/24 via 172\.30\.0\.254 dev eth0 metric 32 ?\n?$/)
        const own = await nodes[0]?.ns.ip('route', 'show', 'proto', '112')
        const many = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`)
        const flood = ['protocol static flood {', '  ipv4;', ...many.map((one) => `  route ${one} blackhole;`), '}']
        await tor.configure(`${readFileSync(join(dir, 'tor/bird.conf'), 'utf8')}\n${flood.join('\n')}\n`)
        await until(async () => (await byBird()).split('\n').length >= 100, 60_000)
        const { sessions } = await established(agents[0] as never)
        assert.ok(
          sessions.every(({ received }) => received <= 100),
          JSON.stringify(sessions),
        )
        const routes = (await byBird()).trim().split('\n')
        assert.ok(routes.length <= 100, `${routes.length}`)
        assert.ok(routes.every((line) => !/^(default|10\.244\.|198\.51\.100\.)/.test(line)))
        assert.equal(await nodes[0]?.ns.ip('route', 'show', 'proto', '112'), own)
        const { status } = (await pods[0]?.ns.exec(['ping', '-n', '-c', '1', '-w', '3', pods[1]?.ip as string])) ?? {}
        assert.equal(status, 0)
        assert.ok((await agents[0]?.status())?.ready)
      },
    ),
  )
})
