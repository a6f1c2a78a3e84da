// Links on the way, and their ports and queues.
import { jsonOf } from '../../../agent/doctor/facts/tools.ts'
import { has } from '../../../lib/os/exec.ts'
import type { Run } from '../../../lib/os/run.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { Scope, Suspect } from './suspect.ts'

interface LinkRow {
  readonly ifname: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly master?: string
  readonly linkinfo?: { readonly info_kind?: string }
  readonly addr_info?: readonly { readonly local?: string; readonly scope?: string }[]
}

/** Links that are down, too small or missing, and addresses of others on this node. Throws Error. */
export async function readLinks(run: Run, { links, mtu, ports, isPod, ips }: Scope): Promise<Suspect[]> {
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

interface PortRow {
  readonly ifname: string
  readonly state?: string
  readonly [flag: string]: unknown
}

// The settings that the kernel gives a port, and the word of ip for each.
const FLAGS = { isolated: false, learning: true, flood: true, locked: false, neigh_suppress: false } as const

// The port of a link that is down is disabled: the link says so.
/** Ports of the bridge with other flags than the kernel gives them. Throws Error. */
export async function readPorts(run: Run, { ports, isPod }: Scope): Promise<Suspect[]> {
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

/** Queues and filters that lose packets. Throws Error. */
export async function readTc(run: Run, { links, ports }: Scope): Promise<Suspect[]> {
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
