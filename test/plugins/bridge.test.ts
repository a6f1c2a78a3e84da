// lane: quick
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import type { Attachment, InterfacePlugin, NetConf, Wiring } from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import type { SeenLink } from '../../lib/os/links.ts'
import { batches } from '../../lib/state/apply.ts'
import { joining, portsOf, withSettings } from '../../lib/state/bridge-ports.ts'
import { type BridgePort, linesOf, type Plan, type Resource } from '../../lib/state/resource.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { bridgeMac } from '../../lib/text/link-names.ts'
import { read } from '../../lib/text/shape.ts'
import { parse } from '../../lib/text/values.ts'
import bridge from '../../plugins/bridge.ts'
import { AT } from '../support/attachment.ts'

const { conf, wire, unwire } = bridge as InterfacePlugin<NetConf>
const DUAL = {
  ips: [
    { address: '10.1.0.2/24', gateway: '10.1.0.1' },
    { address: 'fd00:1::2/64', gateway: 'fd00:1::1' },
  ],
} as unknown as Result
// Fixed for good: what one version made, the next must find. MurmurHash3_x86_128 of 'host net c1 eth0'.
const OWN = 'veth84d22540746'

describe('bridge.wire()', () => {
  it('wants for a dual-stack pod one batch on the node, one in the pod, and sysctls as files', () => {
    assert.equal(
      text(wired({ isDefaultGateway: true, mtu: 1400 }, DUAL)),
      `
# host ip
link add name cni0 address ${bridgeMac(parse.ifname('cni0'), AT, {})} mtu 1400 up type bridge
link set dev cni0 alias plumb-bridge
link add name ${OWN} address 02:8f:60:95:66:af mtu 1400 up master cni0 type veth peer name eth0 address 02:19:fc:8a:5d:50 mtu 1400 netns /run/netns/pod
link set dev ${OWN} alias plumb/net/c1/eth0
# host file
net/ipv6/conf/cni0/accept_ra = 0
net/ipv4/ip_forward = 1
net/ipv6/conf/all/forwarding = 1
net/ipv6/conf/${OWN}/disable_ipv6 = 1
# /run/netns/pod file
net/ipv6/conf/eth0/accept_dad = 0
net/ipv4/conf/eth0/arp_notify = 1
net/ipv6/conf/eth0/ndisc_notify = 1
net/ipv6/conf/lo/disable_ipv6 = 0
net/ipv6/conf/eth0/disable_ipv6 = 0
net/ipv6/conf/eth0/keep_addr_on_down = 1
# /run/netns/pod ip
addr replace 10.1.0.2/24 brd + dev eth0
addr replace fd00:1::2/64 nodad dev eth0
link set dev eth0 up
route prepend 0.0.0.0/0 via 10.1.0.1 dev eth0
route prepend ::/0 via fd00:1::1 dev eth0`,
    )
  })

  it('isDefaultGateway adds a default route beside one of another table or priority, and none beside one that names its gateway or is the same', () => {
    const route = (more: object) =>
      ({ ...DUAL, ips: DUAL.ips?.slice(0, 1), routes: [{ dst: '0.0.0.0/0', ...more }] }) as unknown as Result
    const added = { dst: '0.0.0.0/0', gw: '10.1.0.1' }
    for (const [more, isAdded] of [
      [{ priority: 50 }, true],
      [{ table: 100 }, true],
      [{ mtu: 1300 }, false],
      [{ gw: '10.1.0.9', priority: 50 }, false],
    ] as const)
      assert.deepEqual(wired({ isDefaultGateway: true }, route(more)).result.routes, [
        { dst: '0.0.0.0/0', ...more },
        ...(isAdded ? [added] : []),
      ])
  })

  it('has, for masquerade, an element for each address, and the pair of its subnet, which all pods of the network share', () => {
    const lines = text(wired({ ipMasq: true }, DUAL))
    assert.equal(
      lines.slice(lines.indexOf('# host nft')),
      `# host nft
add element inet plumb masq4 { 10.1.0.2 comment "net/c1" }
add element inet plumb local4 { 10.1.0.0/24 . 10.1.0.0/24 comment "net" }
add element inet plumb masq6 { fd00:1::2 comment "net/c1" }
add element inet plumb local6 { fd00:1::/64 . fd00:1::/64 comment "net" }`,
    )
  })

  it('gives vlan 100 as the native one of the port, without VLAN 1, on a bridge that filters', () => {
    const lines = text(wired({ vlan: 100 }, {}))
    assert.match(
      lines,
      section('host bridge', `vlan delete vid 1 dev ${OWN}`, `vlan add vid 100 pvid untagged dev ${OWN}`),
    )
    assert.match(created({ vlan: 100 }), /type bridge vlan_filtering 1$/)
    assert.match(
      text(wired({ vlan: 100, preserveDefaultVlan: true }, {})),
      section('host bridge', `vlan add vid 100 pvid untagged dev ${OWN}`),
    )
  })

  it('gives trunk 101,200-210 tagged, with VLAN 1 as the native one', () => {
    const vlanTrunk = [{ id: 101 }, { minID: 200, maxID: 210 }]
    assert.match(
      text(wired({ vlanTrunk }, {})),
      section(
        'host bridge',
        `vlan add vid 101 dev ${OWN}`,
        `vlan add vid 200-210 dev ${OWN}`,
        `vlan add vid 1 pvid untagged dev ${OWN}`,
      ),
    )
  })

  it('gives both together, ranges that touch as one', () => {
    const vlanTrunk = [{ minID: 205, maxID: 210 }, { id: 101 }, { minID: 200, maxID: 204 }]
    assert.match(
      text(wired({ vlan: 100, vlanTrunk }, {})),
      section(
        'host bridge',
        `vlan delete vid 1 dev ${OWN}`,
        `vlan add vid 101 dev ${OWN}`,
        `vlan add vid 200-210 dev ${OWN}`,
        `vlan add vid 100 pvid untagged dev ${OWN}`,
      ),
    )
  })

  it('puts the gateway of a vlan on a link of its own, fourth in the result', () => {
    const { result, later } = wired({ vlan: 100, isGateway: true }, DUAL)
    assert.deepEqual(
      result.interfaces?.map(({ name }) => name),
      ['cni0', OWN, 'eth0', 'cni0.100'],
    )
    assert.deepEqual(
      later?.map((one) => one.kind === 'addr' && `${one.cidr} ${one.dev}`),
      ['10.1.0.1/24 cni0.100', 'fd00:1::1/64 cni0.100'],
    )
    assert.throws(() => wired({ bridge: 'abcdefghijklm', vlan: 100, isGateway: true }, DUAL), {
      name: 'ValueError',
      message: /"abcdefghijklm\.100": want an interface name of 1 to 15 bytes/,
    })
  })

  it('derives the MACs of port, gateway and pod from the machine, and their names not', () => {
    const keys = { vlan: 100, isGateway: true, ipam: { type: 'static' } }
    const [one, two] = ['a', 'b'].map((letter) => wired(keys, DUAL, AT, letter.repeat(32)))
    const macs = (wiring: Wiring | undefined) =>
      [...(wiring?.shared ?? []), ...(wiring?.own ?? [])].flatMap((made) =>
        made.kind === 'link' ? [made.mac, made.peer?.mac].flatMap((mac) => mac ?? []) : [],
      )
    const names = (wiring: Wiring | undefined) => wiring?.result.interfaces?.map(({ name }) => name)
    assert.deepEqual(names(one), names(two))
    assert.deepEqual([macs(one).length, macs(one).filter((mac) => macs(two).includes(mac))], [6, []])
    // CHECK holds for what stood there before the machine got another id.
    const { shared, own } = wired(keys, { ...DUAL, ...one?.result }, AT, 'b'.repeat(32))
    for (const made of [...shared, ...own])
      assert.ok(made.kind !== 'link' || !made.mac || macs(one).includes(made.mac), JSON.stringify(made))
  })

  const trunks: Record<string, readonly object[]> = {
    'incorrect trunk minID parameter': [
      { minID: 0, maxID: 10 },
      { minID: 4095, maxID: 4095 },
    ],
    'incorrect trunk maxID parameter': [
      { minID: 1, maxID: 4095 },
      { minID: 10, maxID: 0 },
    ],
    'incorrect trunk id parameter': [{ id: 0 }, { id: 4095 }, { id: -1 }, {}],
    'minID and maxID should be configured simultaneously, minID is missing': [{ maxID: 10 }],
    'minID and maxID should be configured simultaneously, maxID is missing': [{ minID: 10 }],
    'minID is greater than maxID in trunk parameter': [{ minID: 11, maxID: 10 }],
  }
  for (const [why, ranges] of Object.entries(trunks)) {
    it(`refuses a trunk: ${why}`, () => {
      for (const one of ranges)
        assert.throws(() => wired({ vlanTrunk: [{ id: 5 }, one] }, {}), {
          name: 'ValueError',
          message: `Cannot read vlanTrunk[1] ${JSON.stringify(one)}: ${why}, want {"id"} or {"minID", "maxID"} with numbers from 1 to 4094`,
        })
    })
  }

  it('locks the port to the address of the pod for macspoofchk', () => {
    const lines = text(wired({ macspoofchk: true, runtimeConfig: { mac: '02:00:00:00:00:07' } }, DUAL))
    assert.match(lines, new RegExp(`link set dev ${OWN} alias plumb/net/c1/eth0 type bridge_slave locked on`))
    assert.match(lines, section('host bridge', `fdb replace 02:00:00:00:00:07 dev ${OWN} master static sticky`))
  })

  it('unwire() knows the link by the owner alone, and it is the one that wire() makes', () => {
    assert.match(
      text({ put: [], drop: unwire({ network: AT.network, containerId: AT.containerId, ifname: AT.ifname }) }),
      new RegExp(`^\n# host ip\nlink set dev ${OWN} group (\\d+)\nlink delete group \\1$`),
    )
  })

  it('names differ for every part of the owner, and fit into the 15 bytes of a link name', () => {
    const owners = [
      AT,
      { ...AT, network: 'net1' },
      { ...AT, containerId: 'c2' },
      { ...AT, ifname: 'eth1' },
      { ...AT, network: 'n'.repeat(5000), containerId: 'c'.repeat(5000) },
    ] as Attachment[]
    const names = owners.flatMap((owner) => unwire(owner).map((one) => one.kind === 'link' && one.name))
    assert.equal(new Set(names).size, owners.length)
    for (const name of names) assert.match(String(name), /^veth[0-9a-f]{11}$/)
  })

  it('puts an alias of at most 255 bytes on the link, however long the names are', () => {
    const long = { ...AT, network: 'n'.repeat(5000), containerId: 'c'.repeat(5000) } as Attachment
    const alias = /alias (plumb\/\S+)/.exec(text(wired({ name: long.network }, DUAL, long)))?.[1] ?? ''
    assert.match(alias, /^plumb\/\+[0-9a-f]{32}\/\+[0-9a-f]{32}\/eth0$/)
  })
})

