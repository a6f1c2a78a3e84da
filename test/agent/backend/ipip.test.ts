// lane: vmlong
// Tests agent/backend/types/ipip.ts.
import assert from 'node:assert/strict'
import ipip from '../../../agent/backend/types/ipip.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import {
  answers,
  assertReached,
  behindGateway,
  cluster,
  held,
  type Member,
  type Wiring,
} from '../../support/cluster.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { testBackend } from '../../support/suites/testBackend.ts'

const WIRING: Wiring = { backend: ipip, families: ['v4'] }

testBackend(ipip, true, ['v4'])

describe('ipip', () => {
  it(
    'another address of the uplink: the device is made again with it, and packets pass',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      await a.reach([b])
      await a.ns.ip('address', 'add', '192.0.2.77/24', 'dev', 'eth0')
      const moved = at(a, '192.0.2.77')
      await b.reach([moved])
      assert.deepEqual((await moved.reach([b])).failed, [])
      assert.match(await a.ns.ip('-d', 'link', 'show', 'flannel.ipip'), /remote any local 192\.0\.2\.77 /)
      await assertReached(moved, [b], { v4: 1480 })
    }),
  )

  it(
    'a tunl0 for all addresses, as the module makes it, up and with an address, takes no packet of the pods',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      await a.reach([b])
      await b.reach([a])
      for (const { ns: node } of [a, b]) {
        await node.ip('link', 'add', 'tunl0', 'up', 'type', 'ipip', 'local', 'any', 'remote', 'any')
        await node.ip('address', 'add', '10.99.0.1/32', 'dev', 'tunl0')
      }
      await assertReached(a, [b], { v4: 1480 })
      assert.equal((await b.ns.json('-s', 'link', 'show', 'tunl0'))[0]?.['stats64'].rx.packets, 0)
    }),
  )

  it(
    'with DirectRouting a peer on the link gets a route, and one behind a router the tunnel; packets of full size pass',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, { ...WIRING, options: { DirectRouting: true } })
      await moveBehindRouter(ns as { lan: Namespace; a: Namespace; b: Namespace; c: Namespace })
      const far = at(c, '198.51.100.3', '198.51.100.0/24')
      for (const [one, peers] of [
        [a, [b, far]],
        [b, [a, far]],
        [far, [a, b]],
      ] as const)
        assert.deepEqual((await one.reach(peers)).failed, [])
      const routes = await a.ns.ip('route', 'show', 'proto', '112')
      assert.match(routes, /10\.244\.2\.0\/24 nhid \d+ via 192\.0\.2\.2 dev eth0 /)
      assert.match(routes, /10\.244\.3\.0\/24 nhid \d+ via 198\.51\.100\.3 dev flannel\.ipip onlink/)
      await assertReached(a, [b], { v4: 1500 })
      await assertReached(a, [far], { v4: 1480 })
      assert.ok(await answers(far, b))
    }),
  )

  it(
    'DirectRouting: a node with a /32 address and rp_filter, whose peers see it on their link, gets packets by the tunnel and answers by it',
    inNamespaces(['lan', 'a', 'c'], async (ns) => {
      const [a, plain] = await cluster(ns, { ...WIRING, options: { DirectRouting: true } })
      const c = await behindGateway(plain, ns.lan)
      for (const one of [a, c]) assert.deepEqual((await one.reach([a, c])).failed, [])
      assert.match(await a.ns.ip('route', 'show', '10.244.2.0/24'), /dev flannel\.ipip /)
      await assertReached(a, [c], { v4: 1480 })
      await assertReached(c, [a], { v4: 1480 })
    }),
  )

  for (const [ipipMode, near, far] of [
    ['Always', 'flannel.ipip', 'flannel.ipip'],
    ['CrossSubnet', 'eth0', 'flannel.ipip'],
    ['Never', 'eth0', undefined],
  ] as const)
    it(
      `ipipMode ${ipipMode}: a peer on the link by ${near}, one behind a router ${far ? `by ${far}` : 'not at all, which is said'}`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const [a, b, c] = await cluster(ns, { ...WIRING, options: { ipipMode } })
        await moveBehindRouter(ns as { lan: Namespace; a: Namespace; b: Namespace; c: Namespace })
        const [one, two] = [at(a, '192.0.2.1', '192.0.2.0/24'), at(b, '192.0.2.2', '192.0.2.0/24')]
        const three = at(c, '198.51.100.3', '198.51.100.0/24')
        const all = [one, two, three]
        for (const each of all) assert.deepEqual((await each.reach(all)).failed, [])
        const dev = async (subnet: string) => (await a.ns.json('route', 'show', subnet))[0]?.['dev']
        assert.deepEqual([await dev('10.244.2.0/24'), await dev('10.244.3.0/24')], [near, far])
        const size = { v4: ipip.mtu(ipip.conf({ ipipMode }), 1500, {}) }
        await assertReached(one, far ? [two, three] : [two], size)
        await assertReached(three, far ? [one] : [], size)
        const why = '198.51.100.3 is not on the link eth0, there is a router in between; want ipipMode CrossSubnet'
        assert.deepEqual([...one.want(all).problems.values()], far ? [] : [why])
        assert.deepEqual(await overlays(one), near === 'eth0' && !far ? [] : ['flannel.ipip'])
      }),
    )

  it(
    'a link of that name and another type is left alone, and said',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      await a.ns.ip('link', 'add', 'flannel.ipip', 'type', 'dummy')
      const { failed } = await a.reach([b])
      assert.match(failed.join(), /flannel\.ipip: a link of that name is there already, of type dummy/)
      assert.match(await a.ns.ip('-d', 'link', 'show', 'flannel.ipip'), /dummy/)
    }),
  )

  it(
    'a device of an earlier backend goes when this one comes, and the other way round',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const vxlan = (await import('../../../agent/backend/types/vxlan.ts')).default
      const [a, b] = await cluster(ns, WIRING)
      await a.reach([b])
      const other = a.restarted({ backend: vxlan })
      await other.reach([])
      assert.deepEqual(await overlays(a), ['flannel.1'])
      await a.restarted().reach([b])
      assert.deepEqual(await overlays(a), ['flannel.ipip'])
      await a.restarted().converger.step([])
      assert.deepEqual(await held(a), [])
    }),
  )
})

