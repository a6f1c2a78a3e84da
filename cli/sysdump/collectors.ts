import { statSync } from 'node:fs'
import { accessOf } from '../../agent/cluster/access.ts'
import { Api } from '../../agent/cluster/api.ts'
import { KINDS, type ObjectKind } from '../../agent/cluster/kinds.ts'
import { servedPath } from '../../agent/cluster/served.ts'
import { examine } from '../../agent/doctor/doctor.ts'
import { NotRead } from '../../agent/doctor/facts/facts.ts'
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { jsonOf } from '../../agent/doctor/facts/tools.ts'
import { dumpElements } from '../../agent/kernel/element-dump.ts'
import { ENTRIES } from '../../lib/journal/shared.ts'
import { has, run } from '../../lib/os/exec.ts'
import { hasIpsec } from '../../lib/os/ipsec.ts'
import { setNames } from '../../lib/os/nftables.ts'
import { listFiles, readRegular, readText } from '../../lib/os/reading.ts'
import { printable } from '../../lib/text/printable.ts'
import { podLogs } from './pod-logs.ts'
import { podStates } from './pods.ts'
import { SECTION } from './redactor.ts'
import { outputOf } from './tool.ts'

/** What the collectors know of the node. */
export interface Scene {
  /** How far back logs go, in seconds. */
  readonly since: number
  readonly socket: string
  readonly subnetFile: string
  readonly confDir: string
  /** The node's name in the cluster. */
  readonly node: string
  /** The command lines of the agents on this node. */
  readonly argvs: readonly (readonly string[])[]
  /** The kubeconfig. Without one: the service account of the pod. */
  readonly kubeconfig: string | undefined
  /** The version of plumb. */
  readonly version: string
  /** The facts of the doctor. They are read once. */
  facts(): Promise<Facts>
}
/** One file of the archive, and how it is got. */
export interface Collector {
  /** Its name in the archive. */
  readonly file: string
  /** It begins this long after the others, in milliseconds. */
  readonly delayMs?: number
  /** Throws, or rejects, when it cannot be had. */
  get(scene: Scene, signal: AbortSignal): string | Promise<string>
}

/** The most of one file, in bytes. */
const LARGEST = 8_388_608
/** Files of a folder, and bytes of each, that are read. */
const [MOST_FILES, LARGEST_FILE] = [2000, 262_144]
/** Links whose filters and features are read. */
const MOST_LINKS = 50
/** Between the two readings of the metrics, so that one sees what grows. */
const AGAIN_MS = 10_000
const LOG_LINES = '20000'
const UNITS = ['plumb-agent', 'plumb-dhcp', 'kubelet', 'containerd', 'crio', 'docker', 'k3s', 'k3s-agent']
const PROC = ['modules', 'meminfo', 'loadavg', 'uptime', 'version', 'mounts']
const TABLES = ['plumb', 'plumb_agent', 'plumb_tunnels', 'plumb_policy', 'plumb_services', 'plumb_services_sources']
const PROC_NET = ['snmp', 'snmp6', 'netstat', 'softnet_stat', 'sockstat', 'dev', 'stat/nf_conntrack', 'stat/rt_cache']

