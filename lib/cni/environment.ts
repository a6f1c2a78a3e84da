import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { parse } from '../text/values.ts'
import type { Attachment } from './plugin.ts'

/** The commands of CNI spec 1.1.0. */
export type Command = 'ADD' | 'DEL' | 'CHECK' | 'GC' | 'STATUS' | 'VERSION'

// The required variables. Source: skel's table, except CNI_PATH, because the spec makes it optional for all commands.
const NEEDED: Readonly<Record<Command, readonly string[]>> = {
  ADD: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
  CHECK: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
  DEL: ['CNI_CONTAINERID', 'CNI_IFNAME'],
  GC: [],
  STATUS: [],
  VERSION: [],
}

/** Reads CNI_COMMAND. Undefined when it is not set. Throws CniError 4 for an unknown word. */
export function readCommand(env: Env): Command | undefined {
  const word = env['CNI_COMMAND']
  if (!word) return undefined
  if (!Object.hasOwn(NEEDED, word))
    throw new CniError(CODE.env, `unknown CNI_COMMAND: ${shown(word)}`, `want one of ${Object.keys(NEEDED).join(', ')}`)
  return word as Command
}

/**
 * Reads the attachment of a call from the environment. The network is not in it, because the configuration names it.
 * For GC and STATUS the container and the interface are placeholders that no attachment can have. Throws CniError 4
 * that names all missing variables, or the bad variable with its value.
 */
export function readAttachment(command: Command, env: Env): Omit<Attachment, 'network'> {
  const missing = NEEDED[command].filter((name) => !env[name])
  if (missing.length > 0) throw new CniError(CODE.env, `required env variables [${missing.join(',')}] missing`)
  const named = NEEDED[command].length > 0
  const netns =
    named && env['CNI_NETNS'] ? variable('CNI_NETNS', env, command === 'DEL' ? lenientNetns : parse.netns) : undefined
  return {
    containerId: named ? variable('CNI_CONTAINERID', env, parse.containerId) : ('' as Attachment['containerId']),
    ifname: named ? variable('CNI_IFNAME', env, parse.ifname) : ('' as Attachment['ifname']),
    ...(netns === undefined ? {} : { netns }),
    args: new Map(),
    path: (env['CNI_PATH'] ?? '').split(':').filter((dir) => dir !== ''),
  }
}

/**
 * Reads CNI_ARGS, `K=V;K=V`, for a plugin that knows these keys. CNI spec: other keys are an error unless IgnoreUnknown
 * is true. Throws CniError 4.
 */
export function readArgs(text: string, known: readonly string[]): ReadonlyMap<string, string> {
  const args = new Map<string, string>()
  for (const pair of text === '' ? [] : text.split(';')) {
    const [key, value, more] = pair.split('=')
    if (!key || value === undefined || more !== undefined)
      throw new CniError(CODE.env, `Cannot read CNI_ARGS: invalid pair ${shown(pair)}`, 'want KEY=VALUE;KEY=VALUE')
    args.set(key, value)
  }
  const ignore = (args.get('IgnoreUnknown') ?? 'false').toLowerCase()
  if (!['1', '0', 'true', 'false'].includes(ignore))
    throw new CniError(
      CODE.env,
      `Cannot read CNI_ARGS: IgnoreUnknown ${shown(args.get('IgnoreUnknown'))}: want 1, true, 0 or false`,
    )
  if (ignore === '1' || ignore === 'true') return args
  const unknown: string[] = []
  for (const [key, value] of args)
    if (key !== 'IgnoreUnknown' && !known.includes(key)) unknown.push(shown(`${key}=${value}`))
  if (unknown.length > 0)
    throw new CniError(
      CODE.env,
      `Cannot read CNI_ARGS: unknown args [${unknown.join(' ')}]`,
      `known are ${known.join(', ')}; IgnoreUnknown=1 lets others pass`,
    )
  return args
}

/**
 * Reads one value of CNI_ARGS with a parser. Undefined when it is absent or empty. Throws CniError 4 that names the key
 * and the value.
 */
export function argument<T>(
  { args }: Pick<Attachment, 'args'>,
  key: string,
  parser: (text: string) => T,
): T | undefined {
  const given = args.get(key)
  try {
    return given ? parser(given) : undefined
  } catch (cause) {
    throw cause instanceof ValueError
      ? new CniError(CODE.env, `Cannot read ${key} of CNI_ARGS ${cause.message}`, '', { cause })
      : cause
  }
}

/** The environment of the process. */
export type Env = Readonly<Record<string, string | undefined>>

function variable<T>(name: string, env: Env, parser: (value: unknown) => T): T {
  try {
    return parser(env[name])
  } catch (cause) {
    throw cause instanceof ValueError
      ? new CniError(CODE.env, `Cannot read ${name} ${cause.message}`, '', { cause })
      : cause
  }
}

// DEL accepts a bad namespace path. Such a namespace cannot be opened, but the objects on the host must still go.
function lenientNetns(value: unknown): Attachment['netns'] {
  try {
    return parse.netns(value)
  } catch {
    return undefined
  }
}
