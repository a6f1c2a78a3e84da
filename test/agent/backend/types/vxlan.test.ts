// lane: quick
// Tests agent/backend.
import assert from 'node:assert/strict'
import type { Wanted } from '../../../../agent/backend/backend.ts'
import vxlan from '../../../../agent/backend/types/vxlan.ts'
import type { Lease } from '../../../../agent/lease/lease.ts'
import { handler } from '../../../../lib/state/kinds/index.ts'
import type { Cidr, Ip } from '../../../../lib/text/ip.ts'
import { type Mac, parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'

const FACTS = { nexthops: false, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }
const MACS = { v4: { VNI: 1, VtepMAC: '02:00:00:00:00:01' }, v6: { VNI: 1, VtepMAC: '02:00:00:00:06:01' } }
const ROUTED = uplink(1).routes

describe('vxlan.announce() where a device stands', () => {
  it('keeps the address of a device that stands, of each family by itself', () => {
    const said = (existing?: ReadonlyMap<string, Mac>) => vxlan.announce('node-1', uplink(1), vxlan.conf({}), existing)
    const usual = said()
    const mac = parse.mac('02:00:00:00:00:77')
    assert.deepEqual(said(new Map([['flannel.1', mac]])), { v4: { VNI: 1, VtepMAC: mac }, v6: usual.v6 })
    assert.deepEqual(said(new Map([['flannel.2', mac]])), usual)
  })
})

describe('vxlan.want()', () => {
  it('gives the device, its address, and a peer its neighbour, FDB entry and route, in that order, for both families', () => {
    assert.equal(
      text(want([peer(2)])),
      `
link add name flannel.1 address 02:00:00:00:00:01 mtu 1450 up type vxlan id 1 dev eth0 local 192.0.2.1 dstport 8472 nolearning udpcsum
link set dev flannel.1 alias plumb-agent/default
net/ipv6/conf/flannel.1/accept_ra = 0
addr replace 10.244.1.0/32 dev flannel.1
link add name flannel-v6.1 address 02:00:00:00:06:01 mtu 1430 up type vxlan id 1 dev eth0 local 2001:db8::1 dstport 8472 nolearning udpcsum
link set dev flannel-v6.1 alias plumb-agent/default
net/ipv6/conf/flannel-v6.1/accept_ra = 0
addr replace fd00:244:1::/128 nodad dev flannel-v6.1
neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent protocol 112
fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent
route add 10.244.2.0/24 proto 112 via 10.244.2.0 dev flannel.1 onlink
neigh replace fd00:244:2:: lladdr 02:00:00:00:06:02 dev flannel-v6.1 nud permanent protocol 112
fdb replace 02:00:00:00:06:02 dev flannel-v6.1 dst 2001:db8::2 self permanent
route add fd00:244:2::/64 proto 112 via fd00:244:2:: dev flannel-v6.1 onlink
`,
    )
  })
  it('leads the routes through nexthop objects where the kernel has them, by ids that are the same after a restart and far above those that people take', () => {
    const { resources } = vxlan.want(own(), [peer(2)], uplink(1), vxlan.conf({}), { ...FACTS, nexthops: true })
    const lines = text({ resources })
    const [, id = ''] =
      /^nexthop add id (\d+) via 10\.244\.2\.0 dev flannel\.1 onlink proto 112\nroute add 10\.244\.2\.0\/24 proto 112 nhid \1$/m.exec(
        lines,
      ) ?? []
    assert.ok(Number(id) >= 2 ** 30 && Number(id) < 2 ** 32, lines)
    assert.equal(
      text(vxlan.want(own(), [peer(3), peer(2)], uplink(1), vxlan.conf({}), { ...FACTS, nexthops: true })).includes(
        `nexthop add id ${id} via 10.244.2.0 `,
      ),
      true,
    )
  })
  it('DirectRouting gives a peer on the uplink’s network a route, the others the tunnel; the most specific route decides', () => {
    const direct = { DirectRouting: true }
    assert.equal(
      peers(want([peer(2, ['v4'])], direct)),
      `
route add 10.244.2.0/24 proto 112 via 192.0.2.2 dev eth0
`,
    )
    const behind = {
      ...uplink(1),
      routes: [{ dst: '192.0.2.2/32' as Cidr, dev: parse.ifname('eth0'), gateway: true }, ...ROUTED],
    }
    const elsewhere = {
      ...uplink(1),
      routes: [{ dst: '192.0.2.2/32' as Cidr, dev: parse.ifname('eth1'), gateway: false }, ...ROUTED],
    }
    for (const up of [behind, elsewhere, { ...uplink(1), routes: [] }])
      assert.match(
        peers(vxlan.want(own(), [peer(2, ['v4'])], up, vxlan.conf(direct), FACTS)),
        /^fdb replace 02:00:00:00:00:02 dev flannel\.1 dst 192\.0\.2\.2 self permanent\nroute add 10\.244\.2\.0\/24 proto 112 via 10\.244\.2\.0 dev flannel\.1 onlink$/m,
      )
    assert.doesNotMatch(peers(want([peer(2)])), /dev eth0/)
  })
  it('with DirectRouting both nodes decide alike: a peer that has this node behind a router gets the tunnel', () => {
    const conf = vxlan.conf({ DirectRouting: true })
    const said = vxlan.announce('node-1', uplink(1), conf)
    assert.deepEqual([said.v4?.OnLink, said.v6?.OnLink], [['192.0.2.0/24'], ['2001:db8::/64']])
    assert.equal(vxlan.announce('node-1', uplink(1), vxlan.conf({})).v4?.OnLink, undefined)
    const reachedBy = (OnLink: unknown) => {
      const other = peer(2, ['v4'])
      const told = { ...other, data: { v4: { ...(other.data.v4 as object), OnLink } } }
      const { resources, problems } = vxlan.want(own(), [told], uplink(1), conf, FACTS)
      const route = resources.find(({ kind }) => kind === 'route')
      return [...problems.values()][0] ?? (route?.kind === 'route' && route.dev)
    }
    assert.equal(reachedBy(['198.51.100.0/24', '192.0.2.0/28']), 'eth0')
    assert.equal(reachedBy([]), 'flannel.1')
    assert.equal(reachedBy(['192.0.2.254/32']), 'flannel.1')
    for (const wrong of ['192.0.2.0/24', [7], ['192.0.2.0/33'], Array(101).fill('192.0.2.0/24')])
      assert.match(String(reachedBy(wrong)), /^Cannot read BackendData\.OnLink /)
  })
  it('takes the address that the tunnel begins at from the link, whatever peers are told (a NAT)', () => {
    const up = { ...uplink(1), advertise: { v4: '203.0.113.9' as Ip } }
    assert.match(text(vxlan.want(own(), [], up, vxlan.conf({}), FACTS)), / local 192\.0\.2\.1 /)
  })
  it('takes VNI, Port, GBP, Learning and MTU from the configuration, and TxChecksumOffload', () => {
    const lines = text(
      vxlan.want(
        { ...own(), subnets: { v4: '10.244.1.0/24' as Cidr } },
        [],
        uplink(1),
        vxlan.conf({ VNI: 4097, Port: 4789, GBP: true, Learning: true, MTU: 1400 }),
        FACTS,
      ),
    )
    assert.match(
      lines,
      /^link add name flannel\.4097 address \S+ mtu 1350 up type vxlan id 4097 dev eth0 local 192\.0\.2\.1 dstport 4789 learning udpcsum gbp$/m,
    )
    for (const [options, offload] of [
      [{ TxChecksumOffload: false }, false],
      [{ TxChecksumOffload: true }, true],
      [{}, undefined],
    ] as const) {
      const [link] = want([], options).resources
      assert.equal(link?.kind === 'link' && link.vxlan?.offload, offload)
    }
  })
  it('switches checksum offload off where the card cannot cut tunnelled packets, on where it can, leaves it where the card does not say, and obeys TxChecksumOffload', () => {
    for (const [has, options, offload, why] of [
      [true, {}, true, 'on: the card eth0 has tx-udp_tnl-csum-segmentation'],
      [false, {}, false, 'off: the card eth0 lacks tx-udp_tnl-csum-segmentation'],
      [undefined, {}, undefined, 'as the kernel has it: the features of eth0 could not be found out'],
      [false, { TxChecksumOffload: true }, true, 'on, by a setting'],
      [true, { TxChecksumOffload: false }, false, 'off, by a setting'],
    ] as const) {
      const [conf, up] = [vxlan.conf(options), { ...uplink(1), card: { name: 'eth0', hasTunnelChecksums: has } }]
      const offloads = vxlan
        .want(own(), [], up, conf, FACTS)
        .resources.flatMap((one) => (one.kind === 'link' ? [one.vxlan?.offload] : []))
      assert.deepEqual(offloads, [offload, offload])
      assert.equal(vxlan.checksumOffload?.(conf, up).why, why)
    }
  })
  it('never asks for more than the uplink’s packets hold', () => {
    assert.match(text(want([], { MTU: 9000 })), /flannel\.1 address \S+ mtu 1450 /)
  })
  it('names devices as flannel does, and as it can where those names are too long for a link', () => {
    assert.deepEqual(vxlan.links(vxlan.conf({})), ['flannel.1', 'flannel-v6.1'])
    assert.deepEqual(vxlan.links(vxlan.conf({ VNI: 9999 })), ['flannel.9999', 'flannel-v6.9999'])
    assert.deepEqual(vxlan.links(vxlan.conf({ VNI: 16777215 })), ['fl.16777215', 'fl6.16777215'])
  })
  it('reaches peers with leases of flannel: no name, no VNI (older ones), VtepMAC in capitals', () => {
    const { node: _, ...nameless } = peer(2, ['v4'])
    for (const VtepMAC of ['02:00:00:00:00:0a', '02:00:00:00:00:0A'])
      assert.match(
        peers(want([{ ...nameless, data: { v4: JSON.parse(`{"VtepMAC":"${VtepMAC}"}`) } }])),
        /lladdr 02:00:00:00:00:0a dev flannel\.1/,
      )
  })
  it('says of a peer with unreadable data what is wrong with it, naming key and value, and reaches the others', () => {
    for (const [data, why] of [
      [{}, 'it announces no VtepMAC for IPv4'],
      [{ v4: null }, 'Cannot read BackendData null: want an object with VtepMAC'],
      [{ v4: 'x' }, 'Cannot read BackendData "x": want an object with VtepMAC'],
      [
        { v4: {} },
        'Cannot read BackendData.VtepMAC undefined: want a unicast Ethernet address such as 02:00:0a:f4:00:02',
      ],
      [
        { v4: { VtepMAC: '33:33:00:00:00:01' } },
        'Cannot read BackendData.VtepMAC "33:33:00:00:00:01": want a unicast Ethernet address such as 02:00:0a:f4:00:02',
      ],
      [
        { v4: { VtepMAC: 'x\nroute add default via 192.0.2.66' } },
        'Cannot read BackendData.VtepMAC "x\\nroute add default via 192.0.2.66": want a unicast Ethernet address such as 02:00:0a:f4:00:02',
      ],
      [{ v4: { VNI: '1', VtepMAC: '02:00:00:00:00:02' } }, 'Cannot read BackendData.VNI "1": want a whole number'],
      [{ v4: { VNI: 2, VtepMAC: '02:00:00:00:00:02' } }, 'it announces VNI 2, this node has 1'],
    ] as const) {
      const { resources, problems } = want([{ ...peer(2, ['v4']), data }, peer(3, ['v4'])])
      assert.deepEqual([...problems], [['10.244.2.0-24', why]])
      assert.deepEqual(resources, want([peer(3, ['v4'])]).resources)
    }
  })
  it('gives a MAC that two nodes announce to the one with the lower address, in whatever order they come, and says so of the other; of two leases of one node it takes both', () => {
    const twin = { ...peer(3, ['v4']), data: peer(2).data }
    for (const order of [
      [peer(2, ['v4']), twin],
      [twin, peer(2, ['v4'])],
    ]) {
      assert.deepEqual(want(order).resources, want([peer(2, ['v4'])]).resources)
      assert.deepEqual(
        [...want(order).problems],
        [['10.244.3.0-24', 'it announces the MAC 02:00:00:00:00:02, as the node with 192.0.2.2 does']],
      )
    }
    const moved = { ...twin, ips: { v4: '192.0.2.2' as Ip } }
    assert.equal(want([peer(2, ['v4']), moved]).problems.size, 0)
    assert.match(peers(want([peer(2, ['v4']), moved])), /10\.244\.3\.0 lladdr 02:00:00:00:00:02/)
  })
  it('gives two subnets that begin at one address, of another length, to the older', () => {
    const wide = { ...peer(3, ['v4']), subnets: { v4: '10.244.2.0/23' as Cidr } }
    assert.deepEqual(
      [...want([peer(2, ['v4']), wide]).problems],
      [['10.244.2.0-23', 'it overlaps the older lease 10.244.2.0/24 of node "node-2"']],
    )
  })
  it('wants its own VtepMAC in its lease', () => {
    assert.throws(
      () => vxlan.want({ ...own(), data: {} }, [], uplink(1), vxlan.conf({}), FACTS),
      /^ValueError: Cannot program VXLAN: this node's lease of 10\.244\.1\.0\/24 announces no VtepMAC$/,
    )
  })
})

describe('vxlan.announce()', () => {
  it('is flannel’s JSON, a part per family, with a MAC that is local and the node’s own in each network', () => {
    const told = vxlan.announce('node-1', uplink(1), vxlan.conf({}))
    assert.match(JSON.stringify(told.v4), /^\{"VNI":1,"VtepMAC":"02(:[0-9a-f]{2}){5}"\}$/)
    assert.deepEqual(Object.keys(told), ['v4', 'v6'])
    const macs = [
      told.v4,
      told.v6,
      vxlan.announce('node-2', uplink(1), vxlan.conf({})).v4,
      vxlan.announce('node-1', uplink(1), vxlan.conf({ VNI: 2 })).v4,
    ].map((one) => one?.VtepMAC)
    assert.equal(new Set(macs).size, 4)
    assert.equal(
      vxlan.announce('node-1', { ...uplink(7), name: parse.ifname('eth7') }, vxlan.conf({})).v4?.VtepMAC,
      told.v4?.VtepMAC,
    )
  })
})

describe('vxlan.conf()', () => {
  it('has flannel’s defaults, and takes keys in any case', () => {
    assert.deepEqual(vxlan.conf({}), { VNI: 1, Port: 8472, MTU: 0, GBP: false, Learning: false, DirectRouting: false })
    assert.deepEqual(vxlan.conf({ Type: 'vxlan', vni: 5, PORT: 0, gbp: true, MacPrefix: '0E-2A' }), {
      VNI: 5,
      Port: 8472,
      MTU: 0,
      GBP: true,
      Learning: false,
      DirectRouting: false,
    })
  })
  for (const [options, message] of [
    [{ VNI: 0 }, 'Cannot read Backend.VNI 0: want a whole number, 1 to 16777215'],
    [{ VNI: 16777216 }, 'Cannot read Backend.VNI 16777216: want a whole number, 1 to 16777215'],
    [{ vni: '1' }, 'Cannot read Backend.VNI "1": want a whole number, 1 to 16777215'],
    [{ Port: 65536 }, 'Cannot read Backend.Port 65536: want a whole number, 0 to 65535'],
    [{ MTU: 68 }, "Cannot read Backend.MTU 68: want a whole number, 576 to 65535, or 0 for the uplink's"],
    [{ GBP: 1 }, 'Cannot read Backend.GBP 1: want true or false'],
    [{ Learning: 'yes' }, 'Cannot read Backend.Learning "yes": want true or false'],
    [{ DirectRouting: 'true' }, 'Cannot read Backend.DirectRouting "true": want true or false'],
    [{ TxChecksumOffload: 'off' }, 'Cannot read Backend.TxChecksumOffload "off": want true or false'],
  ] as const) {
    it(`refuses ${JSON.stringify(options)}`, () => {
      assert.throws(() => vxlan.conf(options), { name: 'ValueError', message })
    })
  }
})

describe('vxlan.mtu()', () => {
  it('is what the smaller of the families leaves, of the uplink or of what Backend.MTU says of it', () => {
    const [plain, set] = [vxlan.conf({}), vxlan.conf({ MTU: 1400 })]
    assert.deepEqual(
      [vxlan.mtu(plain, 1500, { v4: 1 }), vxlan.mtu(plain, 1500, { v6: 1 }), vxlan.mtu(plain, 1500, { v4: 1, v6: 1 })],
      [1450, 1430, 1430],
    )
    assert.deepEqual([vxlan.mtu(set, 1500, { v4: 1 }), vxlan.mtu(set, 1300, { v4: 1 })], [1350, 1250])
  })
})

function own(): Lease {
  return lease(1, MACS, 'vxlan')
}

function peer(n: number, families?: ('v4' | 'v6')[]): Lease {
  const mac = (middle: string) => ({ VNI: 1, VtepMAC: `02:00:00:00:${middle}:0${n}` })
  return lease(n, { v4: mac('00'), v6: mac('06') }, 'vxlan', families)
}

function want(peers: readonly Lease[], options: Record<string, unknown> = {}): Wanted {
  return vxlan.want(own(), peers, uplink(1), vxlan.conf(options), FACTS)
}

function text({ resources }: Pick<Wanted, 'resources'>): string {
  const lines = resources.flatMap((one) => handler(one.kind).put(one))
  return `\n${lines.map(({ text }) => `${text}\n`).join('')}`
}

// Without this node's own devices.
function peers(wanted: Wanted): string {
  return text({
    ...wanted,
    resources: wanted.resources.filter(({ kind }) => !['link', 'sysctl', 'addr'].includes(kind)),
  })
}
