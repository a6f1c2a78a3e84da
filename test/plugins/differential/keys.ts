import { WORLD } from '../../support/packets.ts'
import type { Conf, Scene } from './list.ts'

/** What a generated scene consists of: for each key one of its values. */
export type Choice = { readonly [key in keyof typeof KEYS]: (typeof KEYS)[key][number] }

/**
 * All keys that are tried with each other, and their values; the first is what a scene without the key has. `+` marks
 * what came after release 1.1.1 of the reference.
 */
export const KEYS = {
  plugin: ['bridge', 'ptp', 'loopback'],
  cniVersion: ['1.0.0', '0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.1.0+'],
  gateway: ['none', 'isGateway', 'isDefaultGateway'],
  ipMasq: ['off', 'on', 'iptables+', 'nftables+'],
  port: ['plain', 'hairpinMode', 'promiscMode', 'portIsolation+', 'macspoofchk'],
  mtu: ['none', '1400', '9000'],
  bridge: ['absent', 'there', 'there with another address', 'there with another MTU', 'unnamed'],
  dad: ['off', 'enabledad+'],
  mac: ['none', 'CNI_ARGS', 'args.cni', 'runtimeConfig', 'all three'],
  ipam: [
    'four',
    'six',
    'both',
    'two of four',
    'two ranges',
    'bounds',
    'old style',
    'old style and ranges',
    'static',
    'none',
  ],
  ipamDns: ['none', 'resolvConf'],
  dns: ['none', 'all', 'empty list', 'domain'],
  routes: ['none', 'default', 'via the gateway', 'via another', 'attributes+', 'table+', 'both families'],
  ip: ['any', 'CNI_ARGS', 'args.cni', 'runtimeConfig', 'ipRanges'],
  args: ['none', 'ignored'],
  ports: ['no portmap', 'none', 'tcp', 'udp', 'several', 'hostIP any', 'hostIP 4', 'hostIP 6'],
  portmap: ['plain', 'snat off', 'masqAll+', 'mark bit', 'iptables+', 'nftables+'],
  ifname: ['eth0', 'net1'],
  spelling: ['usual', 'other case'],
  del: ['live', 'empty', 'gone'],
} as const

const NAMES = Object.keys(KEYS) as (keyof Choice)[]
/** The keys that say something to loopback. */
export const OF_LOOPBACK: readonly (keyof Choice)[] = ['plugin', 'cniVersion', 'ifname', 'spelling', 'del']

/** Whether these keys say something together. */
export function makesSense(of: Choice): boolean {
  const usual = (...keys: (keyof Choice)[]) => keys.every((key) => of[key] === KEYS[key][0])
  if (of.plugin === 'loopback') return NAMES.every((key) => OF_LOOPBACK.includes(key) || usual(key))
  if (of.plugin === 'ptp' && !(usual('gateway', 'port', 'bridge', 'dad', 'mac') && of.ipam !== 'none')) return false
  if (of.ipam === 'none' && !usual('ipMasq', 'ipamDns', 'routes', 'ip', 'ports', 'portmap', 'dad')) return false
  if ((of.ports === 'no portmap' || of.ports === 'none') && !usual('portmap')) return false
  if (of.ports !== 'no portmap' && of.ports !== 'none' && /^0\.[12]\./.test(of.cniVersion)) return false
  if (of.bridge === 'there with another address' && of.gateway === 'none') return false
  if (of.dad !== 'off' && !['six', 'both', 'static'].includes(of.ipam)) return false
  // Of CNI_ARGS each plugin knows its own; a default route there may be only once.
  if ((of.mac === 'CNI_ARGS' || of.mac === 'all three' || of.ip === 'CNI_ARGS') && of.args !== 'ignored') return false
  if (of.gateway === 'isDefaultGateway' && (of.routes === 'default' || of.routes === 'both families')) return false
  if (of.ip === 'ipRanges' && of.ipam === 'two of four') return false
  if (of.ipam === 'static' && !(usual('ipamDns', 'spelling') && of.ip !== 'ipRanges')) return false
  return true
}

const MACS = {
  a: ['02:00:00:00:0a:01', '02:00:00:00:0a:02', '02:00:00:00:0a:03'],
  b: ['02:00:00:00:0b:01', '02:00:00:00:0b:02', '02:00:00:00:0b:03'],
} as const

