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