/** All collectors. The order is that of the archive. */
export const COLLECTORS: readonly Collector[] = [
  { file: 'plumb/version.txt', get: ({ version }) => `plumb ${version}, bun ${Bun.version}\n` },
  ofAgent('plumb/status.json', '/status'),
  ofAgent('plumb/services.json', '/services'),
  ofAgent('plumb/policy.json', '/policy'),
  ofAgent('plumb/metrics-1.txt', '/metrics'),
  { ...ofAgent('plumb/metrics-2.txt', '/metrics'), delayMs: AGAIN_MS },
  { file: 'plumb/doctor.json', get: async ({ facts }) => JSON.stringify(examine(await facts())) },
  { file: 'plumb/facts.json', get: async ({ facts }) => factsText(await facts()) },
  { file: 'plumb/settings.json', get: ({ argvs }) => JSON.stringify({ commandLines: argvs }) },
  { file: 'plumb/etc.txt', get: () => folderText('/etc/plumb') },
  { file: 'plumb/run.txt', get: () => namesText(['/run/plumb', '/run/cni/plumb', '/var/lib/plumb']) },

  { file: 'cni/networks.txt', get: ({ confDir }) => folderText(confDir) },
  { file: 'cni/journal.txt', get: () => folderText(ENTRIES) },
  { file: 'cni/reservations.txt', get: reservations },
  { file: 'cni/subnet-env.txt', get: ({ subnetFile }) => present(readRegular(subnetFile), subnetFile) },

  tool('net/links.json', 'ip', '-json', '-details', '-statistics', 'link'),
  tool('net/addresses.json', 'ip', '-json', 'address'),
  tool('net/routes4.json', 'ip', '-4', '-json', 'route', 'show', 'table', 'all'),
  tool('net/routes6.json', 'ip', '-6', '-json', 'route', 'show', 'table', 'all'),
  tool('net/rules4.json', 'ip', '-4', '-json', 'rule'),
  tool('net/rules6.json', 'ip', '-6', '-json', 'rule'),
  tool('net/neighbours.json', 'ip', '-json', '-statistics', 'neigh'),
  tool('net/nexthops.json', 'ip', '-json', 'nexthop'),
  tool('net/namespaces.json', 'ip', '-json', 'netns'),
  tool('net/fdb.json', 'bridge', '-json', 'fdb'),
  tool('net/bridge-ports.json', 'bridge', '-json', '-details', 'link'),
  tool('net/bridge-vlans.json', 'bridge', '-json', 'vlan'),
  tool('net/qdiscs.txt', 'tc', '-statistics', 'qdisc'),
  { file: 'net/filters.txt', get: (_, signal) => perLink(filtered(), FILTERS, signal) },
  { file: 'net/offloads.txt', get: (_, signal) => perLink(cards(), OFFLOADS, signal) },
  ipsec('net/xfrm-policies.txt', 'ip', 'xfrm', 'policy'),
  // Without the keys.
  ipsec('net/xfrm-states.txt', 'ip', 'xfrm', 'state', 'list', 'nokeys'),
  // Without the elements of sets and maps: 50,000 take seconds and 100 MB.
  tool('net/nft.txt', 'nft', '--handle', '--terse', 'list', 'ruleset'),
  { file: 'net/elements.txt', get: elementCounts },
  tool('net/iptables.txt', 'iptables-nft-save', '--counters'),
  tool('net/ip6tables.txt', 'ip6tables-nft-save', '--counters'),
  legacy('net/iptables-legacy.txt', 'iptables-legacy-save', 'ip_tables_names'),
  legacy('net/ip6tables-legacy.txt', 'ip6tables-legacy-save', 'ip6_tables_names'),
  tool('net/sockets.txt', 'ss', '--tcp', '--udp', '--raw', '--all', '--numeric', '--processes'),
  tool('net/sockets-summary.txt', 'ss', '--summary'),
  tool('net/conntrack-counters.txt', 'conntrack', '--stats'),
  {
    file: 'net/conntrack.txt',
    get: (_, signal) => outputOf(['conntrack', '--dump'], { bytes: LARGEST, lines: 2000, signal }),
  },
  tool('net/sysctls.txt', 'sysctl', '--all', '--pattern', '^net\\.'),
  tool('net/wireguard.txt', 'wg', 'show'),
  { file: 'net/counters.txt', get: () => filesText(PROC_NET.map((name) => `/proc/thread-self/net/${name}`)) },

  { file: 'pods/namespaces.txt', get: () => podStates() },

  { file: 'node/proc.txt', get: () => filesText(PROC.map((name) => `/proc/${name}`)).replace(/ 0x[\da-f]{8,}/g, '') },
  { file: 'node/os-release.txt', get: () => present(readText('/etc/os-release'), '/etc/os-release') },
  tool('node/disks.txt', 'df', '-k'),
  {
    file: 'node/dmesg.txt',
    async get(_, signal) {
      const text = await outputOf(['dmesg'], { bytes: LARGEST, signal })
      return text.split('\n').slice(-501).join('\n')
    },
  },
  ...UNITS.map(logOf),
  { file: 'log/pods.txt', get: ({ since }) => podLogs(since) },

  ...Object.values(KINDS).map((kind) =>
    // Of the pods only those of this node.
    listOf(`cluster/${kind.manifest}.json`, kind, ({ node }) => ({
      ...kind.query,
      ...(kind.manifest === 'Pod' && { fieldSelector: `spec.nodeName=${node}` }),
    })),
  ),
  listOf('cluster/Event.json', { path: '/api/v1/events' }, () => ({})),
]

function ofAgent(file: string, path: string): Collector {
  return {
    file,
    async get({ socket }, signal) {
      const answer = await fetch(`http://agent${path}`, { unix: socket, signal })
      const text = await answer.text()
      if (!answer.ok) throw new Error(`The agent at ${socket} answers ${answer.status}: ${text.trim()}`)
      return text
    },
  }
}

function tool(file: string, ...argv: readonly string[]): Collector {
  return { file, get: (_, signal) => outputOf(argv, { bytes: LARGEST, signal }) }
}

// How many elements the sets and maps of plumb's tables have. The kernel is asked, not nft.
function elementCounts(): string {
  const rows = TABLES.flatMap((table) =>
    setNames('inet', table).map((set) => `${table} ${set} ${dumpElements(table, set).size}`),
  )
  return `${rows.join('\n')}\n`
}

// The tool would load the modules of the old iptables into a kernel that has none of its tables.
function legacy(file: string, name: string, tables: string): Collector {
  return {
    file,
    get: async (_, signal) =>
      (readText(`/proc/thread-self/net/${tables}`) ?? '') === ''
        ? 'The kernel has no table of the old iptables.\n'
        : outputOf([name, '-c'], { bytes: LARGEST, signal }),
  }
}

// The tool would load the module of IPsec into a kernel that has none.
function ipsec(file: string, ...argv: readonly string[]): Collector {
  return {
    file,
    get: async (_, signal) =>
      hasIpsec() ? outputOf(argv, { bytes: LARGEST, signal }) : 'The kernel takes no policies of IPsec.\n',
  }
}

