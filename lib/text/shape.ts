import * as v from 'valibot'
import { distance } from './distance.ts'
import { shown, ValueError } from './errors.ts'
import { type Ip, parseCidr, parseIp } from './ip.ts'
import { printableName } from './printable.ts'
import { byteLength, parse } from './values.ts'

/** The required form of a configuration: a valibot object schema. Its output is the typed configuration. */
export type Shape<C> = v.GenericSchema<unknown, C>
/** A configuration that was read: its value, and notes for the user (unknown keys, keys in a different case). */
export interface Reading<C> {
  readonly value: C
  readonly notes: readonly string[]
}

/**
 * Readers for single keys. The error of each reader names the expected form. Combine them with valibot's `optional`,
 * `array`, `object`.
 */
export const field = {
  text: by((value) => must(typeof value === 'string', value as string, value, 'a string')),
  flag: by((value) => must(typeof value === 'boolean', value as boolean, value, 'true or false')),
  ip: by<Ip>(parseIp),
  cidr: by(parseCidr),
  mac: by(parse.mac),
  ifname: by(parse.ifname),
  network: by(parse.network),
  port: by(parse.port),
  path: by((value) => {
    const isPath = typeof value === 'string' && !value.includes('\0') && byteLength(value) <= 4095
    return must(isPath, value as string, value, 'a path of at most 4095 bytes')
  }),
  /** A whole number from `min` to `max`, both included. */
  int: (min: number, max: number) =>
    by((value) => {
      const isInRange = Number.isInteger(value) && (value as number) >= min && (value as number) <= max
      return must(isInRange, value as number, value, `a whole number, ${min} to ${max}`)
    }),
  /** One of these words, in exactly this spelling. */
  word: <const W extends string>(...words: W[]) =>
    by((value) =>
      must(words.includes(value as W), value as W, value, `one of ${words.filter((word) => word !== '').join(', ')}`),
    ),
  /** Any parser: a function that throws ValueError `<value>: want …`. */
  by,
  /** A parser for an optional key. An empty text also means that the key is absent. */
  filled: <T>(parser: (value: string) => T) =>
    v.exactOptional(by((value) => (value === '' ? undefined : parser(value as string)))),
  /** An object whose keys also have to fit together. `judge` throws ValueError with the whole message. */
  whole: <S extends v.GenericSchema>(keys: S, judge: (conf: v.InferOutput<S>) => void) =>
    v.pipe(
      keys,
      by((conf) => {
        judge(conf as v.InferOutput<S>)
        return conf
      }) as never,
    ) as unknown as Shape<v.InferOutput<S>>,
}

/**
 * The keys that libcni or every plugin knows. Each plugin's shape includes them (CNI spec "Plugin configuration
 * objects").
 */
export const common = {
  cniVersion: v.optional(field.text, '0.1.0'),
  name: field.network,
  type: v.optional(field.text, ''),
  args: v.exactOptional(v.looseObject({ cni: v.exactOptional(v.looseObject({})) })),
  capabilities: v.exactOptional(v.record(v.string(), v.unknown())),
  prevResult: v.exactOptional(v.looseObject({})),
  strict: v.optional(field.flag, false),
  'cni.dev/attachments': v.exactOptional(v.unknown()),
  'cni.dev/valid-attachments': v.exactOptional(v.unknown()),
}

/**
 * Reads a configuration. Keys match in any case, as in Go. A null value counts as absent. Throws ValueError with path,
 * value and expected form. With `"strict": true` it also refuses unknown keys.
 */
export function read<C>(shape: Shape<C>, raw: unknown): Reading<C> {
  const notes: string[] = []
  const plain = named(shape as unknown as Node, raw, '', notes)
  const list = notes.find((note) => note.startsWith('Cannot read'))
  if (list !== undefined) throw new ValueError(list)
  const found = v.safeParse(shape, plain, { abortEarly: true })
  if (!found.success) throw new ValueError(describe(found.issues[0] as v.BaseIssue<unknown>))
  const unknown = notes.filter((note) => note.startsWith('unknown key'))
  if ((plain as { strict?: unknown }).strict === true && unknown.length > 0)
    throw new ValueError(`Cannot read the configuration: ${unknown.join('; ')}; "strict" is true`)
  return { value: found.output, notes }
}

/**
 * The keys of a configuration that its shape does not know, each as a phrase: `unknown key "brigde", did you mean
 * "bridge"?`.
 */
export function unknownKeys<C>(shape: Shape<C>, raw: unknown): string[] {
  const notes: string[] = []
  named(shape as unknown as Node, raw, '', notes)
  return notes.filter((note) => note.startsWith('unknown key'))
}

/**
 * Reads every key that parses by itself, at any depth, and ignores the others. For DEL, which must work with a
 * configuration that ADD refused.
 */
