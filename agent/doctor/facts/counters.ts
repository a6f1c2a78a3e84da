import { readText } from '../../../lib/os/reading.ts'
import type { Fact } from './facts.ts'

/** The kernel's counters by name, such as `Ip.InAddrErrors`, and how they grew in a time. */
export interface Counters {
  readonly values: ReadonlyMap<string, number>
  readonly growth: ReadonlyMap<string, number>
  /** The time of the growth, in milliseconds. */
  readonly ms: number
}

/** The shortest time between two readings, in milliseconds. */
const GROWTH_MS = 1000
const TABLES = ['nf_conntrack', 'arp_cache', 'ndisc_cache']

/** A reading of the counters. */
export type Reading = ReadonlyMap<string, number>

/** Counters of the kernel, and how they grew while the facts were read: at least a second. */
export const counters: Fact<Counters> = {
  async read({ others }) {
    const [started, first] = [performance.now(), readCounters()]
    await others
    await Bun.sleep(Math.max(0, started + GROWTH_MS - performance.now()))
    return grown(first, readCounters(), performance.now() - started)
  },
  isLast: true,
  inAgent: 'given',
}

/**
 * Reads the counters of this thread's namespace: /proc/net/snmp, netstat, snmp6 and those of stat/. The last have
 * names such as `conntrack.insert_failed` and `arp_cache.entries`, and are summed over the processors.
 */
export function readCounters(): Reading {
  const of = (file: string) => readText(`/proc/thread-self/net/${file}`) ?? ''
  return new Map([
    ...pairsOf(of('snmp')),
    ...pairsOf(of('netstat')),
    ...sixOf(of('snmp6')),
    ...TABLES.flatMap((one) => tableOf(of(`stat/${one}`), one)),
  ])
}

/** The counters of the second reading with their growth since the first. */
export function grown(first: Reading, second: Reading, ms: number): Counters {
  const growth = [...second].map(([name, value]) => [name, value - (first.get(name) ?? 0)] as const)
  return { values: second, growth: new Map(growth), ms }
}

// Two lines a protocol: the names, then the values.
function pairsOf(text: string): [string, number][] {
  const lines = text.split('\n')
  const found: [string, number][] = []
  for (let i = 0; i + 1 < lines.length; i += 2) {
    const [names, values] = [lines[i]?.split(/\s+/) ?? [], lines[i + 1]?.split(/\s+/) ?? []]
    const protocol = names[0]?.replace(':', '')
    for (let at = 1; at < names.length; at++) found.push([`${protocol}.${names[at]}`, Number(values[at])])
  }
  return found
}

function sixOf(text: string): [string, number][] {
  return [...text.matchAll(/^(\w+)\s+(\d+)$/gm)].map(([, name = '', value]) => [name, Number(value)])
}

// A line of names, then a line a processor, in hexadecimal. `entries` is of all processors on each line.
function tableOf(text: string, table: string): [string, number][] {
  const [names = '', ...rows] = text.trim().split('\n')
  const values = rows.map((row) => row.trim().split(/\s+/))
  return names
    .trim()
    .split(/\s+/)
    .flatMap((name, i): [string, number][] => {
      if (name === '') return []
      const all = values.map((row) => Number.parseInt(row[i] ?? '', 16) || 0)
      const value = name === 'entries' ? (all[0] ?? 0) : all.reduce((sum, one) => sum + one, 0)
      return [[`${table.replace('nf_', '')}.${name}`, value]]
    })
}
