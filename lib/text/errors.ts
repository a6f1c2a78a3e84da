import { isDeep } from './json.ts'
import { printable } from './printable.ts'

/** The CNI error codes that plumb answers with. Source: CNI spec 1.1.0 "Error", and skel for 8 (reference upstream). */
export const CODE = { version: 1, unsupportedField: 2, unknownContainer: 3, env: 4, io: 5, decode: 6, config: 7, netns: 8, tryLater: 11, notReady: 50, limited: 51, internal: 999 } as const

/** Bad input. The message names where it stood, the value, and what would be right: `Cannot read mtu "x": want a whole number`. */
export class ValueError extends Error {
  override name = 'ValueError'
}

/** What a CNI call answers with on stdout when it fails: `code` from the spec, `message` a short sentence, `details` the rest. */
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

/** A tool that failed: its argv, the line of input it stopped at (when it named one), and what it said. */
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

// Of more than is shown nothing is needed, and of hundreds of megabytes there can be no copy.
const LONGEST = 200

/** A value as error messages show it: quoted, escaped, and cut at 80 characters so that a hostile one cannot flood a log. */
export function shown(value: unknown): string {
  const text = isDeep(value) ? 'a value nested too deep to show' : printable(JSON.stringify(typeof value === 'string' ? value.slice(0, LONGEST) : value) ?? String(value))
  return text.length > 80 ? `${text.slice(0, 77)}…${typeof value === 'string' ? '"' : ''}` : text
}

/** The kernel module that a refused line of ip needs and that is not there, with what to do, in a phrase; undefined when it was refused for another reason. */
export function missingModule(line: string | undefined, said: string): string | undefined {
  if (!/Unknown device type|Operation not supported/.test(said)) return undefined
  const [, kind] = /^link add .*\btype ([a-z0-9]+)/.exec(line ?? '') ?? []
  return kind && `this kernel has no links of type ${kind}: modprobe ${kind}, or install the kernel's package of further modules`
}
