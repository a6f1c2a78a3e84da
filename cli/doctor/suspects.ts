// What stands on the way of packets and is not plumb's: rules, routes, neighbours and settings of a namespace that differ
// from what plumb and the kernel make. The doctor reads them only when packets are lost, and names those that are about
// the lost packets.
import { jsonOf } from '../../agent/doctor/facts/tools.ts'
import { shellWord } from '../../agent/doctor/shell.ts'
import { PROTO } from '../../agent/kernel/marks.ts'
import { has, run as runIn } from '../../lib/os/exec.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseCidr } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'

/** Something on the way of the packets. */
export interface Suspect {
  /** What it is, with its name or text: a clause. */
  readonly text: string
  /** The command that undoes it alone. Absent where it is not known. */
  readonly undo?: string
}
/** The packets that are lost, and the namespace that is looked at. */
export interface Scope {
  readonly ns: Netns
  /** The addresses at both ends of lost packets, those of tunnels among them. */
  readonly ips: readonly Ip[]
  /** The links on the way in this namespace. */
  readonly links: readonly string[]
  /** Ports of the bridge of pods. */
  readonly ports: readonly string[]
  /** UDP ports of tunnels, and ports that were asked for. */
  readonly portNumbers: readonly number[]
  /** The smallest MTU that the links need, in bytes. */
  readonly mtu: number
  /** MAC addresses by address, where plumb knows them. */
  readonly macs: ReadonlyMap<Ip, string>
  /** The links of pods, by their addresses. */
  readonly ways: ReadonlyMap<Ip, string>
  /** The addresses of the node, which are the gateways of its pods. Empty for the node itself. */
  readonly gateways: readonly Ip[]
  /** It is a pod's. */
  readonly isPod: boolean
}

type Reader = (run: Run, scope: Scope) => Promise<Suspect[]>

/** Reads all suspects of a namespace. A kind that cannot be read is left out, and named in `unread`. */
export async function readSuspects(scope: Scope): Promise<{ readonly suspects: Suspect[]; readonly unread: string[] }> {
  const run: Run = (argv, stdin) => runIn(argv, stdin, scope.ns)
  const suspects: Suspect[] = []
  const unread: string[] = []
  const all = await Promise.allSettled(Object.values(READERS).map((read) => read(run, scope)))
  for (const [i, one] of all.entries()) {
    if (one.status === 'fulfilled') suspects.push(...one.value)
    else unread.push(`${Object.keys(READERS)[i]}: ${(one.reason as Error).message}`)
  }
  return { suspects, unread }
}

const READERS: Readonly<Record<string, Reader>> = {
  links: readLinks,
  nft: readNft,
  'the old iptables': readLegacy,
  'rules of routing': readRules,
  routes: readRoutes,
  neighbours: readNeighbours,
  'forwarding entries': readForwarding,
  'ports of the bridge': readPorts,
  'queues and filters of tc': readTc,
  xfrm: readXfrm,
  settings: readSettings,
}

// Whether a text that selects packets may be about the lost ones: each address in it is one of theirs.
function isAbout(text: string, { ips, portNumbers }: Scope): boolean {
  for (const [, number] of text.matchAll(/\b(?:dport|sport|--dport|--sport)\s+(?:!= )?(\d+)/g))
    if (!portNumbers.includes(Number(number))) return false
  for (const [found] of text.matchAll(
    /\b\d+\.\d+\.\d+\.\d+(?:\/\d+)?|\b[0-9a-f]*:[0-9a-f:]*:[0-9a-f.:]*(?:\/\d+)?/gi,
  )) {
    if (/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(found)) continue
    if (!ips.some((ip) => isIn(ip, found))) return false
  }
  const families = new Set(ips.map((ip) => (isSix(ip) ? 6 : 4)))
  if (/nfproto ipv4|ether type ip\b|protocol ip\b|\bip (saddr|daddr|ttl)/.test(text) && !families.has(4)) return false
  if (/nfproto ipv6|ether type ip6|protocol ipv6|\bip6 /.test(text) && !families.has(6)) return false
  return true
}

function isIn(ip: Ip, text: string): boolean {
  try {
    const cidr = parseCidr(text.includes('/') ? text : `${text}/${text.includes(':') ? 128 : 32}`)
    return isSix(ip) === text.includes(':') && contains(cidr, ip)
  } catch {
    return false
  }
}

interface LinkRow {
  readonly ifname: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly master?: string
  readonly linkinfo?: { readonly info_kind?: string }
  readonly addr_info?: readonly { readonly local?: string; readonly scope?: string }[]
}

