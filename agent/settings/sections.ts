import { posix } from 'node:path'
import { isSix, networkOf } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseCidr, parseIp } from '../../lib/text/ip.ts'
import { printable } from '../../lib/text/printable.ts'
import type { FlagName } from './flags.ts'
import { prefixOf, type Readers } from './readers.ts'
import type {
  FirewallSettings,
  KubeSettings,
  NetworkSettings,
  ObjectsFrom,
  ServicesSettings,
  Settings,
  UplinkSettings,
} from './settings.ts'
import type { Given } from './sources.ts'

/**
 * The store: the one that the user set, else kube with kube-subnet-mgr, else etcd when any etcd setting is present,
 * else a folder. `pod` is the pod of the agent. Throws ValueError.
 */
export function storeOf(read: Readers, given: Given, pod: KubeSettings['pod']): Settings['store'] {
  const kind = read.one('store', word('file', 'etcd', 'kube')) ?? usualStore(read, given)
  if (read.flag('kube-subnet-mgr') && kind !== 'kube')
    read.refuse('kube-subnet-mgr', `true: want --store=kube with it, not --store=${kind}`)
  const [dir, netConf] = [path(read, 'file-store-dir'), path(read, 'net-config-path')]
  const renewMarginMs = read.number('subnet-lease-renew-margin', 1, 1439) * 60_000
  const key = read.one('etcd-keyfile', file)
  const certificate = read.one('etcd-certfile', file)
  const authority = read.one('etcd-cafile', file)
  const endpoints = read.several('etcd-endpoints', endpoint(key || certificate || authority ? 'https' : 'http'))
  const prefix = read.one('etcd-prefix', (text) => posix.normalize(text).replace(/\/$/, '')) ?? ''
  const [name, password] = [read.text('etcd-username'), read.text('etcd-password')]
  if (kind === 'file') return { kind, dir, netConf }
  if (kind === 'kube') return kubeOf(read, netConf, pod)
  if (endpoints.length === 0) read.refuse('etcd-endpoints', '"": want at least one URL')
  if (prefix === '')
    read.refuse('etcd-prefix', `${shown(read.text('etcd-prefix'))}: want a key such as /coreos.com/network`)
  if (!key !== !certificate) {
    const lonely = key ? 'etcd-keyfile' : 'etcd-certfile'
    read.refuse(lonely, `${shown(key ?? certificate)}: want etcd-keyfile and etcd-certfile, or neither`)
  }
  if (password !== '' && name === '') read.refuse('etcd-password', 'alone: want etcd-username with it')
  return {
    kind,
    endpoints,
    prefix,
    tls: { ...(key && { key }), ...(certificate && { certificate }), ...(authority && { authority }) },
    ...(name && { user: { name, password } }),
    renewMarginMs,
  }
}

function usualStore(read: Readers, given: Given): Settings['store']['kind'] {
  if (read.flag('kube-subnet-mgr')) return 'kube'
  return [...given.keys()].some((name) => name.startsWith('etcd-')) ? 'etcd' : 'file'
}

function kubeOf(read: Readers, netConf: string, pod: KubeSettings['pod']): KubeSettings {
  const [kubeconfig, server] = [read.one('kubeconfig-file', file), read.one('kube-api-url', apiServer)]
  const annotationPrefix = read.one('kube-annotation-prefix', prefixOf) ?? ''
  return {
    kind: 'kube',
    ...(kubeconfig && { kubeconfig }),
    ...(server && { server }),
    netConf,
    annotationPrefix,
    setCondition: read.flag('set-node-network-unavailable'),
    ...(pod && { pod }),
  }
}

/** Selection of the interface towards the other nodes. Throws ValueError. */
export function uplinkOf(read: Readers): UplinkSettings {
  const canReach = read.one('iface-can-reach', parseIp)
  const [v4, v6] = [read.one('public-ip', family(4)), read.one('public-ipv6', family(6))]
  return {
    interfaces: read.several('iface', (text) => text),
    patterns: read.several('iface-regex', pattern),
    ...(canReach && { canReach }),
    public: { ...(v4 && { v4 }), ...(v6 && { v6 }) },
    tunnel: read.both('tunnel-address'),
    advertise: read.both('advertise-address'),
  }
}

