// lane: netns
// Tests agent/bgp with the real BIRD: ways to a router, both families, and what a router may give the kernel.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { established, startRouter, TOR, torConf, WORLD, withBgp } from '../../support/bgp.ts'
import { ping, until } from '../../support/harness.ts'
import { UNDERLAY } from '../../support/nodes.ts'

describe('BGP: ways to a router', () => {
  const SIX = { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' }, EnableIPv6: true, IPv6Network: 'fd00:244::/48' }

  it('IPv6 with a password, TTL security, an AS number of its own, communities and a longer path', async function () {
    const tor = [
      'router id 172.30.0.254;',
      'protocol device { }',
      'protocol kernel { ipv6 { export where source = RTS_BGP; }; scan time 2; }',
      'protocol static { ipv6; route 2001:db8:5::/48 blackhole; route fd00:244:0:9::/64 blackhole; route ::/0 blackhole; }',
      'protocol bgp six {',
      `  local ${TOR.ip6} as 65000; neighbor ${UNDERLAY.v6(1)} as 64600; direct; ttl security on; password "hush";`,
      '  connect delay time 1; connect retry time 2; error wait time 1, 2;',
      '  ipv6 { import all; export where source = RTS_STATIC; };',
      '}',
    ].join('\n')
    await withBgp(
      { count: 1, yaml: 'mesh: false\n', tor, conf: SIX },
      async ({ agents, nodes, dir, write, tor, hub }) => {
        writeFileSync(join(dir, 'secret'), 'hush\n')
        const keys = [
          `name: six, address: "${TOR.ip6}", asn: 65000, localAsn: 64600, ttlSecurity: true`,
          `passwordFile: ${join(dir, 'secret')}, import: ["2001:db8::/32 le 64", "fd00::/8 le 64"]`,
          'communities: ["64512:6", "64512:6:66"], prepend: 2',
        ]
        write(`peers: [{ ${keys.join(', ')} }]\n`)
        const { sessions } = await established(agents[0] as never)
        assert.deepEqual(
          sessions.map(({ name, asn }) => [name, asn]),
          [['six', 65_000]],
        )
        const six = () => hub.ip('-6', 'route', 'show', 'proto', 'bird')
        const route = await until(six)
        assert.match(route, new RegExp(`^fd00:244:[0-9a-f:]+/64 via ${UNDERLAY.v6(1)} dev hub0`))
        const shown = await tor.ask('show', 'route', 'all', 'for', route.split(' ')[0] as string)
        assert.match(shown, /BGP\.as_path: 64600 64600 64600\n/)
        assert.match(shown, /BGP\.community: \(64512,6\)/)
        assert.match(shown, /BGP\.large_community: \(64512, 6, 66\)/)
        const taken = await until(() => nodes[0]?.ns.ip('-6', 'route', 'show', 'proto', 'bird') ?? Promise.resolve(''))
        assert.match(taken, new RegExp(`^2001:db8:5::/48 via ${TOR.ip6} dev eth0 metric 32 pref medium\n?$`))
      },
    ).call(this)
  })

  it('nodes with a second address that the others see have sessions by it', async function () {
    await withBgp({ count: 2, yaml: '', tor: torConf({ nodes: [] }) }, async ({ agents, nodes, pods }) => {
      for (const agent of agents) await established(agent)
      // The seen addresses are lower than the others.
      for (const [i, node] of nodes.entries()) {
        await node.ns.ip('addr', 'add', `10.9.0.${node.n}/24`, 'dev', 'eth0')
        await agents[i]?.stop()
        agents[i] = node.agent(`--advertise-address=10.9.0.${node.n}`)
      }
      for (const [i, agent] of agents.entries()) {
        await agent.ready(30_000)
        const isBack = async () => {
          const [session, ...more] = (await agent.status())?.bgp?.sessions ?? []
          const isRight = session?.address === `10.9.0.${2 - i}` && session.state === 'Established'
          return isRight && session.received === 1 && more.length === 0
        }
        await until(isBack, 60_000)
      }
      assert.ok(await ping(pods[0]?.ns as never, pods[1]?.ip as string))
    }).call(this)
  })

  it('a router behind the router, by multihop: the next hop is found by the kernel’s routes', async function () {
    const tor = torConf({ nodes: [] })
    await withBgp({ count: 1, yaml: 'mesh: false\n', tor }, async ({ agents, nodes, dir, world, write, pods }) => {
      const far = torConf({ nodes: [1], routes: ['198.51.100.0/24'] }, { ip: WORLD }).replaceAll(
        'direct;',
        'multihop 3;',
      )
      const router = await startRouter(world, join(dir, 'far'), far)
      try {
        const keys = `name: far, address: ${WORLD}, asn: 65000, multihop: 3, import: [198.51.100.0/24]`
        write(`peers: [{ ${keys} }]\n`)
        await established(agents[0] as never)
        const taken = () => nodes[0]?.ns.ip('route', 'show', 'proto', 'bird') ?? Promise.resolve('')
        assert.match(await until(taken), new RegExp(`^198\\.51\\.100\\.0/24 via ${TOR.ip} dev eth0 metric 32 ?\n?$`))
        assert.match(await router.ask('show', 'route'), new RegExp(pods[0]?.ip.replace(/\d+$/, '0/24') as string))
        // The routes of others are learned, and none of them is announced or touched.
        assert.match(
          (await nodes[0]?.ns.ip('route', 'show', 'default')) ?? '',
          new RegExp(`^default via ${TOR.ip} dev eth0 ?\n?$`),
        )
      } finally {
        await router.stop('SIGKILL')
      }
    }).call(this)
  })

  it('a route that holds the whole network of pods is taken, and the next start of the agent has nothing against it', async function () {
    const yaml = `peers: [{ address: ${TOR.ip}, asn: 65000, import: [10.0.0.0/8] }]\n`
    const tor = torConf({ nodes: [1, 2], routes: ['10.0.0.0/8'] })
    await withBgp({ count: 2, yaml, tor }, async ({ agents, nodes, pods }) => {
      for (const agent of agents) await established(agent)
      const [node, first, second] = [nodes[0], pods[0], pods[1]]
      assert.ok(node && first && second)
      assert.match(
        await until(() => node.ns.ip('route', 'show', 'proto', 'bird')),
        /^10\.0\.0\.0\/8 via 172\.30\.0\.254 /,
      )
      assert.ok(await ping(first.ns, second.ip))
      await agents[0]?.stop()
      const agent = node.agent()
      agents[0] = agent
      await agent.ready(30_000)
      assert.doesNotMatch(agent.log(), /overlaps the route 10\.0\.0\.0/)
      assert.ok(await ping(first.ns, second.ip))
    }).call(this)
  })

  it(`an outer peer without import gives the kernel nothing; ${WORLD} is reached by the node's own route`, async function () {
    const yaml = `peers: [{ address: ${TOR.ip}, asn: 65000 }]\n`
    const tor = torConf({ nodes: [1], routes: ['0.0.0.0/0', '198.51.100.0/24'] })
    await withBgp({ count: 1, yaml, tor }, async ({ agents, nodes, world, pods }) => {
      const { sessions } = await established(agents[0] as never)
      assert.deepEqual(
        sessions.map(({ received, sent }) => [received, sent]),
        [[0, 1]],
      )
      assert.equal(await nodes[0]?.ns.ip('route', 'show', 'proto', 'bird'), '')
      assert.ok(await ping(world, pods[0]?.ip as string))
    }).call(this)
  })
})
