import { FUSED } from '../lib/cni/fused-plugins.ts'
import type { Json } from '../lib/runtime/network-list.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { printableName } from '../lib/text/printable.ts'

/** The changed configuration list, and one sentence for each change. */
export interface Fused {
  readonly list: Json
  readonly changes: readonly string[]
}
// The key of the interface plugin that takes the settings of each plugin type. It also takes over the capabilities.
const KEYS: ReadonlyMap<unknown, string> = new Map(FUSED.map(({ type, key }) => [type, key]))
const HOSTS = ['bridge', 'ptp']
// Keys that belong to an entry of a list. They have no use within another plugin.
const ENTRY = new Set(['type', 'capabilities', 'name', 'cniversion', 'ipam'])

/**
 * Moves portmap, firewall, bandwidth and tuning into the bridge or ptp plugin that they follow in a configuration list.
 * They become keys of that plugin. The node gets the same result from one process. Throws ValueError when the
 * configuration is not a list. Pure.
 */
export function fuse(given: unknown): Fused {
  const list = objectOf(given, 'the configuration')
  const { plugins } = list
  if (!Array.isArray(plugins))
    throw new ValueError(
      'Cannot fuse the configuration: want a list, with "plugins"; a single configuration is one process already',
    )
  const all = plugins.map((one, i) => objectOf(one, `plugins[${i}]`))
  const at = all.findIndex(({ type }) => HOSTS.some((one) => one === type))
  const host = all[at]
  if (!host)
    return {
      list,
      changes: [`nothing is changed: none of the plugins is ${HOSTS.join(' or ')}, which can take others in`],
    }
  let whole = host
  const changes: string[] = []
  let next = at + 1
  for (; next < all.length; next++) {
    const entry = all[next] as Json
    const key = KEYS.get(entry['type'])
    if (key === undefined || Object.keys(whole).some((one) => one.toLowerCase() === key.toLowerCase())) break
    const change = `plugins[${next}] ${shown(entry['type'])} is now the key "${key}" of ${shown(host['type'])}`
    const own = capabilities(entry)
    changes.push(own === '' ? change : `${change}, with its capabilities: ${own}`)
    whole = taking(whole, key, entry)
  }
  const rest = all.slice(next)
  if (rest.length > 0) {
    const types = rest.map(({ type }) => shown(type)).join(', ')
    const stay = rest.length > 1 ? 'stay plugins of their own' : 'stays a plugin of its own'
    changes.push(`${types} ${stay}: ${whyNot(rest[0] as Json, whole)}`)
  }
  if (next === at + 1) return { list, changes: ['nothing is changed', ...changes] }
  return { list: { ...list, plugins: [...all.slice(0, at), whole, ...rest] }, changes }
}

function taking(host: Json, key: string, entry: Json): Json {
  const settings = Object.fromEntries(Object.entries(entry).filter(([one]) => !ENTRY.has(one.toLowerCase())))
  const both = { ...(host['capabilities'] as Json | undefined), ...(entry['capabilities'] as Json | undefined) }
  return {
    ...host,
    [key]: Object.keys(settings).length > 0 ? settings : true,
    ...(Object.keys(both).length > 0 ? { capabilities: both } : {}),
  }
}

function capabilities({ capabilities }: Json): string {
  return Object.entries((capabilities ?? {}) as Json)
    .filter(([, on]) => on === true)
    .map(([name]) => printableName(name))
    .join(', ')
}

function whyNot({ type }: Json, whole: Json): string {
  const host = shown(whole['type'])
  if (KEYS.has(type)) return `${host} has one already`
  const types = [...KEYS.keys()].join(', ')
  return `${host} takes ${types} in, and only what follows it at once, for the order counts`
}

function objectOf(value: unknown, what: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ValueError(`Cannot read ${what} ${shown(value)}: want an object`)
  return value as Json
}
