import type { Call, Done, Verbs } from '../cni/call.ts'
import { readArgs } from '../cni/environment.ts'
import type { InterfacePlugin, MetaPlugin, NetConf, Rendered } from '../cni/plugin.ts'
import { compare, decode, encode } from '../cni/versions.ts'
import { log } from '../os/log.ts'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'
import { readLoose } from '../text/shape.ts'
import { forDel, readConf, requirePod, requirePrevious, throwAll, validAttachments } from './call.ts'
import { findPlugin, runDelegate } from './delegate.ts'
import { interfaces } from './interface.ts'
import { delegate as poolOf } from './pool.ts'
import { forget, keep, leftFor, type SavedConf, savedFor, savedForOthers } from './saved-conf.ts'

/**
 * The verbs of a plugin that delegates to another plugin. ADD keeps the delegate's configuration on disk until the
 * delegate's DEL has succeeded. DEL needs nothing else.
 */
export function meta<C extends NetConf>(plugin: MetaPlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    del: (call) => del(plugin, call),
    gc: (call) => gc(plugin, call),
    async status(call) {
      const { verbs, inner } = await delegate(await plugin.render(readConf(plugin, call), 'STATUS'), call)
      await verbs.status(inner)
    },
  }
}

async function add<C extends NetConf>(plugin: MetaPlugin<C>, call: Call): Promise<Done> {
  const { at } = call
  const conf = readConf(plugin, call)
  requirePod(call)
  const { verbs, inner, foreign } = await delegate(await plugin.render(conf, 'ADD'), call)
  const dir = plugin.dataDir(conf)
  const isAgain = savedFor(dir, at) !== undefined
  const restore = keep(dir, at, inner.text)
  try {
    const done = await verbs.add(inner)
    const undo = async () => {
      await done.undo?.()
      restore()
    }
    return { ...done, undo }
  } catch (cause) {
    // After a failed ADD the caller must send DEL to the delegate (CNI spec 1.1.0 section 4). A repeated ADD sends no
    // DEL, because that would remove the live attachment. A plugin of this executable has undone its ADD already.
    const undone = !foreign || isAgain || (await verbs.del(inner).then(() => true, lost))
    if (undone) restore()
    throw cause
  }
}

async function check<C extends NetConf>(plugin: MetaPlugin<C>, call: Call): Promise<void> {
  const conf = readConf(plugin, call)
  requirePod(call)
  requirePrevious(call)
  const { at } = call
  const kept = savedFor(plugin.dataDir(conf), at)
  if (!kept?.conf)
    throw new CniError(
      CODE.unknownContainer,
      `Cannot find what was made for ${at.ifname} of container ${at.containerId} in network ${at.network}`,
      `${kept?.path ?? plugin.dataDir(conf)} does not tell; delete the pod`,
    )
  const { verbs, inner } = await delegate(previously(kept.conf, call), call)
  await verbs.check(inner)
}

async function del<C extends NetConf>(plugin: MetaPlugin<C>, call: Call): Promise<void> {
  const { at } = forDel(call)
  const conf = readLoose(plugin.conf, call.raw)
  const kept = savedFor(plugin.dataDir(conf), at)
  if (kept?.conf) {
    const { verbs, inner } = await delegate(previously(kept.conf, call), call)
    await verbs.del(inner)
  } else await unkept(plugin.outline(conf), call)
  for (const path of [kept?.path, leftFor(plugin.dataDir(conf), at)]) if (path !== undefined) forget(path)
}

// DEL without a readable kept file: there was no ADD, or the disk lost the file. plumb's own plugins find their objects
// by the attachment alone, so they get a DEL. Another program, or a pool that is another program, is left out. It would
// need the configuration of ADD.
async function unkept(
  outline: Rendered & { readonly ipam?: { readonly type?: string; readonly ranges?: unknown } },
  call: Call,
): Promise<void> {
  const { ipam, ...bare } = outline
  const pool = ipam?.type && !ipam.ranges ? await poolOf(ipam.type, call).catch(() => undefined) : undefined
  const found = await delegate(pool?.foreign ? bare : outline, call).catch(lost)
  if (found && !found.foreign) await found.verbs.del(found.inner)
}

async function gc<C extends NetConf>(plugin: MetaPlugin<C>, call: Call): Promise<void> {
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  const failures: Error[] = []
  const attempt = (work: Promise<void>) =>
    work.then(
      () => true,
      (cause: Error) => failures.push(cause) === 0,
    )
  const stale = valid ? savedForOthers(plugin.dataDir(conf), call.at.network, valid) : []
  const gone: SavedConf[] = []
  for (const one of stale) if (await attempt(drop(one, call))) gone.push(one)
  const lists = Object.fromEntries(Object.entries(call.raw).filter(([key]) => key.startsWith('cni.dev/')))
  const isDone = await attempt(
    delegate({ ...plugin.outline(conf), ...lists }, call).then(({ verbs, inner }) => verbs.gc(inner)),
  )
  // The delegate's GC also removes the objects of files that `drop` skips. So the files go only after its success.
  if (isDone) for (const { path } of gone) forget(path)
  throwAll(failures, call)
}

