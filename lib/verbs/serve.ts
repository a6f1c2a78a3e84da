// This folder has the verbs of the CNI protocol: ADD, CHECK, DEL, GC and STATUS, for each role of a plugin. Begin with
// `serve` in this file. Then read add.ts for ADD of an interface plugin, and removal.ts for its DEL and GC.
import type { Call, Done, Io, Verbs } from '../cni/call.ts'
import { type Command, readArgs, readAttachment, readCommand } from '../cni/environment.ts'
import type { Attachment, Plugin } from '../cni/plugin.ts'
import { newest, supported, versionAnswer } from '../cni/spec.ts'
import { gate } from '../cni/versions.ts'
import { beginCall } from '../os/deadline.ts'
import { env } from '../os/door.ts'
import { run } from '../os/exec.ts'
import { fs } from '../os/fs.ts'
import { log } from '../os/log.ts'
import { netnsState } from '../os/netns.ts'
import { toStdout } from '../os/stdout.ts'
import { CniError, CODE, ExecError, errorOf, shown } from '../text/errors.ts'
import { isDeep, isDeepText } from '../text/json.ts'
import { parse } from '../text/values.ts'
import { chained } from './chained.ts'
import { custom } from './custom.ts'
import { delegating } from './delegating.ts'
import { interfaces } from './interface.ts'
import { meta } from './meta.ts'
import { ipam, leases } from './pools.ts'
import { beginReport } from './report.ts'

/**
 * The limits for the configuration: its length in characters, and its depth of nesting. The length is three times that
 * of a GC with 100,000 attachments. Some texts need fifteen times their size in memory when they are parsed.
 */
const [MOST, DEEPEST] = [2 ** 25, 100]
/**
 * The limit of nesting for DEL, GC and STATUS, so that they can remove what any ADD made. The engine's parser has no
 * room for much more.
 */
const DEEPEST_REMOVED = 1000

/** What is known of a call while it runs: the CNI version for its answer, and at its end the error. */
interface Seen {
  version: string
  error?: { readonly code: number; readonly msg: string }
}

/**
 * Serves one CNI call from start to exit code: 0, or 1 with one error object on stdout (CNI spec 1.1.0 sections 2 and
 * 5). Never throws.
 */
export async function serve(plugin: Plugin, io: Io, seen: Seen = { version: newest }): Promise<0 | 1> {
  try {
    const command = readCommand(io.env)
    if (command === undefined)
      for (const line of [plugin.about, `CNI protocol versions supported: ${supported.join(', ')}`]) log(line)
    else if (command === 'VERSION') io.answer(versionAnswer())
    else await perform(plugin, command, io, seen)
    return 0
  } catch (cause) {
    const { code, msg, details } = errorOf(cause)
    seen.error = { code, msg }
    const answer = { cniVersion: seen.version, code, msg, ...(details ? { details } : {}) }
    try {
      io.answer(JSON.stringify(answer, null, 4))
    } catch (lost) {
      log(`Cannot write the error to stdout: ${(lost as Error).message}`, { code, msg, details })
    }
    return 1
  }
}

/**
 * Parses and checks a call, as far as this is the same for every plugin. Sets `seen.version` as soon as the CNI version
 * for the answer is known. Throws CniError.
 */
export function readCall(plugin: Plugin, command: Command, io: Io, seen: Seen = { version: newest }): Call {
  const unnamed = readAttachment(command, io.env)
  const text = input(io)
  // Results are written with indentation, so the size of a nested value grows with the square of its depth.
  const raw = parseObject(text, command === 'ADD' || command === 'CHECK' ? DEEPEST : DEEPEST_REMOVED)
  const network = name(raw)
  const version = versionOf(raw)
  if (supported.includes(version)) seen.version = version
  gate(command, version)
  const args =
    plugin.args && (command === 'ADD' || command === 'CHECK')
      ? readArgs(io.env['CNI_ARGS'] ?? '', plugin.args)
      : new Map<string, string>()
  return { command, at: { ...unnamed, network, args }, text, raw, version, io }
}

async function perform(plugin: Plugin, command: Command, io: Io, seen: Seen): Promise<void> {
  const call = readCall(plugin, command, io, seen)
  const verbs = verbsOf(plugin)
  if (command === 'DEL') return removed(verbs, call)
  if (command !== 'ADD') return verbs[command.toLowerCase() as 'check' | 'del' | 'gc' | 'status'](call)
  const done = await added(verbs, call)
  try {
    io.answer(done.text ?? '')
  } catch (cause) {
    await done.undo?.()
    throw new CniError(
      CODE.io,
      'Cannot write the result to stdout',
      `what was made is removed again: ${(cause as Error).message}`,
      { cause },
    )
  }
  afterwards(done, call)
}