/** The scene that a choice of values describes. */
export function sceneOf(of: Choice): Scene {
  const version = of.cniVersion.replace('+', '')
  const asked = (way: string) => (of.mac === way || of.mac === 'all three' ? way : undefined)
  const first: Conf = {
    type: of.plugin,
    ...(of.plugin === 'bridge' ? bridgeKeys(of) : {}),
    ...(of.ipMasq === 'off'
      ? {}
      : { ipMasq: true, ...(of.ipMasq === 'on' ? {} : { ipMasqBackend: of.ipMasq.replace('+', '') }) }),
    ...(of.mtu === 'none' ? {} : { mtu: Number(of.mtu) }),
    ...(of.dns === 'none' ? {} : { dns: DNS[of.dns] }),
    ...(of.ipam === 'none' || of.plugin === 'loopback' ? {} : { ipam: pool(of, 'a') }),
    capabilities: { mac: true, ips: true, ipRanges: true },
  }
  const portmap: Conf[] =
    of.ports === 'no portmap' ? [] : [{ type: 'portmap', capabilities: { portMappings: true }, ...PORTMAP[of.portmap] }]
  const both = <T>(each: (pod: 'a' | 'b') => T) => ({ a: each('a'), b: each('b') })
  return {
    name: Object.entries(of)
      .flatMap(([key, value]) =>
        value === KEYS[key as keyof Choice][0] && key !== 'plugin' ? [] : `${key} ${value.replace('+', '')}`,
      )
      .join(', '),
    list: {
      cniVersion: version,
      name: 'net',
      plugins: [first, ...portmap].map((conf) => (of.spelling === 'usual' ? conf : inOtherCase(conf))),
    },
    ifname: of.ifname,
    del: of.del,
    ...(BEFORE[of.bridge] === undefined ? {} : { before: BEFORE[of.bridge] as string }),
    args: both((pod) =>
      [
        ...(of.args === 'ignored' ? ['IgnoreUnknown=1', 'K8S_POD_NAME=web'] : []),
        ...(asked('CNI_ARGS') ? [`MAC=${MACS[pod][0]}`] : []),
        ...(of.ip === 'CNI_ARGS' ? [`IP=${wanted(of, pod)[0]}`] : []),
      ].join(';'),
    ),
    more: both((pod) => {
      const cni = {
        ...(asked('args.cni') ? { mac: MACS[pod][1] } : {}),
        ...(of.ip === 'args.cni' ? { ips: wanted(of, pod) } : {}),
      }
      return {
        ...(Object.keys(cni).length > 0 ? { args: { cni } } : {}),
        ...(of.ipam === 'static' ? { ipam: pool(of, pod) } : {}),
      }
    }),
    caps: both((pod) => ({
      ...(asked('runtimeConfig') ? { mac: MACS[pod][2] } : {}),
      ...(of.ip === 'runtimeConfig' ? { ips: wanted(of, pod) } : {}),
      ...(of.ip === 'ipRanges' ? { ipRanges: [[{ subnet: '10.7.0.0/24' }]] } : {}),
      ...(PORTS[of.ports]
        ? {
            portMappings: PORTS[of.ports]?.map((port) => ({
              ...port,
              hostPort: port.hostPort + (pod === 'a' ? 0 : 1000),
            })),
          }
        : {}),
    })),
  }
}

function bridgeKeys(of: Choice): object {
  return {
    ...(of.bridge === 'unnamed' ? {} : { bridge: 'br0' }),
    ...(of.bridge === 'there with another address' ? { forceAddress: true } : {}),
    ...(of.gateway === 'none' ? {} : { [of.gateway]: true }),
    ...(of.port === 'plain' ? {} : { [of.port.replace('+', '')]: true }),
    ...(of.dad === 'off' ? {} : { enabledad: true }),
  }
}

