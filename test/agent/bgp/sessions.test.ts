// lane: netns
// Tests agent/bgp and agent/parts/bgp.ts with the real BIRD: sessions between nodes, and with a router.
import assert from 'node:assert/strict'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { established, TOR, torConf, WITH_TOR, withBgp } from '../../support/bgp.ts'
import { ping, until } from '../../support/harness.ts'
import { UNDERLAY } from '../../support/nodes.ts'
import { conforms } from '../../support/schemas.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const PAGE = readFileSync(join(import.meta.dir, '../../../docs/bgp.md'), 'utf8')
const blockOf = (language: string) => new RegExp(`\`\`\`${language}\n([\\s\\S]*?)\`\`\``).exec(PAGE)?.[1] as string

describe('BGP', () => {
  it(
    'mesh of 3: the next hop of each subnet is its node, though a router announces a default route',
    withBgp(
      { count: 3, yaml: WITH_TOR, tor: torConf({ nodes: [1, 2, 3], routes: ['0.0.0.0/0'] }) },
      async ({ agents, nodes, pods, bird }) => {
        for (const agent of agents) assert.equal((await established(agent)).sessions.length, 3)
        const [first] = nodes
        for (const n of [2, 3]) {
          const dst = pods[n - 1]?.ip.replace(/\d+$/, '0/24') as string
          await until(async () =>
            new RegExp(`${dst} .*\\[node_v4_.*via ${UNDERLAY.v4(n)} `, 's').test(
              await bird(1, 'show', 'route', 'for', dst),
            ),
          )
          assert.match(
            (await first?.ns.ip('route', 'show', dst)) ?? '',
            new RegExp(`via ${UNDERLAY.v4(n)} dev eth0 proto 112`),
          )
        }
        const byBird = () => first?.ns.ip('route', 'show', 'proto', 'bird') ?? Promise.resolve('')
        assert.match(await until(byBird), new RegExp(`^default via ${TOR.ip} dev eth0 metric 32 ?\n?$`))
        for (const { ip } of pods.slice(1)) assert.ok(await ping(pods[0]?.ns as never, ip), ip)
        // One side of each session connects.
        const [{ sessions }] = [await established(agents[0] as never)]
        assert.deepEqual(sessions.map(({ kind, name, asn }) => `${kind} ${name} ${asn}`).sort(), [
          'node n2 64512',
          'node n3 64512',
          'peer tor 65000',
        ])
      },
    ),
  )

  it(
    'the example of docs/bgp.md: the router has the subnets, and packets from outside reach pods with their address',
    withBgp(
      { count: 3, yaml: blockOf('yaml'), tor: blockOf('text') },
      async ({ agents, nodes, pods, world, routes, tor }) => {
        for (const agent of agents) await established(agent, ['tor'])
        for (const [i, { ip }] of pods.entries()) {
          const dst = ip.replace(/\d+$/, '0/24')
          await until(async () => (await routes(dst)).includes(`via ${UNDERLAY.v4(i + 1)} dev hub0`))
          assert.ok(await ping(world, ip), ip)
          assert.match(await tor.ask('show', 'route', 'all', 'for', dst), /BGP\.community: \(64512,100\)/)
        }
        // No pod has this address: the node drops the packet, and does not send it back to the router.
        const { stdout } = await world.exec([
          'ping',
          '-n',
          '-c',
          '1',
          '-w',
          '2',
          pods[0]?.ip.replace(/\d+$/, '99') as string,
        ])
        assert.doesNotMatch(stdout, /exceeded/)
        assert.match((await nodes[0]?.ns.ip('route', 'show', 'type', 'blackhole')) ?? '', /10\.244\.\d+\.0\/24/)
      },
    ),
  )

  it(
    'a node that is cleaned up is gone from the router and from the other nodes',
    withBgp(
      { count: 3, yaml: WITH_TOR, tor: torConf({ nodes: [1, 2, 3] }) },
      async ({ agents, nodes, pods, routes }) => {
        for (const agent of agents) await established(agent)
        const dst = pods[2]?.ip.replace(/\d+$/, '0/24') as string
        await until(async () => (await routes(dst)) !== '')
        await agents[2]?.stop()
        assert.notEqual(await routes(dst), '', 'BIRD outlives the agent')
        const [first, , third] = nodes
        assert.ok(third)
        const cleaned = await third.ns.exec([PLUMB, 'agent', 'cleanup', ...third.options])
        assert.equal(cleaned.status, 0, cleaned.stderr)
        assert.match(cleaned.stdout, /ended BIRD, process \d+/)
        await until(async () => (await routes(dst)) === '' && (await first?.ns.ip('route', 'show', dst)) === '')
        await until(async () => (await agents[0]?.status())?.bgp?.sessions.every(({ name }) => name !== 'n3'))
      },
    ),
  )

  it('plumb bgp, status and metrics show peers, state, since, prefixes and reason, and no password anywhere', async function () {
    const secret = 'correct-horse-battery'
    const peers = (file: string) =>
      `peers:\n  - { name: tor, address: ${TOR.ip}, asn: 65000, passwordFile: ${file}, import: [0.0.0.0/0] }\n  - { name: away, address: 172.30.0.77, asn: 65001 }\n`
    const tor = torConf({ nodes: [1], routes: ['0.0.0.0/0'], session: [`password "${secret}";`] })
    await withBgp({ count: 1, yaml: 'mesh: false\n', tor }, async ({ agents, nodes, dir, write }) => {
      const [agent, node] = [agents[0], nodes[0]]
      assert.ok(agent && node)
      writeFileSync(join(dir, 'secret'), `${secret}\n`, { mode: 0o600 })
      write(peers(join(dir, 'secret')))
      const { sessions } = await established(agent, ['tor'])
      const since = sessions.find(({ name }) => name === 'tor')?.since ?? 0
      assert.ok(Math.abs(Date.now() - since) < 60_000, `${since}`)
      const asked = () => node.ns.exec([PLUMB, 'bgp', '--socket', join(node.dir, 'agent.sock')])
      const shown = await until<string>(async () => {
        const { stdout } = await asked()
        return /away .*(Connect|Active) .*(Socket|unreachable|refused|No route)/i.test(stdout) ? stdout : ''
      }, 20_000)
      assert.match(shown, /^n1 is AS 64512, announced prefixes: 1; BIRD is process \d+\n/)
      assert.match(shown, /\ntor +172\.30\.0\.254 +65000 +Established +\d+ s +1 +1/)
      const { stdout: whole } = await node.ns.exec([PLUMB, 'status', '--socket', join(node.dir, 'agent.sock')])
      assert.match(whole, /\nbgp +AS 64512, 1 of 2 sessions established; away: away, \w+ \(.+\) \(see: plumb bgp\)\n/)
      const json = await node.ns.exec([PLUMB, 'bgp', '--json', '--socket', join(node.dir, 'agent.sock')])
      conforms('bgp', JSON.parse(json.stdout))
      const { sessions: listed, ...rest } = JSON.parse(json.stdout)
      const told = new Set(
        [...PAGE.matchAll(/`(sessions\[\]\.\w+|asn|pid|restarts|announced)`/g)].map(([, key]) => key),
      )
      const keys = new Set([
        ...Object.keys(rest),
        ...listed.flatMap((one: object) => Object.keys(one).map((key) => `sessions[].${key}`)),
      ])
      assert.deepEqual([...keys].sort(), [...told].sort(), 'docs/bgp.md has each key of --json')
      const metrics = await (await fetch('http://plumb/metrics', { unix: join(node.dir, 'agent.sock') })).text()
      assert.match(metrics, /plumb_bgp_session_up\{kind="peer",peer="tor",address="172\.30\.0\.254"\} 1\n/)
      assert.match(metrics, /plumb_bgp_session_up\{kind="peer",peer="away",address="172\.30\.0\.77"\} 0\n/)
      assert.match(metrics, /plumb_bgp_received_prefixes\{kind="peer",peer="tor",address="172\.30\.0\.254"\} 1\n/)
      await until(
        async () => (await agent.status())?.degraded.some((text) => text.includes('away (172.30.0.77)')),
        40_000,
      )
      const status = JSON.stringify(await agent.status())
      const files = ['bird.conf', 'accepted.json'].map((name) => statSync(join(node.dir, 'bird', name)).mode & 0o777)
      assert.deepEqual(files, [0o640, 0o600])
      const log = readFileSync(join(node.dir, 'bird/bird.log'), 'utf8')
      const { stdout: ps } = await node.ns.exec(['ps', 'axww'])
      for (const text of [shown, metrics, status, agent.log(), log, ps]) assert.ok(!text.includes(secret))
    }).call(this)
  })

  it('two reflectors: the other nodes have sessions with these alone, and one of them may die', async function () {
    const yaml = 'routeReflectors: { nodes: [n1, n2], clusterId: 10.0.0.1 }\n'
    await withBgp({ count: 4, yaml, tor: torConf({ nodes: [] }) }, async ({ agents, nodes, pods, bird, hub }) => {
      const names = async (n: number) =>
        (await established(agents[n - 1] as never)).sessions.map(({ name }) => name).sort()
      assert.deepEqual(
        [await names(1), await names(3), await names(4)],
        [
          ['n2', 'n3', 'n4'],
          ['n1', 'n2'],
          ['n1', 'n2'],
        ],
      )
      const dst = pods[3]?.ip.replace(/\d+$/, '0/24') as string
      const ways = async () =>
        (await bird(3, 'show', 'route', 'all', 'for', dst))
          .match(/\[node_v4_\S+/g)
          ?.map((one) => one.slice(1))
          .sort()
      await until(async () => (await ways())?.length === 2)
      assert.match(await bird(3, 'show', 'route', 'for', dst), new RegExp(`via ${UNDERLAY.v4(4)} on eth0`))
      await hub.ip('link', 'set', 'port1', 'down')
      await agents[0]?.stop('SIGKILL')
      const { exec } = nodes[0]?.ns ?? (assert.fail() as never)
      await exec(['birdc', '-s', join(nodes[0]?.dir as string, 'bird/bird.ctl'), 'down'])
      assert.ok((await ways())?.some((one) => one === 'node_v4_172_30_0_2'))
      assert.ok(await ping(pods[2]?.ns as never, pods[3]?.ip as string))
    }).call(this)
  })
})