async function readLinks(run: Run, { links, mtu, ports, isPod, ips }: Scope): Promise<Suspect[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', 'addr', 'show'])) as LinkRow[]
  const found: Suspect[] = []
  for (const name of new Set([...links, ...ports])) {
    const row = rows.find(({ ifname }) => ifname === name)
    if (!row) {
      found.push({ text: `the link ${name} is not there` })
      continue
    }
    if (!row.flags.includes('UP')) found.push({ text: `the link ${name} is down`, undo: `ip link set dev ${name} up` })
    if (row.mtu < mtu)
      found.push({
        text: `the link ${name} has an MTU of ${row.mtu} bytes, less than ${mtu}`,
        undo: `ip link set dev ${name} mtu ${mtu}`,
      })
  }
  const others = rows.filter(
    ({ ifname, addr_info = [] }) =>
      !isPod &&
      addr_info.some(
        ({ local, scope }) =>
          scope !== 'link' && local !== undefined && ifname === 'lo' && local !== '127.0.0.1' && local !== '::1',
      ),
  )
  for (const { ifname, addr_info = [] } of others)
    for (const { local = '' } of addr_info)
      if (ips.includes(local as Ip))
        found.push({
          text: `the link ${ifname} of this node has the address ${local}`,
          undo: `ip addr del ${local}/${local.includes(':') ? 128 : 32} dev ${ifname}`,
        })
  return found
}

/** What a rule does that can lose or change a packet. */
const HARMFUL = /\b(drop|reject|queue|notrack|masquerade|redirect|dnat|snat)\b|\b(ttl|hoplimit) set\b|meta mark set/

