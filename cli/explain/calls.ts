import type { Call, Io } from '../../lib/cni/call.ts'
import type { Plugin } from '../../lib/cni/plugin.ts'
import { netnsState } from '../../lib/os/netns.ts'
import type { Cached } from '../../lib/runtime/cache.ts'
import { type Host, titleOf } from '../../lib/runtime/invoke.ts'
import type { Json, NetworkList, PluginConf } from '../../lib/runtime/network-list.ts'
import { type RuntimeConf, requestOf } from '../../lib/runtime/requests.ts'
import { errorOf } from '../../lib/text/errors.ts'
import { forDel, requirePod } from '../../lib/verbs/call.ts'
import { readCall } from '../../lib/verbs/serve.ts'
import { Refused } from '../output.ts'
import { isOurs, visible } from './visibility.ts'

/** The subject of an explanation: an attachment to a network, and where plugins are found. */
export interface Subject {
  readonly list: NetworkList
  readonly at: RuntimeConf
  readonly host: Host
  /** The runtime's cache entry of the attachment. */
  readonly cached: Cached | undefined
  /** True when the user named no namespace. The namespace in `at` is then an example. */
  readonly isExample: boolean
  /** Loads a plugin of this executable. */
  readonly load: Io['plugin']
  /** The ADD result of a program that is not plumb's, when that result is known. */
  readonly answer: Json | undefined
}

/**
 * Builds the call that a plugin of this executable would get, and checks the call as the plugin would. Throws the error
 * that the plugin would answer.
 */
export function callOf(
  command: 'ADD' | 'DEL',
  { list, at, host, load }: Subject,
  conf: PluginConf,
  plugin: Plugin,
  prevResult: Json | undefined,
): Call {
  const { env, config } = requestOf(command, list, conf, at, prevResult)
  const io: Io = {
    env: { ...process.env, ...env, CNI_PATH: host.path.join(':') },
    stdin: () => config,
    answer: unreachable,
    run: unreachable,
    plugin: load,
    isOurs,
  }
  return readCall(plugin, command, io)
}

/**
 * Refuses a namespace that ADD would refuse as a pod's namespace. A namespace that does not exist passes. A namespace
 * that this user may not look at passes too. Throws CniError.
 */
export function mayBePod(call: Call): void {
  const { netns } = call.at
  if (netns !== undefined && visible(() => netnsState(netns) !== 'gone')) requirePod(call)
}

/**
 * The same check for DEL. DEL accepts every namespace except the namespace that plumb itself runs in. Throws CniError.
 */
export function mayBeDeleted(call: Call): void {
  visible(() => forDel(call))
}

/** Does the work of a plugin. Changes its error into the error that the runtime would report. Throws Refused. */
export async function asPlugin<T>(type: string, command: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    const { code, msg, details } = errorOf(cause)
    throw new Refused(code, `${titleOf(type, command)}: ${msg}`, details, { cause })
  }
}

function unreachable(): never {
  throw new Error('explain starts no process and answers no call')
}
