import { masterOf } from '../../support/kinds.ts'
import { WORLD } from '../../support/packets.ts'
import type { Conf, Scene } from './list.ts'
import { REFUSED } from './refused.ts'

const four = [{ subnet: '10.1.0.0/24' }]
const six = [{ subnet: 'fd00:1::/64' }]
const second = [{ subnet: '10.2.0.0/24' }]
const pool = (ranges: readonly unknown[], more: object = {}) => ({ type: 'host-local', ranges, ...more })
const bridge = (more: object = {}): Conf => ({ type: 'bridge', bridge: 'br0', ...more })
const portmap = (more: object = {}): Conf => ({ type: 'portmap', capabilities: { portMappings: true }, ...more })
const list = (cniVersion: string, ...plugins: Conf[]) => ({ cniVersion, name: 'net', plugins })
const tcp = (hostPort: number, more: object = {}) => ({ hostPort, containerPort: 80, protocol: 'tcp', ...more })
const mapped = (a: readonly object[], b: readonly object[]) => ({ a: { portMappings: a }, b: { portMappings: b } })
const gateway = bridge({ isDefaultGateway: true, ipMasq: true, ipam: pool([four, six]) })

/** A scene for one kind of reference only. */
interface Staged extends Scene {
  /** It needs keys that came after release 1.1.1. */
  readonly newer?: true
}

const LOOPBACK: readonly Staged[] = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'].map(
  (version, i) => ({
    name: `loopback in CNI ${version}`,
    list: list(version, { type: 'loopback' }),
    ifname: i % 2 ? 'eth0' : 'lo',
    del: (['live', 'empty', 'gone'] as const)[i % 3] as 'live',
  }),
)