// The rules of nft that are not plumb's, with their handles.
async function readNft(run: Run, scope: Scope): Promise<Suspect[]> {
  if (!has('nft')) return []
  const { status, stdout, stderr } = await run(['nft', '-a', '-s', '-t', 'list', 'ruleset'], '')
  if (status !== 0) throw new Error(stderr.split('\n', 1)[0] || `nft ended with status ${status}`)
  const found: Suspect[] = []
  let [table, chain, hook] = ['', '', '']
  for (const line of stdout.split('\n')) {
    const text = line.trim()
    table = /^table (\S+ \S+) \{/.exec(text)?.[1] ?? table
    const named = /^chain (\S+) \{/.exec(text)?.[1]
    if (named !== undefined) [chain, hook] = [named, '']
    hook = /\bhook (.+?) priority/.exec(text)?.[1] ?? hook
    if (/^\w+ plumb([-_]|$)/.test(table) || isUsual(table, chain)) continue
    if (/policy drop;/.test(text))
      found.push({ text: `the chain ${table} ${chain} at hook ${hook} drops what no rule of it accepts` })
    const [, rule = '', handle] = /^(.*) # handle (\d+)$/.exec(text) ?? []
    if (handle === undefined || named !== undefined || !HARMFUL.test(rule) || !isAbout(rule, scope)) continue
    found.push({
      text: `the rule "${rule}" in the chain ${table} ${chain}${hook === '' ? '' : ` at hook ${hook}`}`,
      undo: `nft delete rule ${table} ${chain} handle ${handle}`,
    })
  }
  return found
}

// Chains of programs that translate for pods, as plumb does.
function isUsual(table: string, chain: string): boolean {
  return /^(KUBE|CNI|FLANNEL|DOCKER)-/.test(chain) || /\bkube-proxy\b/.test(table)
}

async function readLegacy(run: Run, scope: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  for (const [tool, names] of [
    ['iptables-legacy', 'ip_tables_names'],
    ['ip6tables-legacy', 'ip6_tables_names'],
  ] as const) {
    // The tool would make the tables.
    if ((await run(['cat', `/proc/net/${names}`], '')).stdout.trim() === '' || !has(`${tool}-save`)) continue
    const { status, stdout, stderr } = await run([`${tool}-save`], '')
    if (status !== 0) throw new Error(stderr.split('\n', 1)[0] ?? '')
    let table = ''
    for (const line of stdout.split('\n')) {
      table = /^\*(\S+)/.exec(line)?.[1] ?? table
      const six = tool.startsWith('ip6')
      const isOfFamily = scope.ips.some((ip) => isSix(ip) === six)
      if (!line.startsWith('-A ') || !/-j (DROP|REJECT|NOTRACK|DNAT|SNAT|MASQUERADE|TTL|HL|CT|NFQUEUE)\b/.test(line))
        continue
      if (/PLUMB-/.test(line) || !isOfFamily || !isAbout(line, scope)) continue
      found.push({
        text: `the rule "${line}" in the table ${table} of ${tool}`,
        undo: `${tool} -t ${table} ${line.replace(/^-A/, '-D')}`,
      })
    }
  }
  return found
}

async function readRules(run: Run, scope: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  for (const family of [4, 6] as const) {
    if (!scope.ips.some((ip) => isSix(ip) === (family === 6))) continue
    const { status, stdout, stderr } = await run(['ip', `-${family}`, 'rule', 'show'], '')
    if (status !== 0) throw new Error(stderr.split('\n', 1)[0] ?? '')
    for (const line of stdout.split('\n')) {
      const [, priority = '', text = ''] = /^(\d+):\s+(.*?)\s*$/.exec(line) ?? []
      // The three rules of the kernel.
      if (text === '' || /^from all lookup (local|main|default)$/.test(text) || /\[l3mdev-table\]/.test(text)) continue
      if (!isAbout(text, scope)) continue
      found.push({
        text: `the rule of routing ${priority}: ${text}`,
        undo: `ip -${family} rule del priority ${priority}`,
      })
    }
  }
  return found
}

interface RouteRow {
  readonly dst: string
  readonly dev?: string
  readonly gateway?: string
  readonly type?: string
  readonly protocol?: string
  readonly metric?: number
}

// Routes to the ends that plumb did not make, and that are closer than those of links. In a pod, all that do not lead to
// its node.
async function readRoutes(run: Run, scope: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  for (const family of [4, 6] as const) {
    const ips = scope.ips.filter((ip) => isSix(ip) === (family === 6))
    if (ips.length === 0) continue
    const argv = ['ip', `-${family}`, '-json', '-details', '-N', 'route', 'show', 'table', 'main']
    const rows = (await jsonOf(run, argv)) as RouteRow[]
    for (const row of rows) {
      const text = foreignRoute(row, ips, scope)
      if (text !== undefined)
        found.push({ text: `the route ${text}, which plumb did not make`, undo: undoOf(row, text, family, scope) })
    }
    const gateway = scope.gateways.find((ip) => isSix(ip) === (family === 6))
    if (scope.isPod && !rows.some(({ dst }) => dst === 'default'))
      found.push({
        text: `the pod has no default route of IPv${family}`,
        ...(gateway !== undefined && { undo: `ip -${family} route replace default via ${gateway} dev eth0` }),
      })
  }
  return found
}

// The route as ip takes it. Undefined for one of the kernel or of plumb, and for one to others.
function foreignRoute(row: RouteRow, ips: readonly Ip[], { isPod, gateways, ways }: Scope): string | undefined {
  const { dst, dev, gateway, type = '1', protocol } = row
  // A pod's own link, which its plugin has led to it.
  if (!isPod && dev !== undefined && gateway === undefined && ways.get(dst as Ip) === dev) return undefined
  if (protocol === '2' || protocol === 'kernel' || protocol === String(PROTO)) return undefined
  const word = TYPES[type] ?? type
  const isToNode =
    word === 'unicast' && (gateway === undefined || gateways.includes(gateway as Ip) || gateways.length === 0)
  if (isPod ? isToNode : dst === 'default') return undefined
  if (dst !== 'default' && !ips.some((ip) => isIn(ip, dst))) return undefined
  const way = [gateway === undefined ? '' : ` via ${gateway}`, dev === undefined ? '' : ` dev ${dev}`].join('')
  return `${word === 'unicast' ? '' : `${word} `}${dst}${way}`
}

// A pod needs a default route: its gateway takes the place of another one.
function undoOf({ dst, metric }: RouteRow, text: string, family: 4 | 6, { isPod, gateways }: Scope): string {
  const gateway = gateways.find((ip) => isSix(ip) === (family === 6))
  if (isPod && dst === 'default' && gateway !== undefined)
    return `ip -${family} route replace default via ${gateway} dev eth0`
  return `ip -${family} route del ${text}${metric === undefined ? '' : ` metric ${metric}`}`
}
const TYPES: Readonly<Record<string, string>> = {
  1: 'unicast',
  6: 'blackhole',
  7: 'unreachable',
  8: 'prohibit',
  9: 'throw',
}

interface NeighbourRow {
  readonly dst: string
  readonly dev: string
  readonly lladdr?: string
  readonly state?: readonly string[]
  readonly protocol?: string
}

// Fixed entries that plumb did not make, and entries of pods with another MAC.
async function readNeighbours(run: Run, { ips, macs, isPod }: Scope): Promise<Suspect[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', '-N', 'neigh', 'show'])) as NeighbourRow[]
  const all = rows.length > 0 ? rows : []
  return all.flatMap(({ dst, dev, lladdr = '', state = [], protocol }): Suspect[] => {
    const isFixed = state.includes('PERMANENT') || state.includes('NOARP')
    const mac = macs.get(dst as Ip)
    const isOther = mac !== undefined && lladdr !== '' && mac !== lladdr
    const isForeign = isFixed && protocol !== String(PROTO) && lladdr !== '' && (isPod || ips.includes(dst as Ip))
    if (!isOther && !isForeign) return []
    const what = isOther ? `, and its MAC is ${mac}` : ', which plumb did not make'
    return [
      { text: `the neighbour entry ${dst} lladdr ${lladdr} on ${dev}${what}`, undo: `ip neigh del ${dst} dev ${dev}` },
    ]
  })
}

interface FdbRow {
  readonly mac: string
  readonly ifname: string
  readonly flags?: readonly string[]
  readonly master?: string
  readonly dst?: string
  readonly state?: string
}

async function readForwarding(run: Run, { ports, isPod }: Scope): Promise<Suspect[]> {
  if (isPod || ports.length === 0) return []
  const rows = (await jsonOf(run, ['bridge', '-json', 'fdb', 'show'])) as FdbRow[]
  const macs = new Set(
    rows
      .filter(({ state, master }) => state === 'permanent' && master !== undefined)
      .map(({ mac, ifname }) => `${mac} ${ifname}`),
  )
  return rows.flatMap(({ mac, ifname, master, state }): Suspect[] => {
    if (!ports.includes(ifname) || master === undefined || state !== 'static') return []
    if (macs.has(`${mac} ${ifname}`)) return []
    return [
      {
        text: `the forwarding entry (fdb) ${mac} of ${master} leads to port ${ifname} for ever`,
        undo: `bridge fdb del ${mac} dev ${ifname} master`,
      },
    ]
  })
}

interface PortRow {
  readonly ifname: string
  readonly state?: string
  readonly [flag: string]: unknown
}

// The settings that the kernel gives a port, and the word of ip for each.
const FLAGS = { isolated: false, learning: true, flood: true, locked: false, neigh_suppress: false } as const

// The port of a link that is down is disabled: the link says so.
async function readPorts(run: Run, { ports, isPod }: Scope): Promise<Suspect[]> {
  if (isPod || ports.length === 0) return []
  const rows = (await jsonOf(run, ['bridge', '-json', '-details', 'link', 'show'])) as PortRow[]
  return rows
    .filter(({ ifname }) => ports.includes(ifname))
    .flatMap((row): Suspect[] => [
      ...(row.state === undefined || row.state === 'forwarding' || row.state === 'disabled'
        ? []
        : [{ text: `the port ${row.ifname} is ${row.state}` }]),
      ...Object.entries(FLAGS).flatMap(([flag, usual]): Suspect[] =>
        row[flag] === undefined || row[flag] === usual
          ? []
          : [
              {
                text: `the port ${row.ifname} of the bridge has ${flag} ${usual ? 'off' : 'on'}`,
                undo: `bridge link set dev ${row.ifname} ${flag} ${usual ? 'on' : 'off'}`,
              },
            ],
      ),
    ])
}

interface QdiscRow {
  readonly kind: string
  readonly dev?: string
  readonly root?: boolean
}

/** Queues that lose no packet by design, besides those of a rate. */
const HARMLESS = [
  'noqueue',
  'pfifo_fast',
  'pfifo',
  'bfifo',
  'fq_codel',
  'fq',
  'mq',
  'sfq',
  'codel',
  'fq_pie',
  'cake',
  'tbf',
  'htb',
  'hfsc',
  'ingress',
  'clsact',
  'multiq',
  'prio',
]

async function readTc(run: Run, { links, ports }: Scope): Promise<Suspect[]> {
  if (!has('tc')) return []
  const names = new Set([...links, ...ports])
  const rows = ((await jsonOf(run, ['tc', '-json', 'qdisc', 'show'])) as QdiscRow[]).filter(({ dev = '' }) =>
    names.has(dev),
  )
  const found: Suspect[] = rows
    .filter(({ kind }) => !HARMLESS.includes(kind))
    .map(({ kind, dev = '', root }) => ({
      text: `the queue (qdisc) ${kind} of ${dev}`,
      ...(root && { undo: `tc qdisc del dev ${dev} root` }),
    }))
  for (const { dev = '' } of rows.filter(({ kind }) => kind === 'clsact' || kind === 'ingress'))
    for (const way of ['ingress', 'egress'] as const) {
      const { stdout } = await run(['tc', 'filter', 'show', 'dev', dev, way], '')
      const filters = stdout.split(/^(?=filter )/m).filter((text) => / handle /.test(text) && !/\bmirred\b/.test(text))
      for (const text of filters) {
        const [, protocol = 'all', pref = '', kind = ''] = /protocol (\S+) pref (\d+) (\S+)/.exec(text) ?? []
        found.push({
          text: `the tc filter of ${dev} at ${way}, protocol ${protocol} pref ${pref}, of kind ${kind}`,
          undo: `tc filter del dev ${dev} ${way} protocol ${protocol} pref ${pref}`,
        })
      }
    }
  return found
}

async function readXfrm(run: Run, scope: Scope): Promise<Suspect[]> {
  const { status, stdout } = await run(['ip', 'xfrm', 'policy', 'show'], '')
  // A kernel without IPsec has no policies.
  if (status !== 0) return []
  return stdout
    .split(/^(?=src )/m)
    .filter((text) => text.startsWith('src '))
    .flatMap((text): Suspect[] => {
      const [, src = '', dst = ''] = /^src (\S+) dst (\S+)/.exec(text) ?? []
      const [, dir = ''] = /\bdir (\S+)/.exec(text) ?? []
      if (!isAbout(`${src} ${dst}`, scope)) return []
      const action = /\baction block/.test(text) ? 'blocks' : 'wants IPsec for'
      return [
        {
          text: `the xfrm policy ${dir} ${action} ${src} → ${dst}`,
          undo: `ip xfrm policy delete src ${src} dst ${dst} dir ${dir}`,
        },
      ]
    })
}

// Settings of links that stop packets, and the value that lets them pass.
const SETTINGS = [
  ['ipv4', 'forwarding', (value: string) => value !== '0', '1'],
  ['ipv6', 'forwarding', (value: string) => value !== '0', '1'],
  ['ipv6', 'disable_ipv6', (value: string) => value === '0', '0'],
  ['ipv4', 'arp_ignore', (value: string) => Number(value) < 3, '0'],
  ['ipv4', 'rp_filter', (value: string) => value !== '1', '2'],
  ['ipv4', 'arp_filter', (value: string) => value === '0', '0'],
] as const

async function readSettings(run: Run, { ns, links, ports, ips, isPod }: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  const names = [...new Set(['default', 'all', ...links, ...ports])]
  const paths = names.flatMap((name) => SETTINGS.map(([family, key]) => `/proc/sys/net/${family}/conf/${name}/${key}`))
  const values = ns === 'host' ? new Map(paths.map((path) => [path, readText(path)?.trim()])) : await readIn(run, paths)
  for (const name of names)
    for (const [family, key, isFine, fine] of SETTINGS) {
      if (isPod && key === 'forwarding') continue
      // In IPv6, the setting of all links decides.
      if (family === 'ipv6' && key === 'forwarding' && name !== 'all') continue
      if (!ips.some((ip) => isSix(ip) === (family === 'ipv6'))) continue
      // A port of a bridge has no IPv6 of its own: plumb switches it off there.
      if (key === 'disable_ipv6' && ports.includes(name)) continue
      const value = values.get(`/proc/sys/net/${family}/conf/${name}/${key}`)
      // A distribution's choice for all links is none of this fault.
      const isOfAll = key !== 'forwarding' && value === values.get(`/proc/sys/net/${family}/conf/default/${key}`)
      if (value === undefined || value === '' || isFine(value) || isOfAll) continue
      const setting = `net.${family}.conf.${name}.${key}`
      const path = `/proc/sys/net/${family}/conf/${name}/${key}`
      found.push({ text: `the setting ${setting} is ${value}`, undo: `echo ${fine} >${shellWord(path)}` })
    }
  return found
}

async function readIn(run: Run, paths: readonly string[]): Promise<Map<string, string>> {
  const { stdout } = await run(['sh', '-c', 'for f; do echo "$f=$(cat "$f" 2>/dev/null)"; done', 'sh', ...paths], '')
  return new Map(stdout.split('\n').map((line) => line.split('=', 2) as [string, string]))
}
