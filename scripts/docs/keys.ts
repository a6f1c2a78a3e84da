// This folder computes the generated parts of docs/plugins: keys, error codes, and differences from the reference
// plugins. Begin with scripts/docs.ts. That script puts the parts into the pages.
import * as v from 'valibot'
import { common, type Shape } from '../../lib/text/shape.ts'

/** A key of a configuration: its path, its values and its default. All three come from the code that reads the key. */
export interface Key {
  /** For example `runtimeConfig.portMappings[].hostPort`. */
  readonly path: string
  readonly value: string
  /** The default in backticks. Empty for no default, `required` for a required key. */
  readonly fallback: string
}

// The keys that the runtime sends. The author of a configuration does not write them.
const SENT = /^(runtimeConfig|args)\b/

/**
 * The keys of a plugin's shape, in the order of its code. Keys that a runtime sends come last. Keys that every plugin
 * has are left out.
 */
export function keysOf(shape: Shape<never>): Key[] {
  const shared = new Set<unknown>(Object.values(common))
  const all = Object.entries((shape as unknown as Node).entries ?? {}).flatMap(([key, node]) =>
    shared.has(node) ? [] : rows(key, node),
  )
  return [...all.filter(({ path }) => !SENT.test(path)), ...all.filter(({ path }) => SENT.test(path))]
}

/** The keys that every plugin has. */
export function commonKeys(): Key[] {
  return Object.entries(common).flatMap(([key, node]) => rows(key, node as unknown as Node))
}

/**
 * The capabilities of a plugin's shape. They are the keys that a runtime may send in runtimeConfig (CNI spec "Deriving
 * runtimeConfig").
 */
export function capabilitiesOf(shape: Shape<never>): string[] {
  const { entries = {} } = shape as unknown as Node
  return Object.keys(entries['runtimeConfig'] ? (inside(entries['runtimeConfig']).node.entries ?? {}) : {})
}

/** The parts of a valibot schema that this file reads. */
interface Node {
  readonly type: string
  readonly entries?: Readonly<Record<string, Node>>
  readonly wrapped?: Node
  readonly item?: Node
  readonly default?: unknown
}

function rows(path: string, given: Node): Key[] {
  const { node, fallback } = inside(given)
  const { entries, item } = node
  if (item) {
    const one = inside(item).node
    return one.entries || one.item
      ? rows(`${path}[]`, item)
      : [{ path, value: `a list, of each: ${wantOf(one)}`, fallback }]
  }
  if (!entries) return [{ path, value: wantOf(node), fallback }]
  const keys = Object.entries(entries).flatMap(([key, inner]) => rows(`${path}.${key}`, inner))
  // For `runtimeConfig` and `args` of CNI, lists only the keys that the plugin reads. Another open object is listed
  // itself, too.
  const isOpen = node.type === 'loose_object' && (keys.length === 0 || !SENT.test(path))
  return [...(isOpen ? [{ path, value: 'an object', fallback }] : []), ...keys]
}

function inside(given: Node): { node: Node; fallback: string } {
  if (given.wrapped === undefined) return { node: given, fallback: 'required' }
  const { default: value } = given
  return {
    node: inside(given.wrapped).node,
    fallback:
      value === undefined || value === '' || (typeof value === 'object' && Object.keys(value ?? {}).length === 0)
        ? ''
        : `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``,
  }
}

// Each reader refuses a symbol. Its error message then names the value that it wants.
function wantOf(node: Node): string {
  const found = v.safeParse(node as unknown as v.GenericSchema, Symbol('no value'))
  const said = found.issues?.[0].message ?? 'want anything'
  if (node.type === 'record') return 'an object'
  return /.*\bwant (.*)/.exec(said)?.[1] ?? /.*must be (.*?)\)?$/.exec(said)?.[1] ?? said.replace(/^.*?: /, '')
}