const BRIDGE: readonly Staged[] = [
  {
    name: 'two gateways for one destination',
    list: list(
      '1.0.0',
      bridge({
        isGateway: true,
        ipam: pool([four, six], {
          routes: ['10.9.0.0/16', 'fd09::/32'].flatMap((dst) =>
            [8, 9].map((n) => ({ dst, gw: dst.includes(':') ? `fd00:1::${n}` : `10.1.0.${n}` })),
          ),
        }),
      }),
    ),
  },
  {
    name: 'route with mtu, advmss, priority, scope and table',
    newer: true,
    list: list(
      '1.1.0',
      bridge({
        isGateway: true,
        ipam: pool([four], {
          routes: [
            { dst: '10.9.0.0/16', gw: '10.1.0.9', mtu: 1400, advmss: 1300, priority: 7, table: 77 },
            { dst: '10.8.0.0/16', scope: 0 },
          ],
        }),
      }),
    ),
  },
  {
    name: 'route of a family without a gateway',
    list: list('1.0.0', bridge({ ipam: pool([six], { routes: [{ dst: '10.9.0.0/16' }] }) })),
  },
  {
    name: 'default route twice',
    list: list('1.0.0', bridge({ isDefaultGateway: true, ipam: pool([four], { routes: [{ dst: '0.0.0.0/0' }] }) })),
  },
  {
    name: 'default route with a gateway of its own',
    list: list(
      '1.0.0',
      bridge({ isDefaultGateway: true, ipam: pool([four], { routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.9' }] }) }),
    ),
  },
  {
    name: 'MAC of CNI_ARGS, which the pool does not know',
    list: list('1.0.0', bridge({ ipam: pool([four]) })),
    args: { a: 'MAC=02:00:00:00:00:0a', b: 'MAC=02:00:00:00:00:0b' },
  },
  {
    name: 'unknown word in CNI_ARGS',
    list: list('1.0.0', bridge({ ipam: pool([four]) })),
    args: { a: 'K8S_POD_NAME=web', b: 'K8S_POD_NAME=web' },
  },
  {
    name: 'gateway of two IPv4 subnets',
    list: list('1.0.0', bridge({ isDefaultGateway: true, ipam: pool([four, second]) })),
  },
  {
    name: 'gateway of two IPv4 subnets by force',
    list: list('1.0.0', bridge({ isDefaultGateway: true, forceAddress: true, ipam: pool([four, second]) })),
  },
  { name: 'masquerade of two IPv4 subnets', list: list('1.0.0', bridge({ ipMasq: true, ipam: pool([four, second]) })) },
  {
    name: 'macspoofchk',
    list: list('1.0.0', bridge({ isGateway: true, macspoofchk: true, ipam: pool([four]) })),
    del: 'empty',
  },
  { name: 'disableContainerInterface', newer: true, list: list('1.1.0', bridge({ disableContainerInterface: true })) },
  {
    name: 'a pool elsewhere, a DNS domain with <&>, keys that nobody knows',
    list: list(
      '1.0.0',
      bridge({
        nonsense: [1],
        dns: { domain: 'a<b>&c.test' },
        ipam: pool([four], { dataDir: '/var/lib/cni/elsewhere', nonsense: {} }),
      }),
    ),
  },
  { name: 'GC that keeps nobody', newer: true, list: list('1.1.0', gateway), gc: true },
  {
    name: 'STATUS of a full pool',
    newer: true,
    list: list(
      '1.1.0',
      bridge({ ipam: pool([[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.9', rangeEnd: '10.1.0.9' }]]) }),
    ),
  },
  {
    name: 'a subnet of two addresses',
    list: list(
      '1.0.0',
      bridge({
        ipam: pool([[{ subnet: '10.1.0.0/31', rangeStart: '10.1.0.0', rangeEnd: '10.1.0.1', gateway: '10.1.0.1' }]]),
      }),
    ),
  },
  {
    name: 'a range that is its gateway',
    list: list(
      '1.0.0',
      bridge({ ipam: pool([[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.1', rangeEnd: '10.1.0.1' }], second]) }),
    ),
  },
  { name: 'VLAN 100', list: list('1.0.0', bridge({ vlan: 100, ipam: pool([four]) })) },
]

const at = (...addresses: readonly string[]) => ({
  ipam: { type: 'static', addresses: addresses.map((address) => ({ address })) },
})
const STATIC: readonly Staged[] = [
  {
    name: 'static, with another address when it is checked',
    list: list('1.0.0', bridge({ isGateway: true, ...at('10.1.0.10/24') })),
    more: { b: at('10.1.0.11/24') },
    atCheck: at('10.1.0.10/24', 'fd00:1::10/64'),
  },
  {
    name: 'static, GATEWAY of CNI_ARGS for an address of the configuration',
    list: list('1.0.0', bridge(at('10.1.0.10/24'))),
    more: { b: at('10.1.0.11/24') },
    args: { a: 'IgnoreUnknown=1;GATEWAY=10.1.0.77', b: 'IgnoreUnknown=1;GATEWAY=10.1.0.77' },
  },
  {
    name: 'static, IP and GATEWAY of CNI_ARGS',
    list: list('1.0.0', bridge({ isGateway: true, ipam: { type: 'static' } })),
    args: {
      a: 'IgnoreUnknown=1;IP=10.1.0.10/24,fd00:1::10/64;GATEWAY=10.1.0.77,fd00:1::77',
      b: 'IgnoreUnknown=1;IP=10.1.0.11/24',
    },
  },
  {
    name: 'static, a gateway of the other family',
    list: list(
      '1.0.0',
      bridge({ ipam: { type: 'static', addresses: [{ address: '10.1.0.10/24', gateway: 'fd00:1::1' }] } }),
    ),
  },
  {
    name: 'static, an empty address of the runtime',
    list: list('1.0.0', bridge({ capabilities: { ips: true }, ...at('10.1.0.10/24') })),
    more: { b: at('10.1.0.11/24') },
    caps: { a: { ips: [''] }, b: { ips: ['10.1.0.12/24'] } },
  },
]

const PTP: readonly Staged[] = [
  {
    name: 'ptp of both families, masqueraded',
    list: list('1.0.0', {
      type: 'ptp',
      ipMasq: true,
      ipam: pool([four, six], { routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] }),
    }),
    del: 'empty',
  },
  {
    name: 'ptp with a gateway elsewhere in the subnet',
    list: list('0.4.0', { type: 'ptp', ipam: pool([four], { routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.77' }] }) }),
    del: 'gone',
  },
  { name: 'ptp without a pool', list: list('1.0.0', { type: 'ptp' }) },
]

const PORTS: readonly Staged[] = [
  {
    name: 'host ports of TCP, UDP and SCTP, one twice, one on two addresses',
    list: list('1.0.0', gateway, portmap()),
    caps: mapped(
      [
        tcp(8080),
        tcp(8080),
        { hostPort: 5353, containerPort: 53, protocol: 'udp' },
        { hostPort: 3868, containerPort: 3868, protocol: 'sctp' },
      ],
      [tcp(9080, { hostIP: WORLD.node4 }), tcp(9080, { hostIP: WORLD.node6 }), tcp(9090, { hostIP: '' })],
    ),
  },
  {
    name: 'a host port with two owners',
    list: list('1.0.0', gateway, portmap()),
    caps: mapped([tcp(8080)], [tcp(8080)]),
  },
  {
    name: 'host ports by nftables',
    newer: true,
    list: list(
      '1.1.0',
      bridge({ isDefaultGateway: true, ipMasq: true, ipMasqBackend: 'nftables', ipam: pool([four, six]) }),
      portmap({ backend: 'nftables' }),
    ),
    caps: mapped([tcp(8080)], [tcp(9080)]),
  },
  {
    name: 'host ports with conditions of iptables',
    list: list('1.0.0', gateway, portmap({ conditionsV4: ['!', '-d', '192.0.2.77'] })),
    caps: mapped([tcp(8080)], [tcp(9080)]),
  },
  {
    name: 'host ports with conditions of nft',
    newer: true,
    list: list('1.0.0', gateway, portmap({ backend: 'nftables', conditionsV4: ['ip', 'daddr', '!=', '192.0.2.77'] })),
    caps: mapped([tcp(8080)], [tcp(9080)]),
  },
  {
    name: 'host ports without a gateway',
    list: list('1.0.0', bridge({ ipam: pool([four]) }), portmap()),
    caps: mapped([tcp(8080)], [tcp(9080)]),
  },
  {
    name: 'host ports of a ptp',
    list: list(
      '1.0.0',
      { type: 'ptp', ipMasq: true, ipam: pool([four, six], { routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] }) },
      portmap(),
    ),
    caps: mapped([tcp(8080)], [tcp(9080)]),
    del: 'gone',
  },
  {
    name: 'a protocol in capitals',
    list: list('1.0.0', gateway, portmap()),
    caps: mapped([tcp(8080, { protocol: 'TCP' })], [tcp(9080, { protocol: 'UDP' })]),
  },
]

const macvlan = (more: object = {}): Conf => ({ type: 'macvlan', master: 'eth1', ...more })
const before = masterOf([
  {
    ...macvlan(),
    ipam: {
      ranges: [[{ subnet: '10.1.0.0/24', gateway: '10.1.0.1' }], [{ subnet: 'fd00:1::/64', gateway: 'fd00:1::1' }]],
    },
  },
])
const MACVLAN: readonly Staged[] = [
  {
    name: 'macvlan with the DNS of its pool',
    list: list('1.0.0', macvlan({ ...at('10.1.0.10/24') })),
    before,
    more: { a: withDns('10.1.0.10/24'), b: withDns('10.1.0.11/24') },
    del: 'empty',
  },
  {
    name: 'macvlan of the default route, with an mtu',
    list: list(
      '1.0.0',
      macvlan({ master: '', mtu: 1400, mode: 'private', ipam: pool([four, six], { routes: [{ dst: '0.0.0.0/0' }] }) }),
    ),
    before: `${before}\nip route add default dev eth1`,
  },
  {
    name: 'macvlan without a pool',
    list: list('0.4.0', macvlan({ mode: 'vepa', mac: '02:00:00:00:00:0a' })),
    before,
    more: { b: { mac: '02:00:00:00:00:0b' } },
    del: 'gone',
  },
]

function withDns(address: string): object {
  return { ipam: { type: 'static', addresses: [{ address }], dns: { nameservers: ['10.1.0.53'] } } }
}

/**
 * What the generator leaves out, and what shows each wanted difference: for a reference with and without what came
 * after release 1.1.1.
 */
export function staged(newer: boolean): Scene[] {
  return [...LOOPBACK, ...BRIDGE, ...STATIC, ...PTP, ...PORTS, ...MACVLAN, ...REFUSED.slice(0, 2)].filter(
    (one) => newer || (!('newer' in one) && one.list.cniVersion !== '1.1.0'),
  )
}

/** Configurations that both sides refuse. */
export function refused(newer: boolean): Scene[] {
  return REFUSED.slice(2).filter((one) => newer || !('newer' in one))
}