const four = { subnet: '10.1.0.0/24' }
const six = { subnet: 'fd00:1::/64' }
const POOLS: Readonly<Record<Choice['ipam'], object>> = {
  four: { ranges: [[four]] },
  six: { ranges: [[six]] },
  both: { ranges: [[four], [six]] },
  'two of four': { ranges: [[four], [{ subnet: '10.2.0.0/24' }]] },
  'two ranges': { ranges: [[{ ...four, rangeStart: '10.1.0.9', rangeEnd: '10.1.0.9' }, { subnet: '10.3.0.0/24' }]] },
  bounds: { ranges: [[{ ...four, rangeStart: '10.1.0.20', rangeEnd: '10.1.0.40', gateway: '10.1.0.21' }]] },
  'old style': { ...four, rangeStart: '10.1.0.100', gateway: '10.1.0.99' },
  'old style and ranges': { ...four, ranges: [[six]] },
  static: {},
  none: {},
}
const ROUTES: Readonly<Record<Choice['routes'], readonly object[] | undefined>> = {
  none: undefined,
  default: [{ dst: '0.0.0.0/0' }],
  'via the gateway': [{ dst: '192.0.2.0/24', gw: '10.1.0.1' }],
  'via another': [{ dst: '172.30.0.0/16', gw: '10.1.0.77' }],
  'attributes+': [{ dst: '0.0.0.0/0', mtu: 1300, advmss: 1200, priority: 50 }],
  'table+': [{ dst: '172.31.0.0/16', table: 100 }],
  'both families': [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '2001:db8:9::/48' }],
}
const DNS: Readonly<Record<Choice['dns'], object | undefined>> = {
  none: undefined,
  all: { nameservers: ['10.0.0.1', 'fd00::1'], domain: 'a.test', search: ['b.test', 'c.test'], options: ['ndots:5'] },
  'empty list': { search: [] },
  domain: { domain: 'd.test' },
}
const PORTMAP: Readonly<Record<Choice['portmap'], object>> = {
  plain: {},
  'snat off': { snat: false },
  'masqAll+': { masqAll: true },
  'mark bit': { markMasqBit: 5 },
  'iptables+': { backend: 'iptables' },
  'nftables+': { backend: 'nftables' },
}
const tcp = { hostPort: 8080, containerPort: 80, protocol: 'tcp' }
const udp = { hostPort: 5353, containerPort: 53, protocol: 'udp' }
const PORTS: Readonly<Record<Choice['ports'], readonly { hostPort: number }[] | undefined>> = {
  'no portmap': undefined,
  none: undefined,
  tcp: [tcp],
  udp: [udp],
  several: [tcp, udp, { ...tcp, hostPort: 8081 }, { ...tcp, hostPort: 9090, containerPort: 90 }],
  'hostIP any': [
    { ...tcp, hostIP: '0.0.0.0' },
    { ...tcp, hostIP: '::' },
  ] as never,
  'hostIP 4': [{ ...tcp, hostIP: WORLD.node4 }, udp] as never,
  'hostIP 6': [{ ...tcp, hostIP: WORLD.node6 }, udp] as never,
}
const BEFORE: Readonly<Record<Choice['bridge'], string | undefined>> = {
  absent: undefined,
  unnamed: undefined,
  there: 'ip link add br0 type bridge; ip link set br0 up',
  'there with another address': 'ip link add br0 type bridge; ip addr add 10.66.0.1/24 dev br0; ip link set br0 up',
  'there with another MTU': 'ip link add br0 mtu 1300 type bridge',
}

function pool(of: Choice, pod: 'a' | 'b'): object {
  const routes = ROUTES[of.routes] ? { routes: ROUTES[of.routes] } : {}
  const last = pod === 'a' ? 10 : 11
  if (of.ipam === 'static')
    return {
      type: 'static',
      addresses: [{ address: `10.1.0.${last}/24`, gateway: '10.1.0.1' }, { address: `fd00:1::${last}/64` }],
      dns: { nameservers: ['10.1.0.1'] },
      ...routes,
    }
  return {
    type: 'host-local',
    ...POOLS[of.ipam],
    ...routes,
    ...(of.ipamDns === 'none' ? {} : { resolvConf: '/run/beside-resolv.conf' }),
  }
}

// One address that the pool can give, for each family that it has.
function wanted(of: Choice, pod: 'a' | 'b'): string[] {
  const last = pod === 'a' ? 30 : 31
  const [short, long] = of.ipam === 'static' ? ['/24', '/64'] : ['', '']
  const four = `10.1.0.${of.ipam === 'old style' ? 100 + last : of.ipam === 'two ranges' ? 9 : last}${short}`
  return [
    ...(of.ipam === 'six' ? [] : [four]),
    ...(['six', 'both', 'old style and ranges', 'static'].includes(of.ipam) ? [`fd00:1::${last}${long}`] : []),
  ]
}

// Go's decoder takes keys in any case; what libcni itself reads is left as it is.
function inOtherCase(conf: Conf): Conf {
  const other = (value: unknown): unknown =>
    Array.isArray(value)
      ? value.map(other)
      : typeof value === 'object' && value !== null
        ? Object.fromEntries(
            Object.entries(value).map(([key, one]) => [key.charAt(0).toUpperCase() + key.slice(1), other(one)]),
          )
        : value
  const { type, capabilities, ...rest } = conf
  return { type, ...(capabilities ? { capabilities } : {}), ...(other(rest) as object) }
}
