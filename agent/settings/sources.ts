import { isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { printable } from '../../lib/text/printable.ts'
import { suggestion } from '../../lib/text/shape.ts'
import { FLAGS, type Flag, type FlagName } from './flags.ts'

/** A given setting: its values as text, and their place for messages. */
export interface Said {
  readonly values: readonly string[]
  readonly at: string
  readonly from: 'flag' | 'environment' | 'file'
}
/** A settings file. The caller has read it. */
export interface SettingsFile {
  readonly path: string
  readonly text: string
}
/** The given settings by name. */
export type Given = ReadonlyMap<FlagName, Said>

// All settings with comments take a tenth of this. For megabytes of other text, the parser takes gigabytes and minutes.
const FILE_CHARACTERS = 65_536

/**
 * Reads flags by the rules of Go's flag package. A flag has one dash or two. `-flag=value` always works, and `-flag
 * value` works for flags that are not true or false. The last value counts. A flag that may be repeated keeps all
 * values. Throws ValueError for an unknown flag, with the nearest name.
 */
export function fromArguments(argv: readonly string[]): Given {
  const given = new Map<FlagName, Said>()
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] as string
    const [, name = '', , value] = /^--?([^-=][^=]*)(=([\s\S]*))?$/.exec(word) ?? []
    if (name === '') {
      const isValue = /^(true|false|[01tf])$/i.test(word)
      const hint = isValue ? '; one that is true or false takes its value after =' : ''
      throw new ValueError(`Cannot read ${shown(word)}: want a flag, which begins with a dash${hint}`)
    }
    if (!Object.hasOwn(FLAGS, name)) {
      const flag = /^[\w.-]{1,80}$/.test(name) ? `--${name}` : shown(`--${name}`)
      throw new ValueError(`Cannot read ${flag}: there is no such flag${nearest(name, '--')}`)
    }
    const { kind }: Flag = FLAGS[name as FlagName]
    const text = value ?? (kind === 'flag' ? 'true' : argv[++i])
    if (text === undefined) throw new ValueError(`Cannot read --${name}: want a value after it`)
    add(given, name as FlagName, { values: [text], at: `--${name}`, from: 'flag' })
  }
  return given
}

/**
 * Reads the variables FLANNELD_NAME. An empty variable counts as unset (flannel pkg/flagutil). `unknown` has the
 * FLANNELD_ variables without a matching setting.
 */
export function fromEnvironment(env: Readonly<Record<string, string | undefined>>): {
  given: Given
  unknown: string[]
} {
  const variables = new Map(Object.keys(FLAGS).map((name) => [variableOf(name as FlagName), name as FlagName]))
  const given = new Map<FlagName, Said>()
  for (const [variable, name] of variables)
    if (env[variable]) given.set(name, { values: [env[variable]], at: variable, from: 'environment' })
  if (env['NODE_NAME'] && !given.has('node-name'))
    given.set('node-name', { values: [env['NODE_NAME']], at: 'NODE_NAME', from: 'environment' })
  return {
    given,
    unknown: Object.keys(env).filter((variable) => variable.startsWith('FLANNELD_') && !variables.has(variable)),
  }
}

/** The environment variable of a setting. */
export function variableOf(name: FlagName): string {
  return `FLANNELD_${name.toUpperCase().replaceAll('-', '_')}`
}

/**
 * Reads a YAML file. Each key is the name of a flag. A setting that may be repeated or is separated by commas may have
 * a list. null counts as absent. Throws ValueError that names file, line and column.
 */
export function fromFile({ path, text }: SettingsFile): Given {
  if (text.length > FILE_CHARACTERS)
    throw new ValueError(
      `Cannot read ${path}: want a file of at most ${FILE_CHARACTERS} characters, not ${text.length}`,
    )
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
    if (!inFiles(name))
      throw new ValueError(`Cannot read ${at}: there is no setting ${shown(firstOf(name))} for a file${nearest(name)}`)
    const values = valuesOf(value as Node | null, name as FlagName)
    if (values?.length === 0) continue
    const place = `${where((value as Node).range?.[0] ?? 0)}: ${name}`
    if (values === undefined) {
      const want = isPlural(name as FlagName) ? 'a value or a list of values' : 'one value'
      throw new ValueError(`Cannot read ${place}: want ${want}`)
    }
    given.set(name as FlagName, { values, at: place, from: 'file' })
  }
  return given
}

// If a colon is missing, the value becomes part of the name. The value may be a password, so messages do not show it.
function firstOf(name: string): string {
  return name.replace(/\s.*/s, ' …')
}

// These flags are for the command line only.
function inFiles(name: string): boolean {
  return Object.hasOwn(FLAGS, name) && !['config', 'check-config', 'version'].includes(name)
}

// A text with a hundred thousand levels of nesting overflows the stack of the parser.
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
  if (!isScalar(node)) return undefined
  // A number keeps its spelling. 010 is not a valid part of an address and not a valid port.
  return [typeof node.value === 'string' ? node.value : (node.source ?? String(node.value))]
}

function isPlural(name: FlagName): boolean {
  const { kind }: Flag = FLAGS[name]
  return kind === 'texts' || kind === 'list'
}

function add(given: Map<FlagName, Said>, name: FlagName, said: Said): void {
  const before = isPlural(name) ? (given.get(name)?.values ?? []) : []
  given.set(name, { ...said, values: [...before, ...said.values] })
}

// Users also write YAML keys as etcdPrefix or etcd_prefix.
function nearest(name: string, dashes = ''): string {
  const known = Object.keys(FLAGS).filter((one) => dashes !== '' || inFiles(one))
  const dashed = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`).replaceAll('_', '-')
  const plain = Object.hasOwn(FLAGS, name) ? '' : dashed
  return suggestion(plain, new Map(known.map((one) => [one, `${dashes}${one}`])))
}