/** Settings of the data path and of the firewall. Throws ValueError. */
export function pathOf(read: Readers): { network: NetworkSettings; firewall: FirewallSettings } {
  return {
    network: {
      txChecksumOffload: read.one('tx-checksum-offload', word('auto', 'on', 'off')) ?? 'auto',
      blackhole: read.flag('ip-blackhole-route'),
      allowOverlap: read.flag('allow-overlap'),
      allowExtension: read.flag('allow-extension'),
      resyncMs: read.number('resync', 0, 86_400) * 1000,
      quietMs: read.number('quiet-ms', 0, 60_000),
      probeMs: read.number('probe-interval', 0, 3600) * 1000,
      fastPath: read.one('fast-path', word('auto', 'off')) ?? 'auto',
    },
    firewall: {
      masquerade: read.flag('ip-masq'),
      randomFully: !read.flag('ip-masq-fully-random-disable'),
      forward: read.flag('iptables-forward-rules'),
      nonMasquerade: read.several('non-masquerade-cidrs', parseCidr),
      replaceFlannel: read.flag('replace-flannel'),
      tunnelSources: tunnelSourcesOf(read),
    },
  }
}

const SOURCES = 'want leases, any, or a network such as 192.0.2.0/24'

function tunnelSource(text: string): Cidr | 'leases' | 'any' {
  if (text === 'any' || text === 'leases') return text
  try {
    return network(text)
  } catch (cause) {
    throw new ValueError(`${shown(text)}: ${SOURCES}`, { cause })
  }
}

function tunnelSourcesOf(read: Readers): FirewallSettings['tunnelSources'] {
  const all = read.several('tunnel-sources', tunnelSource)
  if (all.length === 0) read.refuse('tunnel-sources', `"": ${SOURCES}`)
  if (all.includes('any')) return 'any'
  return all.flatMap((one) => (one === 'leases' || one === 'any' ? [] : [one]))
}

/** The source of NetworkPolicy. Absent when it is not enforced. Throws ValueError. */
export function policyOf(read: Readers): Settings['policy'] {
  return objectsOf(read, 'network-policy')
}

/** The proxy of Services. Absent when it is off. Throws ValueError. */
export function servicesOf(read: Readers, policy: Settings['policy']): Settings['services'] {
  const objects = objectsOf(read, 'service-proxy')
  if (objects === undefined) return undefined
  if (policy && !Bun.deepEquals(policy, objects)) {
    const [own, wanted] = [read.text('service-proxy'), read.text('network-policy')]
    read.refuse('service-proxy', `${shown(own)}: want the source of network-policy, ${shown(wanted)}`)
  }
  const health = read.one('service-health-address', listening)
  const isForced = read.flag('service-proxy-force')
  const conntrack = conntrackOf(read)
  return {
    objects,
    ...(health && { health }),
    nodePortAddresses: nodePortAddressesOf(read),
    serviceCidrs: read.several('service-cidr', network),
    ...(!isForced && { conntrack }),
    clusterCidrs: read.several('cluster-cidr', network),
    masqueradeAll: read.flag('masquerade-all'),
    isForced,
    replacesKubeProxy: read.flag('replace-kube-proxy'),
  }
}

// kube-proxy takes `primary` alone, too.
function nodePortAddressesOf(read: Readers): ServicesSettings['nodePortAddresses'] {
  const all = read.several('node-port-addresses', (text) => (text === 'primary' ? ('primary' as const) : network(text)))
  const networks = all.flatMap((one) => (one === 'primary' ? [] : [one]))
  if (networks.length === all.length) return networks
  if (all.length > 1) read.refuse('node-port-addresses', `${shown(all.join(','))}: want primary alone, or networks`)
  return 'primary'
}

