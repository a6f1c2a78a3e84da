import { isDeep } from './json.ts'
import { printable } from './printable.ts'

/** The CNI error codes that plumb returns. Source: CNI spec 1.1.0 "Error", and skel for 8 (reference upstream). */
export const CODE = {
  version: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  env: 4,
  io: 5,
  decode: 6,
  config: 7,
  netns: 8,
  tryLater: 11,
  notReady: 50,
  limited: 51,
  internal: 999,
} as const

/**
 * Bad input. The message names the place, the value and the expected form: `Cannot read mtu "x": want a whole number`.
 */
export class ValueError extends Error {
  override name = 'ValueError'
}

/**
 * The error that a failed CNI call writes to stdout: `code` from the spec, a short `message`, `details` for the rest.
 */
export class CniError extends Error {
  override name = 'CniError'
  readonly code: number
  readonly details: string
  constructor(code: number, msg: string, details = '', options?: ErrorOptions) {
    super(msg, options)
    this.code = code
    this.details = details
  }
}

/** A failed tool: its argv, the input line at which it stopped (when the tool named that line), and its message. */
export class ExecError extends Error {
  override name = 'ExecError'
  readonly said: string
  readonly tool: string
  readonly line: string | undefined
  constructor(argv: readonly string[], line: string | undefined, said: string, options?: ErrorOptions) {
    super(`${argv.join(' ')}${line ? `: ${line}` : ''}: ${said}`, options)
    this.said = said
    this.tool = argv[0] ?? ''
    this.line = line
  }
}

// An error message shows less than this. A string of hundreds of megabytes must not be copied.
const LONGEST = 200

/**
 * A value in the form for error messages: quoted, escaped, and cut at 80 characters, so that a hostile value cannot
 * flood a log.
 */
export function shown(value: unknown): string {
  return shownUpTo(80, value)
}

/** The same, cut at another number of characters. */
export function shownUpTo(most: number, value: unknown): string {
  const longest = Math.max(LONGEST, most)
  const text = isDeep(value)
    ? 'a value nested too deep to show'
    : printable(JSON.stringify(typeof value === 'string' ? value.slice(0, longest) : value) ?? String(value))
  return text.length > most ? `${text.slice(0, most - 3)}…${typeof value === 'string' ? '"' : ''}` : text
}

/**
 * A phrase that names the missing kernel module and the remedy, for a line that ip refused. Undefined when the line was
 * refused for another reason.
 */
export function missingModule(line: string | undefined, said: string): string | undefined {
  const advice = (module: string) => `modprobe ${module}, or install the kernel's package of further modules`
  // ip asks the kernel for the module's family of generic netlink, and ends when there is none.
  if (/^fou /.test(line ?? '') && /Error talking to the kernel/.test(said))
    return `this kernel has no module fou: ${advice('fou')}`
  if (!/Unknown device type|Operation not supported/.test(said)) return undefined
  const [, kind] = /^link add .*\btype ([a-z0-9]+)/.exec(line ?? '') ?? []
  return kind && `this kernel has no links of type ${kind}: ${advice(kind)}`
}

/** The oldest versions that know every keyword plumb uses. */
const WANTED = 'want iproute2 5.18 and nftables 1.0 or later, as a distribution packages them'
/** The limit in characters for `msg` and `details`. Every normal message is shorter. A hostile message is cut. */
const LIMIT = 4096

/** Converts any failure to the fields of a CNI error object. `msg` and `details` are cut to LIMIT and safe to print. */
export function errorOf(cause: unknown): { readonly code: number; readonly msg: string; readonly details: string } {
  const { code, message, details } = translate(cause)
  return { code, msg: brief(message), details: brief(details) }
}

function translate(cause: unknown): { code: number; message: string; details: string } {
  if (cause instanceof CniError) return cause
  if (cause instanceof ValueError) return { code: CODE.config, message: cause.message, details: '' }
  if (cause instanceof ExecError) {
    const { tool, line, said } = cause
    if (line === undefined)
      return { code: CODE.internal, message: `Cannot use ${tool}: ${said}`, details: `${cause.message}; ${WANTED}` }
    const missing = missingModule(line, said)
    if (missing)
      return {
        code: CODE.internal,
        message: `The kernel or a tool refused: ${said}`,
        details: `${missing}; ${cause.message}`,
      }
    const isOld = /unknown|garbage|syntax error|usage:/i.test(said)
    return {
      code: CODE.internal,
      message: `The kernel or a tool refused: ${said}`,
      details: isOld ? `${cause.message}; ${WANTED}` : cause.message,
    }
  }
  const { code, errno, syscall = 'use', path = '', message } = cause as NodeJS.ErrnoException
  if (typeof errno === 'number')
    return { code: CODE.io, message: `Cannot ${syscall} ${path ? shown(path) : 'a file'}: ${code}`, details: message }
  return {
    code: CODE.internal,
    message: `Unexpected failure${placeOf(cause)}: ${message ?? String(cause)}`,
    details: 'this is a fault of plumb; please report it with the configuration',
  }
}

// The function and the line of the source that threw an error, from the first line of its stack that names both.
function placeOf(cause: unknown): string {
  const [, name, file] =
    /^ *at (?:async )?(\S+) \((?:\S*\/)?((?:lib|plugins)\/\S+?:\d+)/m.exec((cause as Error | undefined)?.stack ?? '') ??
    []
  return name === undefined ? '' : ` in ${name} (${file})`
}

// Runtimes write messages to logs and terminals unchanged.
function brief(text: string): string {
  const lines = (text.length > LIMIT ? `${text.slice(0, LIMIT - 1)}…` : text).split('\n')
  return lines.map(printable).join('\n')
}
