import { readdirSync } from 'node:fs'
import * as v from 'valibot'
import { supported } from '../cni/spec.ts'
import { compare } from '../cni/versions.ts'
import { readRegular } from '../os/reading.ts'
import { shown, ValueError } from '../text/errors.ts'
import { jsonPlace } from '../text/json-place.ts'
import { printable } from '../text/printable.ts'
import { field, read, suggestion } from '../text/shape.ts'
import type { NetworkName } from '../text/values.ts'

/** A network's plugins in the order of ADD. Source: CNI spec 1.1.0 "Network configuration format". */
export interface NetworkList {
  readonly name: NetworkName
  readonly cniVersion: string
  readonly disableCheck: boolean
  readonly disableGC: boolean
  readonly plugins: readonly PluginConf[]
  /** The list as JSON text: the content of the file, or the list that was made of several files. The cache keeps it. */
  readonly text: string
}
/** One plugin of a list. */
export interface PluginConf {
  readonly type: string
  /** The capabilities that are declared true. Only their arguments reach the plugin. */
  readonly capabilities: readonly string[]
  /** The plugin's object as the file has it. */
  readonly conf: Json
}
/** A JSON object with unchecked content. */
export type Json = Readonly<Record<string, unknown>>

// ES2025 "JSON.parse source text access". TypeScript's library does not declare it yet.
const { parse, rawJSON } = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { source: string }) => unknown): unknown
  rawJSON(text: string): unknown
}

/**
 * Reads JSON text. A number that a double cannot represent keeps its text, and is written back with the same text.
 * Throws ValueError that names `what`.
 */
export function parseJson(text: string, what: string): unknown {
  try {
    return parse(text, (_key, value, { source }) =>
      typeof value === 'number' && String(value) !== source ? rawJSON(source) : value,
    )
  } catch (cause) {
    // Deep nesting overflows the stack of the reviver.
    if (cause instanceof RangeError) throw new ValueError(`Cannot read ${what}: it is nested too deep`, { cause })
    const place = jsonPlace(text) || printable((cause as Error).message)
    throw new ValueError(`Cannot read ${what}: it is not JSON: ${place}`, { cause })
  }
}

/**
 * Finds a network in a directory as libcni does. It searches the name in the *.conflist files in lexical order, then in
 * the *.conf and *.json files. Without a name it takes the first file of all, the node's default network. Appends the
 * drop-ins `<dir>/<name>/*.conf`. Throws ValueError that names the file.
 */
export function loadNetwork(dir: string, name?: string): NetworkList {
  const all = filesOf(dir, ['.conflist', '.conf', '.json'])
  const [first] = all
  if (first === undefined)
    throw new ValueError(`Cannot find a network in ${dir}: it has no *.conflist, *.conf or *.json file`)
  if (name === undefined) return loadFile(dir, first)
  const lists = all.filter((file) => file.endsWith('.conflist'))
  const seen: string[] = []
  for (const file of [...lists, ...all.filter((one) => !lists.includes(one))]) {
    const found = loadFile(dir, file)
    if (found.name === name) return found
    seen.push(found.name)
  }
  const there = [...new Set(seen)].join(', ')
  const hint = suggestion(name, new Map(seen.map((one) => [one.toLowerCase(), one])))
  throw new ValueError(`Cannot find network ${shown(name)}: ${dir} has ${there}${hint}`)
}

/**
 * Reads a list from text, such as the text in the result cache. `from` names the text in messages. When `dir` is given,
 * drop-ins below it are read. Throws ValueError.
 */
export function parseNetwork(text: string, from: string, dir?: string): NetworkList {
  const raw = parseJson(text, from)
  return about(from, () => {
    const list = read(listShape, raw).value
    const inlined = list.plugins?.map(pluginOf)
    if (list.loadOnlyInlinedPlugins && !inlined)
      throw new ValueError('"loadOnlyInlinedPlugins" is true and "plugins" is missing')
    if (inlined?.length === 0) throw new ValueError('"plugins" is empty: want at least one plugin')
    const dropped = dir === undefined || list.loadOnlyInlinedPlugins ? [] : dropIns(`${dir}/${list.name}`)
    const plugins = [...(inlined ?? []), ...dropped]
    if (plugins.length === 0) throw new ValueError(`it has no "plugins", and ${dir}/${list.name} has no *.conf file`)
    const whole = { ...(raw as Json), loadOnlyInlinedPlugins: true, plugins: plugins.map(({ conf }) => conf) }
    return {
      name: list.name,
      cniVersion: highest(list.cniVersion, list.cniVersions),
      disableCheck: list.disableCheck,
      disableGC: list.disableGC,
      plugins,
      text: dropped.length === 0 ? text : JSON.stringify(whole),
    }
  })
}