function conntrackOf(read: Readers): NonNullable<ServicesSettings['conntrack']> {
  const seconds = (name: FlagName) => read.one(name, duration) ?? 0
  return {
    maxPerCore: read.number('conntrack-max-per-core', 0, MOST_CONNECTIONS),
    min: read.number('conntrack-min', 0, MOST_CONNECTIONS),
    tcpEstablished: seconds('conntrack-tcp-timeout-established'),
    tcpCloseWait: seconds('conntrack-tcp-timeout-close-wait'),
    udp: seconds('conntrack-udp-timeout'),
    udpStream: seconds('conntrack-udp-timeout-stream'),
    isTcpLiberal: read.flag('conntrack-tcp-be-liberal'),
  }
}
// The kernel takes 31 bits. With the times it multiplies them by up to 1000.
const MOST_CONNECTIONS = 1_000_000_000
const MOST_SECONDS = 2_000_000

// As Go writes a duration of whole seconds.
function duration(text: string): number {
  const found = /^(?=\d)(?:(\d{1,7})h)?(?:(\d{1,7})m)?(?:(\d{1,7})s)?$/.exec(text === '0' ? '0s' : text)
  const [hours, minutes, seconds] = (found ?? []).slice(1).map((one) => Number(one ?? 0))
  const all = (hours ?? 0) * 3600 + (minutes ?? 0) * 60 + (seconds ?? 0)
  if (!found || all > MOST_SECONDS)
    throw new ValueError(`${shown(text)}: want a time such as 24h, 1h30m or 0s, ${MOST_SECONDS} s at most`)
  return all
}

function network(text: string): Cidr {
  return networkOf(parseCidr(text))
}

function objectsOf(read: Readers, name: 'network-policy' | 'service-proxy'): ObjectsFrom | undefined {
  const where = read.one(name, (text) => (text === 'kubernetes' ? text : file(text)))
  if (where === undefined) return undefined
  if (where !== 'kubernetes') return { from: 'folder', dir: where }
  const [kubeconfig, server] = [read.one('kubeconfig-file', file), read.one('kube-api-url', apiServer)]
  return { from: 'api', ...(kubeconfig && { kubeconfig }), ...(server && { server }) }
}

/** How NetworkPolicy treats what it refuses. Throws ValueError. */
export function enforcementOf(read: Readers): Settings['enforcement'] {
  const isAudit = read.flag('policy-audit')
  return {
    isLogged: isAudit || read.one('policy-log', word('on', 'off')) === 'on',
    isAudit,
    keepsEstablished: read.flag('policy-keep-established'),
  }
}

/** The configuration of BGP. Absent when it is off. Throws ValueError. */
export function bgpOf(read: Readers): Pick<Settings, 'bgp'> {
  const path = read.one('bgp-config', file)
  return path === undefined ? {} : { bgp: { file: path } }
}

/** Where spans go. Absent when they go nowhere. Throws ValueError. */
export function spansOf(read: Readers): Pick<Settings, 'spans'> {
  const endpoint = read.one('otlp-endpoint', collector)
  return endpoint === undefined ? {} : { spans: { endpoint } }
}

/** How the agent writes its log. Throws ValueError. */
export function logFormatOf(read: Readers): Settings['logFormat'] {
  return read.one('log-format', word('plain', 'text', 'json')) ?? 'plain'
}

/** Paths on the node. Throws ValueError. */
export function filesOf(read: Readers): Settings['files'] {
  return {
    subnetEnv: path(read, 'subnet-file'),
    stateDir: path(read, 'state-dir'),
    install: read.flag('install-cni'),
    pods: read.one('pods', word('bridge', 'routed')) ?? 'bridge',
    confDir: path(read, 'cni-conf-dir'),
    binDir: path(read, 'cni-bin-dir'),
    socket: path(read, 'socket'),
    policySocket: path(read, 'policy-socket'),
  }
}