describe('portsOf() and joining()', () => {
  it('a port is down until it has its settings, its VLANs and its fixed address', () => {
    const port = { kind: 'link', ns: 'host', name: 'veth1', type: 'veth', up: true } as const
    const settings = { master: 'br0', hairpin: true, isolated: true, locked: true }
    const at = { kind: 'vlan', ns: 'host', dev: 'veth1' }
    const all = [
      { ...port, port: { master: 'br0', locked: true } },
      { ...port, type: 'port', port: settings },
      { ...at, first: 1, last: 1, absent: true },
      { ...at, first: 5, last: 5, pvid: true },
      { kind: 'fdb', ns: 'host', dev: 'veth1', mac: '02:00:00:00:00:07' },
      { kind: 'fdb', ns: 'host', dev: 'veth2', mac: '02:00:00:00:00:08' },
    ] as unknown as Resource[]
    const ports = portsOf(all)
    assert.deepEqual(
      ports.map(({ name, port }) => [name, port]),
      [['veth1', settings]],
    )
    assert.deepEqual(
      joining(ports).map((changes) => changes.flatMap(linesOf).map(({ text }) => text)),
      [
        [
          'link set dev veth1 down',
          'link set dev veth1 master br0',
          'link set dev veth1 type bridge_slave hairpin on isolated on locked on',
        ],
        [
          'vlan delete vid 1 dev veth1',
          'vlan add vid 5 pvid untagged dev veth1',
          'fdb replace 02:00:00:00:00:07 dev veth1 master static sticky',
        ],
        ['link set dev veth1 up'],
      ],
    )
  })

  it('a chained plugin adds settings to the ports that the journal has, and makes no port', () => {
    const more = { kind: 'link', ns: 'host', type: 'port', up: true, port: { master: 'br0', hairpin: true } }
    const noted = [{ name: 'veth1', port: { master: 'br0', isolated: true }, rows: [] }] as unknown as BridgePort[]
    const both = ['veth1', 'veth2'].map((name) => ({ ...more, name })) as unknown as Resource[]
    assert.deepEqual(withSettings(noted, both), [
      { name: 'veth1', port: { master: 'br0', isolated: true, hairpin: true }, rows: [] },
    ])
  })
})

