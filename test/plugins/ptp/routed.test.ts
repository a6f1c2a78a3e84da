// lane: netns
// Tests plugins/ptp.ts with "routed", and lib/wiring/routed.ts: pods that have an address alone and reach everything
// through the node.
import assert from 'node:assert/strict'
import { ENV, flannelConf } from '../../support/flannel.ts'
import {
  inNamespaces,
  isSilent,
  type Namespace,
  ping,
  plugin,
  type Row,
  snapshot,
  until,
} from '../../support/harness.ts'
import { type Port, works } from '../../support/host-ports.ts'
import { bridgeConf, type Conf, containerId, network, traces } from '../../support/network.ts'
import { sourceSeen, WORLD, wireWorld } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'

const DUAL = ['10.1.0.0/24', 'fd00:1::/64']
const [GATEWAY4, GATEWAY6] = ['169.254.1.1', 'fe80::1']
const ALL = ['node', 'pod', 'other', 'world'] as const

describe('ptp with "routed"', () => {
  it(
    'both families: an address alone, one gateway in each pod, a default route; the node has a route per address and sends from its own one',
    inNamespaces(ALL, async ({ node, pod, other, world }) => {
      await wireWorld(node, world)
      const net = network(node, routedConf())
      const result = await net.add(pod)
      await net.add(other)
      const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
      const name = result['interfaces'][0].name
      const [host] = await node.json('addr', 'show', 'dev', name)
      assert.deepEqual(
        result['interfaces'].map(({ mtu: _, ...rest }: Row) => rest),
        [
          { name, mac: host?.['address'] },
          { name: 'eth0', mac: eth0?.['address'], sandbox: pod.path },
        ],
      )
      assert.deepEqual(result['ips'], [
        { interface: 1, address: '10.1.0.2/32', gateway: GATEWAY4 },
        { interface: 1, address: 'fd00:1::2/128', gateway: GATEWAY6 },
      ])
      assert.deepEqual(result['routes'], [
        { dst: '0.0.0.0/0', gw: GATEWAY4 },
        { dst: '::/0', gw: GATEWAY6 },
      ])
      assert.deepEqual(held(eth0, 'global'), ['10.1.0.2/32', 'fd00:1::2/128'])
      assert.deepEqual(held(host, 'global'), [])
      assert.ok(held(host, 'link').includes(`${GATEWAY4}/32`) && held(host, 'link').includes(`${GATEWAY6}/64`))
      assert.deepEqual(await routes(pod, '-4'), [`${GATEWAY4} dev eth0 link`, `default via ${GATEWAY4} dev eth0`])
      assert.deepEqual(
        (await routes(pod, '-6')).filter((one) => !one.startsWith('fe80')),
        [`default via ${GATEWAY6} dev eth0`],
      )
      for (const [family, to] of [
        ['-4', '10.1.0.2'],
        ['-6', 'fd00:1::2'],
      ] as const)
        assert.ok((await routes(node, family)).includes(`${to} dev ${name}`), to)
      // The gateway must not become the address of the node.
      const [way] = await node.json('route', 'get', '10.1.0.2')
      assert.equal(way?.['prefsrc'], WORLD.node4)
      assert.equal(await sourceSeen(node, pod, '10.1.0.2'), WORLD.node4)
      assert.equal(await sourceSeen(node, pod, 'fd00:1::2'), WORLD.node6)
      assert.equal(await sourceSeen(pod, node, WORLD.node4), '10.1.0.2')
      assert.equal(await sourceSeen(other, pod, '10.1.0.2'), '10.1.0.3')
      assert.equal(await sourceSeen(other, pod, 'fd00:1::2'), 'fd00:1::3')
      // ipMasq: the node's address outside, the pod's own within the pool's subnet.
      assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
      assert.equal(await sourceSeen(pod, world, WORLD.world6), WORLD.node6)
      for (const gateway of [GATEWAY4, `${GATEWAY6}%eth0`]) assert.ok(await ping(pod, gateway), gateway)
      await net.check(pod, result)
    }),
  )

  it(
    'with rp_filter and without the default route of the node, pods reach each other; only they reach the gateway, and nothing outside takes it for a neighbour',
    inNamespaces(ALL, async ({ node, pod, other, world }) => {
      await wireWorld(node, world)
      await node.exec([
        'sh',
        '-c',
        'for one in all default up0; do echo 1 >/proc/sys/net/ipv4/conf/$one/rp_filter; done',
      ])
      const net = network(node, routedConf({ ipMasq: false }))
      for (const one of [pod, other]) await net.add(one)
      await world.ip('route', 'add', `${GATEWAY4}/32`, 'via', WORLD.node4)
      await world.ip('route', 'add', '10.1.0.0/24', 'via', WORLD.node4)
      await serve(node, 'node', 'tcp 9000')
      assert.equal(await reach(pod, GATEWAY4, 9000), 'node 10.1.0.2')
      assert.equal(await reach(other, GATEWAY4, 9000), 'node 10.1.0.3')
      assert.equal(await reach(node, GATEWAY4, 9000), `node ${GATEWAY4}`)
      assert.ok(await ping(other, '10.1.0.2'))
      assert.ok(await ping(world, '10.1.0.2'))
      assert.ok(await ping(pod, WORLD.world4))
      assert.equal(await answers(world, GATEWAY4, 9000), false)
      assert.ok(await isSilent(world, GATEWAY4))
      // The last routed pod takes the guard along.
      for (const one of [pod, other]) await net.del(one)
      const { stdout } = await node.exec(['nft', 'list', 'set', 'inet', 'plumb', 'gateways4'])
      assert.doesNotMatch(stdout, /elements/)
    }),
  )

  for (const [name, keys] of Object.entries({
    'IPv4 alone': ['10.1.0.0/24'],
    'IPv6 alone': ['fd00:1::/64'],
    'two addresses of a family': ['10.1.0.0/24', '10.2.0.0/24', 'fd00:1::/64'],
  }))
    it(
      `${name}: pods reach each other and the node, CHECK passes, and DEL leaves nothing`,
      inNamespaces(ALL, async ({ node, pod, other, world }) => {
        await wireWorld(node, world)
        const net = network(node, routedConf({}, ...keys))
        const result = await net.add(pod)
        const second = await net.add(other)
        for (const { address } of result['ips'])
          for (const from of [node, other]) assert.ok(await ping(from, bare(address)), `${from.name} to ${address}`)
        await net.check(pod, result)
        await net.check(other, second)
        for (const one of [pod, other]) await net.del(one)
        assert.deepEqual([await pairs(node), traces(pod, net.conf), traces(other, net.conf)], [[], [], []])
      }),
    )

  it(
    'host ports of two pods: the outside, the node, 127.0.0.1, the other pod, and the pod itself',
    inNamespaces(ALL, async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = network(node, routedConf({ portMappings: true }))
      const ports = (hostPort: number): { runtimeConfig: { portMappings: Port[] } } => ({
        runtimeConfig: { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }] },
      })
      const result = await net.add(pod, { conf: { ...net.conf, ...ports(8080) } })
      await net.add(other, { conf: { ...net.conf, ...ports(8081) } })
      await serve(pod, 'pod', 'tcp 80')
      await serve(other, 'other', 'tcp 80')
      assert.equal(await reach(world, WORLD.node4, 8080), `pod ${WORLD.world4}`)
      assert.equal(await reach(world, WORLD.node6, 8081), `other ${WORLD.world6}`)
      for (const [from, address] of [
        [node, WORLD.node4],
        [node, WORLD.node6],
        [node, '127.0.0.1'],
        [pod, WORLD.node4],
        [pod, WORLD.node6],
        [other, WORLD.node4],
        [other, WORLD.node6],
        [other, GATEWAY4],
      ] as const)
        assert.match(await reach(from, address, 8080), /^pod /, `${from.name} by ${address}`)
      assert.match(await reach(pod, WORLD.node4, 8081), /^other /)
      await net.check(pod, result, { conf: { ...net.conf, ...ports(8080), prevResult: result } })
      await net.del(pod)
      assert.equal(await answers(world, WORLD.node4, 8080), false)
      assert.equal(await reach(world, WORLD.node4, 8081), `other ${WORLD.world4}`)
    }),
  )

  it(
    'CHECK names what somebody has removed: the gateway, a route of the node, a route of the pod, the guard',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const net = network(node, routedConf())
      const result = await net.add(pod)
      const name = result['interfaces'][0].name
      const back = ['route', 'replace', '10.1.0.2', 'dev', name, 'scope', 'global']
      const damages: readonly (readonly [Namespace, readonly string[], readonly string[], RegExp])[] = [
        [
          node,
          ['addr', 'del', `${GATEWAY4}/32`, 'dev', name],
          ['addr', 'add', `${GATEWAY4}/32`, 'dev', name, 'scope', 'link'],
          /address 169\.254\.1\.1\/32 on veth\w+ is missing/,
        ],
        [
          node,
          ['addr', 'del', `${GATEWAY6}/64`, 'dev', name],
          ['addr', 'add', `${GATEWAY6}/64`, 'dev', name, 'nodad'],
          /address fe80::1\/64 on veth\w+ is missing/,
        ],
        [node, ['route', 'del', '10.1.0.2'], back, /route 10\.1\.0\.2\/32 is missing/],
        [
          pod,
          ['-6', 'route', 'del', 'default'],
          ['-6', 'route', 'add', 'default', 'via', GATEWAY6, 'dev', 'eth0'],
          /route ::\/0 in the pod is missing/,
        ],
      ]
      for (const [ns, breaking, mending, said] of damages) {
        await ns.ip(...breaking)
        const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
        assert.match(`${error.msg} ${error.details}`, said)
        await ns.ip(...mending)
        // With the last address of a link the kernel removes its routes.
        await node.ip(...back)
        await net.check(pod, result)
      }
      await node.exec(['nft', 'flush', 'set', 'inet', 'plumb', 'gateways4'])
      const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.match(`${error.msg} ${error.details}`, /169\.254\.1\.1 of gateways4 is missing/)
    }),
  )

  for (const [stack, env] of [
    ['dual', ENV.dual],
    ['v4', ENV.v4],
    ['v6', ENV.v6],
  ] as const)
    it(
      `as delegate of flannel, ${stack}: the node's subnets, the agent's MTU, routes to the network and default routes; DEL leaves nothing`,
      inNamespaces(ALL, async ({ node, pod, other, world }) => {
        await wireWorld(node, world)
        const net = network(node, flannelConf(env, { delegate: { type: 'ptp', routed: true } }))
        const result = await net.add(pod)
        await net.add(other)
        const wanted = [
          ...(stack === 'v6' ? [] : [['10.1.17.2/32', GATEWAY4]]),
          ...(stack === 'v4' ? [] : [['fc00::2/128', GATEWAY6]]),
        ]
        assert.deepEqual(
          result['ips'].map((ip: Row) => [ip['address'], ip['gateway']]),
          wanted,
        )
        for (const one of [pod, node])
          for (const { mtu, ifname } of await one.json('link', 'show', 'type', 'veth'))
            if (ifname !== 'up0') assert.equal(mtu, 1472)
        const all = [...(await routes(pod, '-4')), ...(await routes(pod, '-6'))]
        if (stack !== 'v6') assert.ok(all.includes(`10.1.0.0/16 via ${GATEWAY4} dev eth0`), `${all}`)
        if (stack !== 'v4') assert.ok(all.includes(`fc00::/48 via ${GATEWAY6} dev eth0`), `${all}`)
        for (const { address } of result['ips']) assert.ok(await ping(other, bare(address)), address)
        // FLANNEL_IPMASQ=false: the plugin masquerades, as bridge does.
        if (stack === 'dual') assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
        await net.check(pod, result)
        for (const one of [pod, other]) await net.del(one)
        assert.deepEqual([await pairs(node), traces(pod, net.conf)], [[], []])
      }),
    )

  it(
    'ADD and DEL again and again leave nothing, in whatever order, also where the namespace is gone; GC keeps the valid pod alone',
    inNamespaces(ALL, async ({ node, pod, other, world }, test) => {
      test.timeout(60_000)
      await wireWorld(node, world)
      const net = network(node, routedConf())
      // What the first pod of a node leaves: forwarding, and the rules without elements.
      await net.add(pod)
      await net.del(pod)
      const before = await snapshot(node)
      for (const [first, second] of [
        [pod, other],
        [other, pod],
      ] as const) {
        for (const one of [pod, other]) await net.add(one)
        for (const one of [first, second, second]) await net.del(one, one === second ? { netns: null } : {})
        await until(async () => assert.equal(await snapshot(node), before) === undefined)
      }
      const result = await net.add(pod)
      await net.add(other)
      await net.gc(pod)
      assert.deepEqual(traces(other, net.conf), [])
      await net.check(pod, result)
      for (const { address } of result['ips']) assert.ok(await ping(node, bare(address)), address)
      await net.gc()
      await until(async () => assert.equal(await snapshot(node), before) === undefined)
    }),
  )

  it(
    'a pod from before "routed" is removed by a network that has it since, and a routed one by a network without it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = routedConf()
      const { routed: _, ...plain } = conf
      const net = network(node, conf)
      for (const [adding, removing] of [
        [plain, conf],
        [conf, plain],
      ]) {
        await net.add(pod, { conf: adding as object })
        await net.del(pod, { conf: removing as object })
        assert.deepEqual([await node.json('link', 'show', 'type', 'veth'), traces(pod, conf)], [[], []])
        const { stdout } = await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])
        assert.doesNotMatch(stdout, /elements = \{[^}]*comment/)
      }
    }),
  )

  it(
    'two routed links of one pod, and sbr: both addresses answer, and the second link can go',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const net = network(node, routedConf())
      const first = await net.add(pod)
      const second = await net.add(pod, { ifname: 'net1' })
      await net.add(other)
      const sbr = { cniVersion: '1.1.0', name: net.conf.name, type: 'sbr', prevResult: second }
      const call = { conf: sbr, containerId: containerId(pod), netns: pod, ifname: 'net1' }
      works(await plugin('sbr', { command: 'ADD', ...call }, node))
      for (const { address } of [...first['ips'], ...second['ips']])
        assert.ok(await ping(other, bare(address)), address)
      works(await plugin('sbr', { command: 'CHECK', ...call }, node))
      works(await plugin('sbr', { command: 'DEL', ...call }, node))
      await net.del(pod, { ifname: 'net1' })
      await net.check(pod, first)
      for (const { address } of first['ips']) assert.ok(await ping(other, bare(address)), address)
    }),
  )

  it(
    'a route with another gateway and a value that is no flag are refused with what would be right, and nothing is made',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = routedConf({}, '10.1.0.0/24')
      const net = network(node, conf)
      const strange = { ...conf, ipam: { ...conf.ipam, routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.77' }] } }
      for (const [given, said] of [
        [strange, /Cannot route 10\.9\.0\.0\/16 of a routed pod through 10\.1\.0\.77.*169\.254\.1\.1/],
        [{ ...conf, routed: 'yes' }, /routed "yes": want true or false/],
      ] as const) {
        const error = await net.fails('ADD', pod, { conf: given })
        assert.equal(error.code, 7)
        assert.match(`${error.msg} ${error.details}`, said)
        assert.deepEqual([await node.json('link', 'show', 'type', 'veth'), traces(pod, conf)], [[], []])
      }
      // The gateway that the pool itself names is no other one.
      const named = { ...conf, ipam: { ...conf.ipam, routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.1' }] } }
      const result = await net.add(pod, { conf: named })
      assert.deepEqual(result['routes'], [
        { dst: '10.9.0.0/16', gw: GATEWAY4 },
        { dst: '0.0.0.0/0', gw: GATEWAY4 },
      ])
    }),
  )
})

function routedConf(keys: object = {}, ...subnets: readonly string[]): Conf {
  const all = subnets.length > 0 ? subnets : DUAL
  return { ...bridgeConf({ type: 'ptp', bridge: undefined }, ...all), routed: true, ipMasq: true, ...keys }
}

/** The links of pods on a node. */
async function pairs(node: Namespace): Promise<string[]> {
  return (await node.json('link', 'show', 'type', 'veth'))
    .map(({ ifname }): string => ifname)
    .filter((name) => name !== 'up0')
}

function held(link: Row | undefined, scope: string): string[] {
  return link?.['addr_info']
    .filter((one: Row) => one['scope'] === scope)
    .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`)
}

/** The main table: destination, gateway, link, and the scope of a route that is narrower than global. */
async function routes(ns: Namespace, family: '-4' | '-6'): Promise<string[]> {
  return (await ns.json(family, 'route', 'show'))
    .map(({ dst, gateway, dev, scope }) =>
      [dst, gateway && `via ${gateway}`, `dev ${dev}`, scope !== 'global' && scope].filter(Boolean).join(' '),
    )
    .sort()
}

function bare(cidr: string): string {
  return cidr.slice(0, cidr.indexOf('/'))
}