/** Reads one file of the folder, with its drop-ins, as `loadNetwork` does. Throws ValueError that names the file. */
export function loadFile(dir: string, file: string): NetworkList {
  const path = `${dir}/${file}`
  const text = textOf(path)
  if (file.endsWith('.conflist')) return parseNetwork(text, path, dir)
  const raw = parseJson(text, path)
  return about(path, () => {
    const single = read(singleShape, raw).value
    const { name, cniVersion } = single
    return {
      name,
      cniVersion: highest(cniVersion, undefined),
      disableCheck: false,
      disableGC: false,
      plugins: [pluginOf(single)],
      text: JSON.stringify({ cniVersion, name, plugins: [raw] }),
    }
  })
}

function dropIns(dir: string): PluginConf[] {
  return filesOf(dir, ['.conf'], true).map((file) => {
    const path = `${dir}/${file}`
    const raw = parseJson(textOf(path), path)
    return about(path, () => pluginOf(read(pluginShape, raw).value))
  })
}

function pluginOf(conf: v.InferOutput<typeof pluginShape>): PluginConf {
  const { type, capabilities = {} } = conf
  return { type, capabilities: Object.keys(capabilities).filter((name) => capabilities[name]), conf }
}

// libcni ignores versions above its newest one, and takes the highest of both keys.
function highest(single: string, several: readonly string[] | undefined): string {
  const newest = supported.at(-1) as string
  const usable = several ? [single, ...several].filter((one) => compare(one, newest) <= 0) : [single]
  const version = usable.sort(compare).at(-1) ?? single
  if (!supported.includes(version))
    throw new ValueError(`cniVersion ${shown(version)}: want one of ${supported.join(', ')}`)
  return version
}

function filesOf(dir: string, extensions: readonly string[], optional = false): string[] {
  try {
    const found = readdirSync(dir, { withFileTypes: true }).filter(
      (entry) => !entry.isDirectory() && extensions.some((extension) => entry.name.endsWith(extension)),
    )
    return found.map(({ name }) => name).sort()
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (optional && code === 'ENOENT') return []
    if (code === 'ENOENT') throw new ValueError(`Cannot find a network: there is no directory ${dir}`, { cause })
    throw new ValueError(`Cannot read the networks of ${dir}: ${(cause as Error).message}`, { cause })
  }
}

// To read a pipe would hold the caller up until somebody writes to it.
function textOf(path: string): string {
  try {
    return readRegular(path) ?? ''
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== undefined) throw cause
    throw new ValueError(`Cannot read ${path}: ${(cause as Error).message}`, { cause })
  }
}

function about<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (cause) {
    // The message about a drop-in already names its file.
    if (!(cause instanceof ValueError) || cause.message.startsWith('Cannot read /')) throw cause
    throw new ValueError(`Cannot read ${path}: ${cause.message.replace(/^Cannot read /, '')}`, { cause })
  }
}

const flag = v.optional(
  field.by((value) => {
    const word = typeof value === 'string' ? value.toLowerCase() : value
    if (word !== true && word !== false && word !== 'true' && word !== 'false')
      throw new ValueError(`${shown(value)}: want true or false`)
    return word === true || word === 'true'
  }),
  false,
)
const type = field.by((value) => {
  // The name becomes part of a file name.
  if (typeof value !== 'string' || !/^[^\0/]{1,255}$/.test(value))
    throw new ValueError(`${shown(value)}: want the name of a plugin`)
  return value
})
const version = field.by((value) => {
  if (typeof value !== 'string') throw new ValueError(`${shown(value)}: want a version such as "1.1.0"`)
  compare(value, '0.0.0')
  return value
})
const pluginShape = v.looseObject({ type, capabilities: v.exactOptional(v.record(v.string(), field.flag)) })
const singleShape = v.looseObject({
  ...pluginShape.entries,
  name: field.network,
  cniVersion: v.optional(version, '0.1.0'),
})
const listShape = v.looseObject({
  name: field.network,
  cniVersion: v.optional(version, '0.1.0'),
  cniVersions: v.exactOptional(v.array(version)),
  disableCheck: flag,
  disableGC: flag,
  loadOnlyInlinedPlugins: flag,
  plugins: v.exactOptional(v.array(pluginShape)),
})