export function readLoose<C>(shape: Shape<C>, raw: unknown): Partial<C> {
  return loose(shape as unknown as Node, named(shape as unknown as Node, raw, '', [])) as Partial<C>
}

interface Node {
  readonly type: string
  readonly entries?: Readonly<Record<string, Node>>
  readonly wrapped?: Node
  readonly item?: Node
}

function by<T>(parser: (value: unknown) => T): v.GenericSchema<unknown, T> {
  return v.pipe(
    v.unknown(),
    v.rawTransform<unknown, T>(({ dataset, addIssue, NEVER }) => {
      try {
        return parser(dataset.value)
      } catch (cause) {
        addIssue({ message: (cause as Error).message })
        return NEVER
      }
    }),
  )
}

function must<T>(ok: boolean, value: T, given: unknown, want: string): T {
  if (!ok) throw new ValueError(`${shown(given)}: want ${want}`)
  return value
}

function describe(issue: v.BaseIssue<unknown>): string {
  let path = ''
  for (const { key } of issue.path ?? [])
    path += typeof key === 'number' ? `[${key}]` : `${path && '.'}${printableName(String(key))}`
  const [, wish] = /^undefined: (.*)$/s.exec(issue.message) ?? []
  if (wish !== undefined) return `Cannot read ${path || 'the configuration'}: it is missing; ${wish}`
  if (issue.kind === 'transformation') return path ? `Cannot read ${path} ${issue.message}` : issue.message
  if (issue.input === undefined) return `Cannot read ${path || 'the configuration'}: it is missing`
  const want = issue.expected?.replace(/^Object$/, 'an object').replace(/^Array$/, 'an array') ?? issue.message
  return `Cannot read ${path || 'the configuration'} ${shown(issue.input)}: want ${want}`
}

/** The same data, with each key in the shape's spelling. */
function named(node: Node, raw: unknown, path: string, notes: string[]): unknown {
  const inner = node.wrapped
  if (inner) return named(inner, raw, path, notes)
  if (node.item && Array.isArray(raw))
    return raw.map((item, i) => named(node.item as Node, item, `${path}[${i}]`, notes))
  const entries = node.entries
  // valibot treats an array as an object without keys.
  if (entries && Array.isArray(raw))
    notes.push(`Cannot read ${path || 'the configuration'} ${shown(raw)}: want an object`)
  if (!entries || typeof raw !== 'object' || raw === null || Array.isArray(raw)) return raw
  const byLower = new Map(Object.keys(entries).map((key) => [key.toLowerCase(), key]))
  const out = new Map<string, unknown>()
  for (const [given, value] of Object.entries(raw)) {
    const key = Object.hasOwn(entries, given) ? given : byLower.get(given.toLowerCase())
    const at = path ? `${path}.${given}` : given
    if (key === undefined) {
      if (node.type !== 'loose_object') notes.push(`unknown key ${shown(at)}${suggestion(given, byLower)}`)
      else if (value !== null) out.set(given, value)
      continue
    }
    // Runtimes written in Go send capability arguments capitalised. That is not the user's mistake, so no note is made.
    if (key !== given && !/^runtimeConfig\b/i.test(path)) notes.push(`key ${shown(at)} is read as ${shown(key)}`)
    if (value === null) continue
    out.set(key, named(entries[key] as Node, value, path ? `${path}.${key}` : key, notes))
  }
  return Object.fromEntries(out)
}

function loose(node: Node, raw: unknown): unknown {
  if (node.wrapped) return loose(node.wrapped, raw)
  if (!node.entries) return raw
  const { entries } = node
  const given = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>
  const out: [string, unknown][] =
    node.type === 'loose_object' ? Object.entries(given).filter(([key]) => !Object.hasOwn(entries, key)) : []
  for (const [key, entry] of Object.entries(entries)) {
    // An absent optional key adds nothing.
    if (entry.type === 'exact_optional' && given[key] === undefined) continue
    const plain = unwrap(entry)
    if (plain.entries && Object.hasOwn(given, key)) out.push([key, loose(plain, given[key])])
    else {
      const found = v.safeParse(entry as unknown as Shape<unknown>, given[key])
      if (found.success && found.output !== undefined) out.push([key, found.output])
    }
  }
  return Object.fromEntries(out)
}

function unwrap(node: Node): Node {
  return node.wrapped ? unwrap(node.wrapped) : node
}

/**
 * `, did you mean "x"?` when a known word is at most two letters away, otherwise nothing. `known` is keyed by the
 * lower-case form.
 */
export function suggestion(given: string, known: ReadonlyMap<string, string>): string {
  const near = [...known]
    .map(([lower, key]) => ({ key, far: distance(given.toLowerCase(), lower) }))
    .sort((a, b) => a.far - b.far)[0]
  return near && near.far <= 2 && given.length > 2 ? `, did you mean ${shown(near.key)}?` : ''
}