// The runtime has the result, so nothing can fail the call any more.
function afterwards({ delivered }: Done, { at: { containerId } }: Call): void {
  try {
    delivered?.()
  } catch (cause) {
    log(`plumb: Cannot note that the ADD has ended: ${(cause as Error).message}`, { container: containerId })
  }
}

function verbsOf(plugin: Plugin): Verbs {
  switch (plugin.role) {
    case 'interface':
      return interfaces(plugin)
    case 'chained':
      return chained(plugin)
    case 'ipam':
      return ipam(plugin)
    case 'lease':
      return leases(plugin)
    case 'delegating':
      return delegating(plugin)
    case 'meta':
      return meta(plugin)
    default:
      return custom(plugin)
  }
}

// The namespace may go while DEL works in it. Without it the same DEL removes the rest.
async function removed(verbs: Verbs, call: Call): Promise<void> {
  try {
    await verbs.del(call)
  } catch (cause) {
    const { netns } = call.at
    const isOver = cause instanceof CniError && cause.code === CODE.unknownContainer
    const isGone = netns !== undefined && ['gone', 'other'].includes(netnsState(netns))
    if (!isOver && !(cause instanceof ExecError && isGone)) throw cause
    await verbs.del(call)
  }
}

// A tool fails with many messages when its namespace disappears. The error then names the missing namespace.
async function added(verbs: Verbs, call: Call): Promise<Done> {
  try {
    return await verbs.add(call)
  } catch (cause) {
    const { netns } = call.at
    if (!(cause instanceof ExecError) || netns === undefined || !['gone', 'other'].includes(netnsState(netns)))
      throw cause
    throw new CniError(CODE.unknownContainer, `The network namespace ${netns} has gone meanwhile`, cause.message, {
      cause,
    })
  }
}

function input(io: Io): string {
  const text = given(io)
  if (text.length > MOST)
    throw new CniError(
      CODE.decode,
      `Cannot read the configuration: it has ${text.length} characters`,
      `want ${MOST} at most`,
    )
  return text
}

function given(io: Io): string {
  try {
    return io.stdin()
  } catch (cause) {
    if (cause instanceof CniError) throw cause
    throw new CniError(CODE.io, 'Cannot read the configuration from stdin', (cause as Error).message, { cause })
  }
}

function parseObject(text: string, deepest: number): Record<string, unknown> {
  const tooDeep = `Cannot read the configuration: it is nested more than ${deepest} deep`
  // Before the parser: a deep value is a fault also where a second key of its name would replace it.
  if (isDeepText(text, DEEPEST_REMOVED)) throw new CniError(CODE.decode, tooDeep)
  let raw: unknown
  try {
    raw = JSON.parse(text)
  } catch (cause) {
    // With a small stack the parser ends earlier.
    if (isDeepText(text, deepest)) throw new CniError(CODE.decode, tooDeep, '', { cause })
    throw new CniError(
      CODE.decode,
      'Cannot read the configuration: it is not JSON',
      `it begins ${shown(text.slice(0, 60))}`,
      { cause },
    )
  }
  if (isDeep(raw, deepest)) throw new CniError(CODE.decode, tooDeep)
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new CniError(CODE.decode, `Cannot read the configuration ${shown(raw)}: want a JSON object`)
  return raw as Record<string, unknown>
}

function name(raw: Readonly<Record<string, unknown>>): Attachment['network'] {
  const given = anyCase(raw, 'name')
  if (given === undefined || given === null || given === '')
    throw new CniError(CODE.config, 'missing network name', 'want "name" in the configuration')
  try {
    return parse.network(given)
  } catch (cause) {
    throw new CniError(
      CODE.config,
      'invalid characters found in network name',
      `Cannot read name ${(cause as Error).message}`,
      { cause },
    )
  }
}

function versionOf(raw: Readonly<Record<string, unknown>>): string {
  const given = anyCase(raw, 'cniVersion') ?? ''
  if (typeof given !== 'string')
    throw new CniError(CODE.decode, `Cannot read cniVersion ${shown(given)}: want a string`)
  return given || '0.1.0'
}

function anyCase(raw: Readonly<Record<string, unknown>>, key: string): unknown {
  if (Object.hasOwn(raw, key)) return raw[key]
  const found = Object.keys(raw).find((one) => one.toLowerCase() === key.toLowerCase())
  return found === undefined ? undefined : raw[found]
}

/** Converts any failure to code, message and details, at full length. */
/**
 * Serves the CNI call of this process as the plugin `name`. `load` finds a plugin of this executable by type. Returns
 * the exit status.
 */
export async function serveProcess(name: string, load: Io['plugin']): Promise<0 | 1> {
  beginCall()
  const io: Io = { env, stdin: () => fs.readAllSync(0), answer: toStdout, run, plugin: load }
  const report = beginReport(name, env)
  const seen: Seen = { version: newest }
  const status = await serve((await load(name)) as Plugin, io, seen)
  if (env['CNI_COMMAND']) report(seen.error)
  return status
}
