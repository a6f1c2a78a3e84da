// lane: quick
// Tests agent/backend/types/udp.ts.
import assert from 'node:assert/strict'
import type { Wanted } from '../../../../agent/backend/backend.ts'
import hostGw from '../../../../agent/backend/types/host-gw.ts'
import ipip from '../../../../agent/backend/types/ipip.ts'
import udp from '../../../../agent/backend/types/udp.ts'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { annotationsOf, leaseOf } from '../../../../agent/store/kube/node.ts'
import { handler } from '../../../../lib/state/kinds/index.ts'
import { type Link, link } from '../../../../lib/state/kinds/link.ts'
import type { Cidr } from '../../../../lib/text/ip.ts'
import { parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'

const FACTS = { nexthops: false, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr] }
const V4 = ['v4'] as const
const own = lease(1, {}, '', V4)

describe('udp', () => {
  it('gives the device with the port, its address, and a route for each peer', () => {
    assert.equal(
      text(udp.want(own, [lease(2, {}, '', V4)], uplink(1, V4), udp.conf({}), FACTS)),
      `
link add name flannel0 mtu 1472 up gso_max_segs 1 type ipip local 192.0.2.1 remote any ttl inherit nopmtudisc encap fou encap-sport 8285 encap-dport 8285
link set dev flannel0 alias plumb-agent/default
addr replace 10.244.1.0/32 dev flannel0
route add 10.244.2.0/24 proto 112 via 192.0.2.2 dev flannel0 onlink
`,
    )
  })

  it('a peer that does not answer: udp and ipip say what has to pass between the nodes', () => {
    const why = (options: object) => ipip.whySilent?.(own, new Map(), ipip.conf({ ...options }))
    assert.equal(
      udp.whySilent?.(own, new Map(), udp.conf({ Port: 9000 })),
      'want UDP port 9000 to pass between the nodes',
    )
    assert.equal(why({}), 'want IP protocol 4 to pass between the nodes (clouds need a rule, Azure drops it)')
    assert.equal(why({ ipipMode: 'Never' }), undefined)
  })

  it('a device that goes closes its port, one that is made again only when the port is another one', () => {
    const [now] = udp.want(own, [], uplink(1, V4), udp.conf({}), FACTS).resources as [Link]
    const [other] = udp.want(own, [], uplink(1, V4), udp.conf({ port: 9000 }), FACTS).resources as [Link]
    const moved = { ...now, ipip: { ...now.ipip, local: '192.0.2.9' } } as Link
    const lines = (want: Link, have: Link) => link.change?.(want, have).map((line) => line.text)
    const [gone, made] = ['link delete dev flannel0', link.put(now)[0]?.text]
    assert.deepEqual(lines(now, now), [])
    assert.deepEqual(lines(now, moved)?.slice(0, 2), [gone, made])
    assert.deepEqual(lines(now, other)?.slice(0, 3), [gone, 'fou del port 9000', made])
    assert.deepEqual(
      link.drop(now).map((line) => line.text),
      [gone, 'fou del port 8285'],
    )
    const [plain] = ipip.want(own, [], uplink(1, V4), ipip.conf({}), FACTS).resources as [Link]
    assert.equal(link.drop(plain).length, 1)
  })

  it('the lease names no backend: in etcd there is no such key, in the Kubernetes API it is empty, and both are read back', () => {
    const draft = {
      ...own,
      backend: udp.leaseType as string,
      data: udp.announce('node-1', uplink(1, V4), udp.conf({})),
    }
    assert.equal(encodeValue(draft), '{"PublicIP":"192.0.2.1","PublicIPv6":null}')
    const annotations = annotationsOf(draft, { annotations: {} })
    assert.deepEqual(annotations, {
      'kube-subnet-manager': 'true',
      'backend-type': '',
      'backend-data': 'null',
      'public-ip': '192.0.2.1',
    })
    const pool = { network: '10.244.0.0/16' } as never
    assert.deepEqual(
      leaseOf({ name: 'node-1', created: 0, podCidrs: ['10.244.1.0/24'], annotations }, { v4: pool }),
      own,
    )
  })

  it('peers of another backend are told apart, also one that names no backend', () => {
    const [flannels, other] = [lease(2, {}, '', V4), lease(3, {}, 'vxlan', V4)]
    const problems = (backend: typeof hostGw | typeof udp) => [
      ...backend.want(own, [flannels, other], uplink(1, V4), backend.conf({}) as never, FACTS).problems.values(),
    ]
    assert.deepEqual(problems(udp), ['it uses backend "vxlan", this node udp'])
    assert.equal(problems(hostGw)[0], 'it announces no backend, as udp does, this node host-gw')
  })

  it('the MTU is the uplink’s less 28 bytes, and less 20 with ipip', () => {
    assert.equal(udp.mtu(udp.conf({}), 1500, { v4: 1 }), 1472)
    assert.equal(ipip.mtu(ipip.conf({}), 1500, { v4: 1 }), 1480)
  })

  it('IPv6 is refused with what to do', () => {
    for (const families of [['v4', 'v6'], ['v6']] as const)
      assert.throws(() => udp.announce('node-1', uplink(1, families), udp.conf({})), {
        name: 'ValueError',
        message: 'Cannot use backend udp with IPv6: it carries IPv4 alone; want "EnableIPv6": false, or backend vxlan',
      })
  })

  it('a port that is none is refused', () => {
    for (const Port of [0, 65_536, '8285', 1.5])
      assert.throws(() => udp.conf({ Port }), { name: 'ValueError', message: /Port .*: want/ })
  })
})

function text({ resources }: Pick<Wanted, 'resources'>): string {
  const lines = resources.flatMap((one) =>
    handler(one.kind)
      .put(one)
      .map((line) => line.text),
  )
  return `\n${lines.join('\n')}\n`
}
