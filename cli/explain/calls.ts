import type { Call, Io } from '../../lib/cni/call.ts'
import type { Plugin } from '../../lib/cni/plugin.ts'
import { netnsState } from '../../lib/os/netns.ts'
import type { Cached } from '../../lib/runtime/cache.ts'
import { type Host, titleOf } from '../../lib/runtime/invoke.ts'
import type { Json, NetworkList, PluginConf } from '../../lib/runtime/network-list.ts'
import { type RuntimeConf, requestOf } from '../../lib/runtime/requests.ts'
import { forDel, requirePod } from '../../lib/verbs/call.ts'
import { errorOf, readCall } from '../../lib/verbs/serve.ts'
import { Refused } from '../output.ts'
import { isOurs, visible } from './visibility.ts'

/** What is to be explained: an attachment to a network, and where plugins are found. */
export interface Subject {
  readonly list: NetworkList
  readonly at: RuntimeConf
  readonly host: Host
  /** What the runtime remembers of it. */
  readonly cached: Cached | undefined
  /** Its namespace only stands for one that was not named. */
  readonly isExample: boolean
  /** A plugin of this executable. */
  readonly load: Io['plugin']
  /** What a program that is not plumb's answers to ADD, when that is known. */
  readonly answer: Json | undefined
}

/** The call that a plugin of this executable would get, judged as it would judge it. Throws what it would answer. */
export function callOf(command: 'ADD' | 'DEL', { list, at, host, load }: Subject, conf: PluginConf, plugin: Plugin, prevResult: Json | undefined): Call {
  const { env, config } = requestOf(command, list, conf, at, prevResult)
  const io: Io = { env: { ...process.env, ...env, CNI_PATH: host.path.join(':') }, stdin: () => config, answer: unreachable, run: unreachable, plugin: load, isOurs }
  return readCall(plugin, command, io)
}

/** Refuses what ADD would refuse as a pod's namespace; one that is not there, or that this user must not look at, passes. Throws CniError. */
export function mayBePod(call: Call): void {
  const { netns } = call.at
  if (netns !== undefined && visible(() => netnsState(netns) !== 'gone')) requirePod(call)
}

/** The same of DEL, which takes any but plumb's own. Throws CniError. */
export function mayBeDeleted(call: Call): void {
  visible(() => forDel(call))
}

/** Does work that a plugin would do; what it would answer with in its place becomes what the runtime would say of it. Throws Refused. */
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
