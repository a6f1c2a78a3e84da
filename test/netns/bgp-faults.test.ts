// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: what is wrong, and who is hostile. The numbers
// are those of the acceptance list of backends.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdPid, established, startRouter, TOR, torConf, WITH_TOR, withBgp } from '../support/bgp.ts'
import { until } from '../support/harness.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')

describe('BGP: what is wrong', () => {
  for (const [what, wrong, says] of [
    ['password', 'passwordFile: SECRET', /tor \(172\.30\.0\.254\) is \w+/],
    ['AS number', 'asn: 65009', /tor \(172\.30\.0\.254\) is \w+, .*Bad peer AS/],
  ] as const)
    it(
      `[BE37] a change with a wrong ${what} is named and taken back, and the other session stays`,
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
          assert.match(await routes(pods[0]?.ip.replace(/\d+$/, '0/24') as string), /via 172\.30\.0\.1/)
          const now = await mesh()
          assert.deepEqual([now?.state, now?.since], ['Established', since])
          assert.ok((await agent.status())?.ready)
          write(WITH_TOR)
          await until(async () => !(await agent.status())?.degraded.some((text) => text.includes('taken back')), 20_000)
          await established(agent)
        },
      ),
    )

  it('[BE37] port 179 taken, and a second BIRD: each is named, and BIRD starts when it is gone', async function () {
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

  it(
    '[BE38] a hostile peer: default route, parts of the network, 100,000 prefixes, the own AS number in the path',
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
