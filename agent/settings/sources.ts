import { isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { printable } from '../../lib/text/printable.ts'
import { suggestion } from '../../lib/text/shape.ts'
import { FLAGS, type Flag, type FlagName } from './flags.ts'

/** What somebody said of a setting: the values as text, and where they stand, for messages. */
export interface Said {
  readonly values: readonly string[]
  readonly at: string
  readonly from: 'flag' | 'environment' | 'file'
}
/** A file of settings, read by the caller. */
export interface SettingsFile {
  readonly path: string
  readonly text: string
}
/** By name. */
export type Given = ReadonlyMap<FlagName, Said>

// All settings with their reasons are a tenth of it; of megabytes that are no YAML the parser makes gigabytes, for minutes.
const FILE_CHARACTERS = 65_536

/** Flags as Go's flag package takes them: one dash or two, `-flag=value` and, unless it is true or false, `-flag value`; the last one counts, of those that may be repeated each. Throws ValueError for what is none, with the nearest name. */
export function fromArguments(argv: readonly string[]): Given {
  const given = new Map<FlagName, Said>()
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] as string
    const [, name = '', , value] = /^--?([^-=][^=]*)(=([\s\S]*))?$/.exec(word) ?? []
    if (name === '') throw new ValueError(`Cannot read ${shown(word)}: want a flag, which begins with a dash${/^(true|false|[01tf])$/i.test(word) ? '; one that is true or false takes its value after =' : ''}`)
    if (!Object.hasOwn(FLAGS, name)) throw new ValueError(`Cannot read ${/^[\w.-]{1,80}$/.test(name) ? `--${name}` : shown(`--${name}`)}: there is no such flag${nearest(name, '--')}`)
    const { kind }: Flag = FLAGS[name as FlagName]
    const text = value ?? (kind === 'flag' ? 'true' : argv[++i])
    if (text === undefined) throw new ValueError(`Cannot read --${name}: want a value after it`)
    add(given, name as FlagName, { values: [text], at: `--${name}`, from: 'flag' })
  }
  return given
}

/** Variables FLANNELD_NAME of the environment; an empty one is none (flannel pkg/flagutil). `unknown` are those of that form which no setting has. */
export function fromEnvironment(env: Readonly<Record<string, string | undefined>>): { given: Given; unknown: string[] } {
  const variables = new Map(Object.keys(FLAGS).map((name) => [variableOf(name as FlagName), name as FlagName]))
  const given = new Map<FlagName, Said>()
  for (const [variable, name] of variables) if (env[variable]) given.set(name, { values: [env[variable]], at: variable, from: 'environment' })
  if (env['NODE_NAME'] && !given.has('node-name')) given.set('node-name', { values: [env['NODE_NAME']], at: 'NODE_NAME', from: 'environment' })
  return { given, unknown: Object.keys(env).filter((variable) => variable.startsWith('FLANNELD_') && !variables.has(variable)) }
}

/** The environment variable of a setting. */
export function variableOf(name: FlagName): string {
  return `FLANNELD_${name.toUpperCase().replaceAll('-', '_')}`
}

/** The keys of a YAML file, each the name of a flag; a list for those that may be repeated or are separated by commas; null is absent. Throws ValueError naming file, line and column. */
export function fromFile({ path, text }: SettingsFile): Given {
  if (text.length > FILE_CHARACTERS) throw new ValueError(`Cannot read ${path}: want a file of at most ${FILE_CHARACTERS} characters, not ${text.length}`)
  const lines = new LineCounter()
  const document = parsed(path, text, lines)
  const where = (offset: number) => {
    const { line, col } = lines.linePos(offset)
    return `${path}:${line}:${col}`
  }
  const [error] = document.errors
  if (error && /call stack/.test(error.message)) throw new ValueError(`Cannot read ${path}: it is nested too deep`)
  if (error) throw new ValueError(`Cannot read ${where(error.pos[0])}: ${printable(error.message)}`)
  const map = document.contents as unknown
  if (map === null || (isScalar(map) && map.value === null)) return new Map()
  if (!isMap(map)) throw new ValueError(`Cannot read ${path}: want names and values, such as "store: etcd"`)
  const given = new Map<FlagName, Said>()
  for (const { key, value } of map.items) {
    const name = isScalar(key) ? String(key.value) : ''
    const at = where((key as Node).range?.[0] ?? 0)
    if (!inFiles(name)) throw new ValueError(`Cannot read ${at}: there is no setting ${shown(firstOf(name))} for a file${nearest(name)}`)
    const values = valuesOf(value as Node | null, name as FlagName)
    if (values === undefined) throw new ValueError(`Cannot read ${where((value as Node).range?.[0] ?? 0)}: ${name}: want ${isPlural(name as FlagName) ? 'a value or a list of values' : 'one value'}`)
    if (values.length > 0) given.set(name as FlagName, { values, at: `${where((value as Node).range?.[0] ?? 0)}: ${name}`, from: 'file' })
  }
  return given
}

// A colon that is missing makes the value part of the name, and that may be a password.
function firstOf(name: string): string {
  return name.replace(/\s.*/s, ' …')
}

// Those of one call.
function inFiles(name: string): boolean {
  return Object.hasOwn(FLAGS, name) && !['config', 'check-config', 'version'].includes(name)
}

// What is nested a hundred thousand deep ends the parser with the stack.
function parsed(path: string, text: string, lineCounter: LineCounter): ReturnType<typeof parseDocument> {
  try {
    return parseDocument(text, { lineCounter, prettyErrors: false })
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause
    throw new ValueError(`Cannot read ${path}: it is nested too deep`, { cause })
  }
}

interface YamlMap {
  readonly items: readonly { readonly key: unknown; readonly value: unknown }[]
}

function isMap(value: unknown): value is YamlMap {
  return typeof value === 'object' && value !== null && 'items' in value && !isSeq(value)
}

function valuesOf(node: Node | null, name: FlagName): string[] | undefined {
  if (node === null || (isScalar(node) && node.value === null)) return []
  if (isSeq(node) && isPlural(name)) {
    const all = node.items.map((item) => (isScalar(item) ? valuesOf(item, name) : undefined))
    return all.every((one) => one?.length === 1) ? all.flatMap((one) => one ?? []) : undefined
  }
  // A number stays as it is written: 010 is no address' part and no port.
  return isScalar(node) ? [typeof node.value === 'string' ? node.value : (node.source ?? String(node.value))] : undefined
}

function isPlural(name: FlagName): boolean {
  const { kind }: Flag = FLAGS[name]
  return kind === 'texts' || kind === 'list'
}

function add(given: Map<FlagName, Said>, name: FlagName, said: Said): void {
  const before = isPlural(name) ? (given.get(name)?.values ?? []) : []
  given.set(name, { ...said, values: [...before, ...said.values] })
}

// People write keys of YAML as etcdPrefix or etcd_prefix, too.
function nearest(name: string, dashes = ''): string {
  const known = Object.keys(FLAGS).filter((one) => dashes !== '' || inFiles(one))
  const plain = Object.hasOwn(FLAGS, name) ? '' : name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`).replaceAll('_', '-')
  return suggestion(plain, new Map(known.map((one) => [one, `${dashes}${one}`])))
}