// Sends DEL to the delegate of a kept file. The delegate may not support GC, or the network may use another plugin type
// today. Skips files of the flannel plugin, because they name no interface. Skips hashed container ids, because the
// real id is unknown.
async function drop({ conf, containerId, ifname }: SavedConf, call: Call): Promise<void> {
  if (!conf || ifname === undefined || containerId.startsWith('+')) return
  const { netns: _, ...at } = { ...call.at, containerId, ifname } as Owner & Call['at']
  const env = { ...call.io.env, CNI_CONTAINERID: containerId, CNI_IFNAME: ifname, CNI_NETNS: '' }
  const { verbs, inner } = await delegate(conf, { ...call, at, io: { ...call.io, env } })
  await verbs.del(inner)
}

/** The verbs of a delegate, and the call for it. `foreign`: the delegate is another program. */
interface Delegated {
  readonly verbs: Verbs
  readonly inner: Call
  readonly foreign: boolean
}

const WANTED = { roles: ['interface'], what: 'delegate plugin', key: 'delegate.type', example: 'bridge' } as const

async function delegate(conf: Rendered, call: Call): Promise<Delegated> {
  const { found, inner } = await findDelegate(conf, call)
  return typeof found === 'string'
    ? { verbs: program(found), inner, foreign: true }
    : { verbs: interfaces(found), inner, foreign: false }
}

/**
 * Finds the plugin of a configuration, or the path of another program, and makes the call for it. Throws ValueError for
 * a bad type or a configuration that is nested too deep. Throws CniError 7 (50 for STATUS) without such a plugin.
 */
export async function findDelegate(
  conf: Rendered,
  call: Call,
): Promise<{ readonly found: string | InterfacePlugin<NetConf>; readonly inner: Call }> {
  const found = await findPlugin(conf.type, WANTED, call)
  // Uses the values that this call was read with. The user's configuration may have a key twice, in upper and lower
  // case. A kept configuration has its own values, which count.
  const raw = { name: call.at.network, cniVersion: call.version, ...conf }
  const text = json(raw)
  if (text === undefined)
    throw new ValueError(`Cannot pass the configuration on to ${shown(conf.type)}: want values nested less deep`)
  const inner = { ...call, raw, text }
  return {
    found,
    inner: typeof found === 'string' ? inner : { ...inner, at: { ...call.at, args: argsFor(found, call) } },
  }
}

// JSON.stringify overflows the stack for deeply nested values that JSON.parse can read.
function json(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}

// Each plugin knows different keys in CNI_ARGS, so CNI_ARGS is parsed again for the delegate.
function argsFor({ args }: InterfacePlugin<NetConf>, { command, at, io }: Call): Call['at']['args'] {
  return args && (command === 'ADD' || command === 'CHECK') ? readArgs(io.env['CNI_ARGS'] ?? '', args) : at.args
}

// The kept configuration, with two parts of this call. prevResult has the CNI version of today's configuration, so the
// version is replaced too. runtimeConfig is added when ADD had none: a list that had `portmap` as its own plugin at ADD
// may have it inside the delegate today.
function previously(kept: Rendered, { raw, version }: Call): Rendered {
  const given = (name: string) => Object.entries(raw).find(([key]) => key.toLowerCase() === name)?.[1]
  const [prevResult, runtimeConfig] = [given('prevresult'), given('runtimeconfig')]
  const isReplaced = prevResult && json(prevResult) !== undefined && compare(version, '0.4.0') >= 0
  const isAdded = runtimeConfig && json(runtimeConfig) !== undefined && kept['runtimeConfig'] === undefined
  const now = isReplaced ? { ...kept, cniVersion: version, prevResult } : kept
  return isAdded ? { ...now, runtimeConfig } : now
}

function program(file: string): Verbs {
  const verb = (command: string) => async (call: Call) => void (await runDelegate(file, command, call, WANTED.what))
  return {
    async add(call) {
      const text = answered(file, await runDelegate(file, 'ADD', call, WANTED.what), call.version)
      return { text, undo: () => verb('DEL')(call) }
    },
    check: verb('CHECK'),
    del: verb('DEL'),
    gc: verb('GC'),
    status: verb('STATUS'),
  }
}

// Returns the result unchanged, so that unknown keys of the delegate survive. Converts it only when its CNI version is
// not the wanted one.
function answered(file: string, stdout: string, version: string): string {
  try {
    const raw = JSON.parse(stdout)
    const result = decode(raw, version, 'the result')
    return (raw.cniVersion ?? version) === version ? stdout : encode(result, version)
  } catch (cause) {
    throw new CniError(
      CODE.internal,
      `Cannot read what the ${WANTED.what} ${file} answered`,
      `${(cause as Error).message}: ${shown(stdout)}`,
      { cause },
    )
  }
}

function lost(cause: Error): false {
  log(`plumb: Cannot remove what a delegate may have made: ${cause.message}`)
  return false
}
