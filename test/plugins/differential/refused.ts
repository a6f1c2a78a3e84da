import type { Conf, Scene } from './list.ts'

const range = (more: object) => [[{ subnet: '10.1.0.0/24', ...more }]]
const pool = (more: object) => ({ type: 'host-local', ...more })
const bridge = (more: object): Conf => ({ type: 'bridge', bridge: 'br0', ...more })
const list = (cniVersion: string, ...plugins: Conf[]) => ({ cniVersion, name: 'net', plugins })
const FINE = pool({ ranges: range({}) })

// What is wrong, and the plugin that says so.
const WRONG: Readonly<Record<string, Conf>> = {
  'hairpinMode and promiscMode': bridge({ hairpinMode: true, promiscMode: true, ipam: FINE }),
  'a VLAN of 4095': bridge({ vlan: 4095, ipam: FINE }),
  'a text for a number': bridge({ mtu: '1400', ipam: FINE }),
  'a number for a flag': bridge({ isGateway: 1, ipam: FINE }),
  'a pool that nobody has': bridge({ ipam: { type: 'nowhere' } }),
  'a pool without ranges': bridge({ ipam: pool({}) }),
  'an empty set': bridge({ ipam: pool({ ranges: [[]] }) }),
  'a subnet with host bits': bridge({ ipam: pool({ ranges: [[{ subnet: '10.1.0.5/24' }]] }) }),
  'a subnet of one address': bridge({ ipam: pool({ ranges: [[{ subnet: '10.1.0.5/32' }]] }) }),
  'a start outside': bridge({ ipam: pool({ ranges: range({ rangeStart: '10.2.0.1' }) }) }),
  'an end outside': bridge({ ipam: pool({ ranges: range({ rangeEnd: '10.2.0.1' }) }) }),
  'a set of two families': bridge({ ipam: pool({ ranges: [[{ subnet: '10.1.0.0/24' }, { subnet: 'fd00:1::/64' }]] }) }),
  'sets that overlap': bridge({ ipam: pool({ ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: '10.1.0.0/16' }]] }) }),
  'a resolvConf that is not there': bridge({ ipam: pool({ ranges: range({}), resolvConf: '/run/nowhere' }) }),
  'an address that is no address': bridge({ ipam: pool({ ranges: [[{ subnet: '10.1.0.300/24' }]] }) }),
  'a wanted address that is the gateway': bridge({ ipam: FINE, args: { cni: { ips: ['10.1.0.1'] } } }),
  'a wanted address outside': bridge({ ipam: FINE, args: { cni: { ips: ['10.9.0.1'] } } }),
  'two wanted addresses of one set': bridge({ ipam: FINE, args: { cni: { ips: ['10.1.0.7', '10.1.0.8'] } } }),
  'a MAC address that is none': bridge({ ipam: FINE, args: { cni: { mac: '02:00:00' } } }),
  'static without an address': bridge({ ipam: { type: 'static' } }),
  'static with an address without a length': bridge({
    ipam: { type: 'static', addresses: [{ address: '10.1.0.10' }] },
  }),
  'a portmap with nothing before it': { type: 'portmap', capabilities: { portMappings: true } },
  'a ptp whose pool has no ranges': { type: 'ptp', ipam: pool({}) },
}

/** Configurations that both sides refuse; `newer` for keys that came after release 1.1.1 of the reference. */
export const REFUSED: readonly (Scene & { readonly newer?: true })[] = [
  {
    name: 'refused: another address on the bridge',
    list: list('1.0.0', bridge({ isGateway: true, ipMasq: true, ipam: FINE })),
    before: 'ip link add br0 type bridge; ip addr add 10.66.0.1/24 dev br0; ip link set br0 up',
  },
  {
    name: 'refused: a route through a gateway out of reach',
    list: list(
      '0.4.0',
      bridge({
        isGateway: true,
        ipMasq: true,
        ipam: pool({ ranges: range({}), routes: [{ dst: '10.9.0.0/16', gw: '10.200.0.1' }] }),
      }),
    ),
  },
  ...[{}, { minID: 20, maxID: 10 }].map((trunk): Scene & { newer: true } => ({
    name: `refused: a trunk of ${JSON.stringify(trunk)}`,
    newer: true,
    list: list('1.0.0', bridge({ vlanTrunk: [trunk], ipam: FINE })),
  })),
  ...Object.entries(WRONG).map(
    ([what, conf], i): Scene => ({ name: `refused: ${what}`, list: list(i % 2 ? '1.0.0' : '0.4.0', conf) }),
  ),
  {
    name: 'refused: a bridge that is a veth',
    list: list('1.0.0', bridge({ ipam: FINE })),
    before: 'ip link add br0 type veth peer name br1',
  },
  { name: 'refused: an unknown version', list: list('9.9.9', bridge({ ipam: FINE })) },
  { name: 'refused: no address to show in CNI 0.2.0', list: list('0.2.0', bridge({})) },
]