// The same node with another address, on its own network.
function at(member: Member, address: string, own?: string): Member {
  const ips = { v4: address as Ip }
  const dev = parse.ifname('eth0')
  const routes = own
    ? [
        { dst: own as Cidr, dev, gateway: false },
        { dst: '0.0.0.0/0' as Cidr, dev, gateway: true },
      ]
    : member.uplink.routes
  const moved = member.restarted({ uplink: { tunnel: ips, advertise: ips, routes } })
  return { ...moved, lease: { ...moved.lease, ips } }
}

// The third node has a network of its own. The switch is the router between the two.
async function moveBehindRouter({ lan, a, b, c }: Record<'lan' | 'a' | 'b' | 'c', Namespace>): Promise<void> {
  await lan.ip('address', 'add', '192.0.2.254/24', 'dev', 'lan0')
  await lan.ip('link', 'set', 'port3', 'nomaster')
  await lan.ip('address', 'add', '198.51.100.254/24', 'dev', 'port3')
  await lan.exec(['sh', '-c', 'echo 1 >/proc/sys/net/ipv4/ip_forward'])
  await c.ip('address', 'flush', 'dev', 'eth0')
  await c.ip('address', 'add', '198.51.100.3/24', 'dev', 'eth0')
  for (const [node, router] of [
    [a, '192.0.2.254'],
    [b, '192.0.2.254'],
    [c, '198.51.100.254'],
  ] as const)
    await node.ip('route', 'add', 'default', 'via', router)
}

async function overlays({ ns }: Member): Promise<string[]> {
  const all = (await ns.json('-d', 'link')).filter(({ linkinfo }) => ['vxlan', 'ipip'].includes(linkinfo?.info_kind))
  return all.map(({ ifname }) => ifname).filter((name) => name !== 'tunl0' && !name.startsWith('flannel-v6'))
}