/**
 * Address and port of the status server: status-address when it is set, else flanneld's healthz flags, else the
 * default. Throws ValueError.
 */
export function statusOf(read: Readers, given: Given): Settings['status'] {
  const [address, host] = [read.one('status-address', listening), read.one('healthz-ip', parseIp) ?? '0.0.0.0']
  const port = read.number('healthz-port', 0, 65_535)
  const tokenFile = read.one('status-token-file', file) ?? ''
  const status = given.has('status-address') || !given.has('healthz-port') ? address : { host, port }
  if (!status || status.port === 0) return undefined
  // Every machine that reaches the address can read what is there. So the page, names and addresses need a token.
  const isLocal = /^(127\.|::1$)/.test(status.host)
  const isRedacted = read.flag('status-redact')
  return {
    ...status,
    ...(!isLocal && { probesOnly: true as const, ...(tokenFile !== '' && { tokenFile }) }),
    ...(isRedacted && { isRedacted }),
  }
}

function path(read: Readers, name: FlagName): string {
  return read.one(name, file) ?? read.refuse(name, '"": want a path')
}

function file(text: string): string {
  if (text.includes('\0')) throw new ValueError(`${shown(text)}: want a path`)
  return text
}

function collector(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isFit = url && /^https?:$/.test(url.protocol) && url.username === '' && url.search === '' && url.hash === ''
  if (!isFit) throw new ValueError(`${shown(text)}: want a URL such as http://127.0.0.1:4318`)
  return text
}

function word<const W extends string>(...words: W[]): (text: string) => W {
  return (text) => {
    const found = words.find((one) => one === text)
    if (found === undefined) throw new ValueError(`${shown(text)}: want one of ${words.join(', ')}`)
    return found
  }
}

// Without a scheme, the existence of TLS files decides between http and https, as in etcd's own client.
function endpoint(scheme: 'http' | 'https'): (text: string) => string {
  return (text) => {
    const url = URL.parse(text.includes('://') ? text : `${scheme}://${text}`)
    if (url?.username || url?.password)
      throw new ValueError(`"${url.protocol}//…@${url.host}": want the user in etcd-username and etcd-password`)
    if (!url || !/^https?:$/.test(url.protocol) || url.pathname !== '/' || url.search || url.hash)
      throw new ValueError(`${shown(text)}: want a URL such as https://10.0.0.1:2379`)
    return url.origin
  }
}

function apiServer(text: string): string {
  const url = URL.parse(text)
  if (url?.username || url?.password)
    throw new ValueError(`"${url.protocol}//…@${url.host}": want the user in a kubeconfig`)
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash)
    throw new ValueError(`${shown(text)}: want a URL such as https://10.0.0.1:6443`)
  return text
}

function family(wanted: 4 | 6): (text: string) => Ip {
  return (text) => {
    const ip = parseIp(text)
    if (isSix(ip) !== (wanted === 6)) throw new ValueError(`${shown(text)}: want an IPv${wanted} address`)
    return ip
  }
}

// Go writes the flag for any case, (?i), in front of the pattern. JavaScript takes it as a second argument.
function pattern(text: string): RegExp {
  const [, flags = '', rest = ''] = /^(?:\(\?(i)\))?([\s\S]*)$/.exec(text) ?? []
  try {
    return new RegExp(rest, flags)
  } catch (cause) {
    const why = printable((cause as Error).message.slice(0, 200))
    throw new ValueError(`${shown(text)}: want a regular expression: ${why}`, { cause })
  }
}

function listening(text: string): { host: string; port: number } | undefined {
  if (text === 'off') return undefined
  const [, six, four, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? []
  if (port === undefined || Number(port) < 1 || Number(port) > 65_535)
    throw new ValueError(`${shown(text)}: want off, or an address and a port such as 127.0.0.1:9469 or [::1]:9469`)
  return { host: parseIp(six ?? four), port: Number(port) }
}
