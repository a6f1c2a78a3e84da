// lane: netns
// Tests agent/kernel.
import assert from 'node:assert/strict'
import type { Backend } from '../../../agent/backend/backend.ts'
import hostGw from '../../../agent/backend/types/host-gw.ts'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import { Converger } from '../../../agent/kernel/converge.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { run } from '../../../lib/os/exec.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type NetnsPath, parse } from '../../../lib/text/values.ts'
import {
  answers,
  assertReached,
  cluster,
  held,
  lease,
  type Member,
  members,
  NETWORKS,
  uplink,
  type Wiring,
} from '../../support/cluster.ts'
import { inNamespaces } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'

const MTU = { v4: 1450, v6: 1430 }
const FACTS = { nexthops: true, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }

describe('Converger', () => {
  for (const backend of [vxlan, hostGw] as readonly Backend[]) {
    it(
      `${backend.type}: what an agent that was stopped left of a node that went meanwhile is gone at the next start; the admin's things are kept`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const [a, b, c] = await cluster(ns, { backend })
        for (const one of [a, b, c]) await one.reach([a, b, c])
        const foreign = [
          'route add 203.0.113.0/24 via 192.0.2.3',
          'route add 203.0.114.0/24 via 192.0.2.3 proto 112',
          'route add 10.244.77.0/24 via 192.0.2.3 proto static',
          'route add 10.244.3.0/24 via 192.0.2.9 proto static metric 50',
          '-6 route add fd00:244:77::/64 via 2001:db8::3 proto static',
          'nexthop add id 42 via 192.0.2.3 dev eth0',
          'nexthop add id 43 via 192.0.2.9 dev eth0 proto 112',
          'neigh add 192.0.2.3 lladdr 02:00:00:00:00:02 dev eth0 nud permanent protocol 112',
          'link add name vx type vxlan id 99 dev eth0 dstport 4789',
          'address add 198.51.100.1/32 dev eth0',
        ]
        for (const line of foreign) await a.ns.ip(...line.split(' '))
        if (backend.type === 'vxlan') {
          await a.ns.ip(...'route add 203.0.115.0/24 via 10.244.2.0 dev flannel.1 onlink'.split(' '))
          await a.ns.ip(...'address add 198.51.100.2/32 dev flannel.1'.split(' '))
        }
        const { changed, failed, repaired } = await a.restarted().reach([b])
        assert.deepEqual(
          { changed, failed, repaired },
          { changed: backend.type === 'vxlan' ? 8 : 4, failed: [], repaired: {} },
        )
        for (const line of await held(a))
          assert.doesNotMatch(
            line.replace(/^(203\.0\.114\.0\/24|id 4[23]|192\.0\.2\.3 dev eth0) .*/, ''),
            /10\.244\.3\.|fd00:244:3:|192\.0\.2\.3|2001:db8::3/,
          )
        // Each is still there: adding it once more is an error.
        for (const line of foreign) await assert.rejects(a.ns.ip(...line.split(' ')), /exists|assigned/, line)
        if (backend.type === 'vxlan') assert.match(await a.ns.ip('route', 'show', '203.0.115.0/24'), /dev flannel\.1/)
        await assertReached(a, [b], { v4: MTU.v4, v6: MTU.v6 })
      }),
    )
  }

  for (const [from, to] of [
    [{ backend: vxlan }, { backend: vxlan, options: { VNI: 2 } }],
    [{ backend: vxlan }, { backend: hostGw }],
    [{ backend: hostGw }, { backend: vxlan }],
    [{ backend: vxlan, nexthops: false }, { backend: vxlan }],
    [{ backend: vxlan, options: { DirectRouting: true } }, { backend: vxlan }],
    [{ backend: vxlan }, { backend: vxlan, families: ['v4'] }],
    [{ backend: hostGw }, { backend: hostGw, families: ['v6'] }],
  ] as readonly (readonly [Wiring, Wiring])[]) {
    it(
      `what was made by another configuration is gone: ${told(from)}, then ${told(to)}`,
      inNamespaces(['lan', 'a', 'b', 'fresh'], async (ns) => {
        const [a, b] = await cluster(ns, from)
        await a.reach([b])
        const other = members([ns.a, ns.b, ns.fresh], to) as [Member, Member, Member]
        assert.deepEqual((await other[0].reach([other[1]])).failed, [])
        assert.deepEqual((await other[1].reach([other[0]])).failed, [])
        // As on a node that never was otherwise.
        const [now, fresh] = [await held(other[0]), await held(other[1])]
        assert.equal(now.length, fresh.length, now.join('\n'))
        for (const family of to.families ?? (['v4', 'v6'] as const))
          assert.ok(await answers(other[0], other[1], family))
        assert.equal((await other[0].restarted().reach([other[1]])).changed, 0)
      }),
    )
  }

  it(
    'one peer that the kernel refuses stops no other, and is tried again',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, { backend: hostGw, nexthops: false, families: ['v4'] })
      const lost = { ...c, lease: { ...c.lease, ips: { v4: '198.51.100.9' as Ip } } }
      const elsewhere = a.restarted({
        uplink: {
          routes: [{ dst: '198.51.100.0/24' as never, dev: parse.ifname('eth0'), gateway: false }, ...uplink(1).routes],
        },
      })
      const { failed, counts } = await elsewhere.reach([lost, b])
      assert.deepEqual(failed, ['Cannot make route 10.244.3.0/24: Nexthop has invalid gateway.'])
      assert.deepEqual(counts['route'], { wanted: 2, programmed: 1 })
      await b.reach([a])
      await assertReached(elsewhere, [b], { v4: 1500 })
      await a.ns.ip('address', 'add', '198.51.100.1/24', 'dev', 'eth0')
      assert.deepEqual((await elsewhere.reach([lost, b])).failed, [])
    }),
  )

  it(
    '500 nodes leave whose entries are all gone already: it takes less than 5 s, nothing fails, and a new node is reached in the same step',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      const many = Array.from({ length: 500 }, (_, i) => far(i))
      const conf = vxlan.conf({})
      const want = (peers: readonly Lease[]) => vxlan.want(a.lease, peers, a.uplink, conf, FACTS).resources
      assert.deepEqual((await a.converger.step(want(many))).failed, [])
      assert.equal((await held(a)).length, 500 * 8 + 4)
      for (const dev of ['flannel.1', 'flannel-v6.1']) await a.ns.ip('neigh', 'flush', 'dev', dev, 'nud', 'permanent')
      await a.ns.ip('nexthop', 'flush', 'proto', '112')
      const macs = want(many).flatMap((one) =>
        one.kind === 'tunnel' ? [`fdb delete ${one.mac} dev ${one.dev} self`] : [],
      )
      await a.ns.exec(['bridge', '-batch', '-'], { stdin: macs.join('\n') })
      const started = performance.now()
      const { failed } = await a.converger.step(want([b.lease]))
      assert.ok(performance.now() - started < patient(5000))
      assert.deepEqual(failed, [])
      await assertReached(a, [b], MTU)
      assert.equal((await a.restarted().reach([b])).changed, 0)
    }),
  )

  it(
    'a tool that dies in the middle of its work is an error, and the next step finds out what it did',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { backend: vxlan })
      await b.reach([a])
      let deadly = true
      // Half of what it is given, and then no more.
      const dying: typeof run = async (argv, stdin, where) => {
        const lines = stdin.split('\n')
        if (!deadly || !stdin.includes('nexthop add')) return run(argv, stdin, where)
        deadly = false
        await run(argv, `${lines.slice(0, lines.length / 2).join('\n')}\n`, where)
        return { status: -1, stdout: '', stderr: '' }
      }
      const converger = new Converger(
        { instance: FACTS.instance, links: vxlan.links(vxlan.conf({})), networks: NETWORKS },
        dying,
        ns.a.path as NetnsPath,
      )
      await assert.rejects(
        converger.step(a.want([b]).resources),
        /^ExecError: ip -force -batch -: ended with status -1$/,
      )
      const { failed, repaired } = await converger.step(a.want([b]).resources)
      assert.deepEqual({ failed, repaired }, { failed: [], repaired: {} })
      await assertReached(a, [b], MTU)
      assert.equal((await a.restarted().reach([b])).changed, 0)
    }),
  )
})

function told({ backend, ...rest }: Wiring): string {
  return [backend.type, ...Object.entries(rest).map(([key, value]) => `${key} ${JSON.stringify(value)}`)].join(' ')
}

function far(i: number): Lease {
  const [high, low] = [10 + (i >> 8), i & 255]
  const mac = (family: number) =>
    `02:0${family}:00:00:${high.toString(16).padStart(2, '0')}:${low.toString(16).padStart(2, '0')}`
  const one = lease(2, { v4: { VNI: 1, VtepMAC: mac(4) }, v6: { VNI: 1, VtepMAC: mac(6) } }, 'vxlan')
  const hex = i.toString(16)
  return {
    ...one,
    node: `far-${i}`,
    subnets: { v4: `10.244.${100 + (i >> 2)}.${(i & 3) * 64}/26` as never, v6: `fd00:244:a:${hex}::/64` as never },
    ips: { v4: `198.18.${high}.${low}` as Ip, v6: `2001:db8::f:${hex}` as Ip },
  }
}
