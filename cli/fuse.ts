import { FUSED } from '../lib/cni/fused-plugins.ts'
import type { Json } from '../lib/runtime/network-list.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { printableName } from '../lib/text/printable.ts'

/** A list of plugins in another form, and what is other about it: one sentence each. */
export interface Fused {
  readonly list: Json
  readonly changes: readonly string[]
}
// The key of the interface plugin under which each goes on, and the capabilities that then are the interface plugin's.
const KEYS: ReadonlyMap<unknown, string> = new Map(FUSED.map(({ type, key }) => [type, key]))
const HOSTS = ['bridge', 'ptp']
// Of the plugin as an entry of a list, and of no use within another.
const ENTRY = new Set(['type', 'capabilities', 'name', 'cniversion', 'ipam'])

/** Puts the plugins portmap, firewall, bandwidth and tuning that follow bridge or ptp in a configuration list into that one, as keys of its own: the same node in one process. Throws ValueError for what is no list. Pure. */
export function fuse(given: unknown): Fused {
  const list = objectOf(given, 'the configuration')
  const { plugins } = list
  if (!Array.isArray(plugins)) throw new ValueError('Cannot fuse the configuration: want a list, with "plugins"; a single configuration is one process already')
  const all = plugins.map((one, i) => objectOf(one, `plugins[${i}]`))
  const at = all.findIndex(({ type }) => HOSTS.some((one) => one === type))
  const host = all[at]
  if (!host) return { list, changes: [`nothing is changed: none of the plugins is ${HOSTS.join(' or ')}, which can take others in`] }
  let whole = host
  const changes: string[] = []
  let next = at + 1
  for (; next < all.length; next++) {
    const entry = all[next] as Json
    const key = KEYS.get(entry['type'])
    if (key === undefined || Object.keys(whole).some((one) => one.toLowerCase() === key.toLowerCase())) break
    changes.push(`plugins[${next}] ${shown(entry['type'])} is now the key "${key}" of ${shown(host['type'])}${capabilities(entry) === '' ? '' : `, with its capabilities: ${capabilities(entry)}`}`)
    whole = taking(whole, key, entry)
  }
  const rest = all.slice(next)
  if (rest.length > 0) changes.push(`${rest.map(({ type }) => shown(type)).join(', ')} ${rest.length > 1 ? 'stay plugins' : 'stays a plugin'} of ${rest.length > 1 ? 'their' : 'its'} own: ${whyNot(rest[0] as Json, whole)}`)
  if (next === at + 1) return { list, changes: ['nothing is changed', ...changes] }
  return { list: { ...list, plugins: [...all.slice(0, at), whole, ...rest] }, changes }
}

function taking(host: Json, key: string, entry: Json): Json {
  const settings = Object.fromEntries(Object.entries(entry).filter(([one]) => !ENTRY.has(one.toLowerCase())))
  const both = { ...(host['capabilities'] as Json | undefined), ...(entry['capabilities'] as Json | undefined) }
  return { ...host, [key]: Object.keys(settings).length > 0 ? settings : true, ...(Object.keys(both).length > 0 ? { capabilities: both } : {}) }
}

function capabilities({ capabilities }: Json): string {
  return Object.entries((capabilities ?? {}) as Json)
    .filter(([, on]) => on === true)
    .map(([name]) => printableName(name))
    .join(', ')
}

function whyNot({ type }: Json, whole: Json): string {
  return !KEYS.has(type) ? `${shown(whole['type'])} takes ${[...KEYS.keys()].join(', ')} in, and only what follows it at once, for the order counts` : `${shown(whole['type'])} has one already`
}

function objectOf(value: unknown, what: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new ValueError(`Cannot read ${what} ${shown(value)}: want an object`)
  return value as Json
}