type Commands = (link: string) => readonly (readonly string[])[]
const FILTERS: Commands = (link) =>
  ['ingress', 'egress'].map((way) => ['tc', '-statistics', 'filter', 'show', 'dev', link, way])
const OFFLOADS: Commands = (link) => [['ethtool', '--show-features', link]]

// The links whose packets a filter may meet.
async function filtered(): Promise<string[]> {
  const rows = (await jsonOf(run, ['tc', '-json', 'qdisc', 'show'])) as { kind: string; dev?: string }[]
  return rows.flatMap(({ kind, dev }) => ((kind === 'clsact' || kind === 'ingress') && dev !== undefined ? [dev] : []))
}

// Cards and tunnels: the links of pods are as many as the pods.
async function cards(): Promise<string[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', 'link'])) as { ifname: string; linkinfo?: LinkInfo }[]
  return rows.flatMap(({ ifname, linkinfo }) => (linkinfo?.info_kind === 'veth' || ifname === 'lo' ? [] : [ifname]))
}
interface LinkInfo {
  readonly info_kind?: string
}

async function perLink(links: Promise<readonly string[]>, commands: Commands, signal: AbortSignal): Promise<string> {
  const texts: string[] = []
  for (const link of (await links).slice(0, MOST_LINKS))
    for (const argv of commands(link))
      texts.push(`${SECTION}${argv.join(' ')}\n${await outputOf(argv, { bytes: LARGEST_FILE, signal })}`)
  return `${texts.join('\n')}\n`
}

function logOf(unit: string): Collector {
  return {
    file: `log/${unit}.txt`,
    get({ since }, signal) {
      if (!has('journalctl')) throw new Error('Cannot read the journal of systemd: journalctl is not installed')
      const argv = ['journalctl', '--no-pager', '--quiet', '--output=short-iso-precise', `--lines=${LOG_LINES}`]
      return outputOf([...argv, `--since=-${since}s`, `--unit=${unit}`], { bytes: LARGEST, signal })
    },
  }
}

function listOf(
  file: string,
  { path, custom }: Pick<ObjectKind<unknown>, 'path' | 'custom'>,
  query: (scene: Scene) => Readonly<Record<string, string | number | boolean | undefined>>,
): Collector {
  return {
    file,
    async get(scene, signal) {
      const { kubeconfig, version } = scene
      const api = new Api(accessOf(kubeconfig === undefined ? {} : { kubeconfig }), `plumb-sysdump/${version}`)
      const items: string[] = []
      let size = 0
      const list = custom ? await servedPath(api, custom, false, signal) : path
      for await (const page of api.list(list, query(scene), signal))
        for (const item of page.items) {
          const text = JSON.stringify(item)
          size += text.length
          if (size > LARGEST) return listed([...items, '"more is left out"'])
          items.push(text)
        }
      return listed(items)
    },
  }
}

// An object a line.
function listed(items: readonly string[]): string {
  return `[\n${items.join(',\n')}\n]\n`
}

function factsText(facts: Facts): string {
  const all = Object.keys(facts).map((name) => {
    try {
      return [name, facts[name as keyof Facts]]
    } catch (cause) {
      if (!(cause instanceof NotRead)) throw cause
      return [name, { notRead: cause.message }]
    }
  })
  return JSON.stringify(Object.fromEntries(all), (_, value: unknown) => {
    if (value instanceof Map) return Object.fromEntries(value)
    if (value instanceof Set) return [...value]
    return typeof value === 'bigint' ? `${value}` : value
  })
}

function present(text: string | undefined, path: string): string {
  if (text !== undefined) return text
  throw new Error(`Cannot read ${path}: there is no such file`)
}

function folderText(dir: string): string {
  return filesText(
    listFiles(dir)
      .sort()
      .slice(0, MOST_FILES)
      .map((name) => `${dir}/${name}`),
  )
}

// Each file below its name. Of a hostile name the signs that would end the line are escaped.
function filesText(paths: readonly string[]): string {
  let size = 0
  const texts = paths.map((path) => {
    const text = size > LARGEST ? '(left out: the folder has too much)' : contentOf(path)
    size += text.length
    return `${SECTION}${printable(path)}\n${text}${text.endsWith('\n') ? '' : '\n'}`
  })
  return texts.join('\n')
}

function contentOf(path: string): string {
  try {
    if (!statSync(path).isFile()) return '(no file)'
    return (readText(path) ?? '(gone)').slice(0, LARGEST_FILE)
  } catch (cause) {
    return `(cannot be read: ${printable((cause as Error).message)})`
  }
}

function namesText(dirs: readonly string[]): string {
  return dirs.map((dir) => `${SECTION}${dir}\n${listFiles(dir).sort().map(printable).join('\n')}\n`).join('\n')
}

// host-local's files: the address is the name, the content the owner.
function reservations(): string {
  const dir = '/var/lib/cni/networks'
  return listFiles(dir)
    .sort()
    .map((network) => folderText(`${dir}/${network}`))
    .join('\n')
}