describe('bridge.wire().settle()', () => {
  const seen: SeenLink = {
    index: 2,
    mtu: 1450,
    mac: parse.mac('02:00:00:00:00:99'),
    kind: 'bridge',
    alias: '',
    isEthernet: true,
    isUp: true,
    promisc: false,
    locked: false,
  }
  // The addresses are those of the link of that name.
  const settle = (keys: object, addresses: readonly string[], more: Partial<SeenLink> = {}, holder = 'cni0') => {
    const { settle } = wired({ isGateway: true, ...keys }, DUAL)
    const held = (family: 4 | 6 | undefined) =>
      addresses.filter((one) => one.includes(':') === (family === 6)).map((cidr) => ({ cidr: cidr as Cidr, scope: 0 }))
    return settle?.({
      seen: (name) => ({ ...seen, ...more, index: name === holder ? 3 : 2 }),
      held: (index, family) => (index === 3 ? held(family) : []),
    })
  }

  it('answers with the bridge as it is, and wants nothing of one that has its gateway addresses', () => {
    const done = settle({}, ['10.1.0.1/24', 'fd00:1::1/64'])
    assert.deepEqual(done?.result.interfaces?.[0], { name: 'cni0', mac: '02:00:00:00:00:99', mtu: 1450 })
    assert.deepEqual(done?.plan, { put: [], drop: [] })
  })
  it('wants the gateway addresses that are missing, without duplicate address detection', () => {
    assert.equal(text(settle({}, ['10.1.0.1/24'])?.plan), '\n# host ip\naddr replace fd00:1::1/64 nodad dev cni0')
  })
  it('brings a bridge up that is down, and makes it promiscuous where that is asked', () => {
    assert.equal(
      text(settle({ promiscMode: true }, ['10.1.0.1/24', 'fd00:1::1/64'], { isUp: false })?.plan),
      '\n# host ip\nlink set dev cni0 up promisc on',
    )
  })
  it('forceAddress takes what is in the way first', () => {
    assert.equal(
      text(settle({ forceAddress: true }, ['10.9.0.1/16', 'fd00::1/16', 'fd00:2::1/64'])?.plan),
      '\n# host ip\naddr delete 10.9.0.1/16 dev cni0\naddr delete fd00::1/16 dev cni0\naddr replace 10.1.0.1/24 brd + dev cni0\naddr replace fd00:1::1/64 nodad dev cni0',
    )
  })
  it('refuses a link that is no bridge', () => {
    assert.throws(() => settle({}, [], { kind: 'dummy' }), {
      name: 'CniError',
      code: 7,
      details: 'it is of type dummy; set "bridge" to another name',
    })
  })
  it('refuses macspoofchk where the kernel has forgotten that it was told to lock the port', () => {
    const all = ['10.1.0.1/24', 'fd00:1::1/64']
    assert.deepEqual(settle({ macspoofchk: true }, all, { locked: true })?.plan, { put: [], drop: [] })
    assert.throws(() => settle({ macspoofchk: true }, all, { locked: false }), {
      name: 'CniError',
      code: 2,
      message: 'Cannot serve "macspoofchk": this kernel does not lock ports of a bridge',
    })
  })
  it('judges the link of the VLAN, where that has the gateway addresses', () => {
    const settled = (...addresses: readonly string[]) => settle({ vlan: 5 }, addresses, {}, 'cni0.5')
    assert.deepEqual(settled('10.1.0.1/24', 'fd00:1::1/64')?.plan, { put: [], drop: [] })
    assert.throws(() => settled('10.9.0.1/16'), {
      name: 'CniError',
      code: 7,
      message: '"cni0.5" already has an IP address different from 10.1.0.1/24',
    })
  })
})

function wired(keys: object, given: Result, at: Attachment = AT, machineId = ''): Wiring {
  return wire(read(conf, { cniVersion: '1.1.0', name: 'net', type: 'bridge', ...keys }).value, at, given, {
    bridgeNf: false,
    machineId,
  })
}

/** The line that makes the bridge, where there is none. */
function created(keys: object): string {
  const [shared] = batches({ put: wired(keys, {}).shared, drop: [] })
  return shared?.steps[0]?.line.text ?? ''
}

function text(plan: Wiring | Plan | undefined): string {
  const { put, drop } =
    plan && 'own' in plan
      ? { put: [...plan.shared, ...plan.own, ...(plan.noted ?? []).flatMap(({ own }) => own)], drop: [] }
      : (plan ?? { put: [], drop: [] })
  return batches({ put, drop })
    .map(({ ns, tool, steps }) => `\n# ${ns} ${tool}\n${steps.map(({ line }) => line.text).join('\n')}`)
    .join('')
}

function section(title: string, ...lines: readonly string[]): RegExp {
  return new RegExp(`# ${title}\n${lines.join('\n')}(\n#|$)`)
}
