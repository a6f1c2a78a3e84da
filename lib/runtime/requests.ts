import type { NetnsPath } from '../text/values.ts'
import type { Cached, Key } from './cache.ts'
import type { CallEnv } from './invoke.ts'
import type { Json, NetworkList, PluginConf } from './network-list.ts'

/** One attachment as the runtime asks for it. For one container there is one operation at a time: that is the caller's part (CNI spec 1.1.0 "Lifecycle & Ordering"). */
export interface RuntimeConf {
  readonly containerId: Key['containerId']
  readonly ifname: Key['ifname']
  /** '' when the namespace is not known any more: DEL only. */
  readonly netns: NetnsPath | ''
  /** CNI_ARGS; what ADD was given, when left out. */
  readonly args?: readonly (readonly [string, string])[]
  /** By capability; what ADD was given, when left out. */
  readonly capabilityArgs?: Json
}

/** What one plugin of a list is called with: the variables, and its configuration as text for its standard input. */
export function requestOf(command: 'ADD' | 'CHECK' | 'DEL', list: NetworkList, { conf, capabilities }: PluginConf, at: RuntimeConf, prevResult: Json | undefined): { readonly env: CallEnv; readonly config: string } {
  const supplied = capabilities.filter((name) => Object.hasOwn(at.capabilityArgs ?? {}, name)).map((name) => [name, at.capabilityArgs?.[name]])
  const config = configOf(list, conf, { ...(prevResult && { prevResult }), ...(supplied.length > 0 && { runtimeConfig: Object.fromEntries(supplied) }) })
  return { env: envOf(command, at), config }
}

/** The plugin's object with what the runtime adds; `capabilities` is for the runtime and stays out (CNI spec 1.1.0 "Deriving request configuration from plugin configuration"). */
export function configOf(list: NetworkList, conf: Json, extra: Json): string {
  const added: Json = { cniVersion: list.cniVersion, name: list.name, ...extra }
  const ours = new Set(['capabilities', 'prevresult', ...Object.keys(added).map((key) => key.toLowerCase())])
  const kept = Object.entries(conf).filter(([key]) => !ours.has(key.toLowerCase()))
  return JSON.stringify({ ...Object.fromEntries(kept), ...added })
}

/** The variables of a call; every one is set, so that none of the caller's own environment gets through. */
export function envOf(command: string, at?: RuntimeConf): CallEnv {
  const args = at?.args?.map((pair) => pair.join('=')).join(';') ?? ''
  return { CNI_COMMAND: command, CNI_CONTAINERID: at?.containerId ?? '', CNI_NETNS: at?.netns ?? '', CNI_IFNAME: at?.ifname ?? '', CNI_ARGS: args }
}

/** An attachment with what ADD was told of it, where the caller does not say otherwise. */
export function restored(at: RuntimeConf, cached: Cached | undefined): RuntimeConf {
  return { args: cached?.args ?? [], capabilityArgs: cached?.capabilityArgs ?? {}, ...at }
}
