import type { NetnsPath } from '../text/values.ts'
import type { Cached, Key } from './cache.ts'
import type { CallEnv } from './invoke.ts'
import type { Json, NetworkList, PluginConf } from './network-list.ts'

/**
 * One attachment that the runtime asks for. The caller makes sure that a container has one operation at a time (CNI
 * spec 1.1.0 "Lifecycle & Ordering").
 */
export interface RuntimeConf {
  readonly containerId: Key['containerId']
  readonly ifname: Key['ifname']
  /** Empty when the namespace is no longer known. Only DEL allows this. */
  readonly netns: NetnsPath | ''
  /** CNI_ARGS. Default: the arguments of ADD. */
  readonly args?: readonly (readonly [string, string])[]
  /** Arguments by capability. Default: the arguments of ADD. */
  readonly capabilityArgs?: Json
}

/** The call of one plugin of a list: the variables, and the configuration for its standard input. */
export function requestOf(
  command: 'ADD' | 'CHECK' | 'DEL',
  list: NetworkList,
  { conf, capabilities }: PluginConf,
  at: RuntimeConf,
  prevResult: Json | undefined,
): { readonly env: CallEnv; readonly config: string } {
  const supplied = capabilities
    .filter((name) => Object.hasOwn(at.capabilityArgs ?? {}, name))
    .map((name) => [name, at.capabilityArgs?.[name]])
  const config = configOf(list, conf, {
    ...(prevResult && { prevResult }),
    ...(supplied.length > 0 && { runtimeConfig: Object.fromEntries(supplied) }),
  })
  return { env: envOf(command, at), config }
}

/**
 * The plugin's object with the keys that the runtime adds. The key `capabilities` is for the runtime and is removed
 * (CNI spec 1.1.0 "Deriving request configuration from plugin configuration").
 */
export function configOf(list: NetworkList, conf: Json, extra: Json): string {
  const added: Json = { cniVersion: list.cniVersion, name: list.name, ...extra }
  const ours = new Set(['capabilities', 'prevresult', ...Object.keys(added).map((key) => key.toLowerCase())])
  const kept = Object.entries(conf).filter(([key]) => !ours.has(key.toLowerCase()))
  return JSON.stringify({ ...Object.fromEntries(kept), ...added })
}

/** The variables of a call. All of them are set, so that no variable of the caller's environment passes through. */
export function envOf(command: string, at?: RuntimeConf): CallEnv {
  const args = at?.args?.map((pair) => pair.join('=')).join(';') ?? ''
  return {
    CNI_COMMAND: command,
    CNI_CONTAINERID: at?.containerId ?? '',
    CNI_NETNS: at?.netns ?? '',
    CNI_IFNAME: at?.ifname ?? '',
    CNI_ARGS: args,
  }
}

/** An attachment with the arguments of its ADD, where the caller gives no others. */
export function restored(at: RuntimeConf, cached: Cached | undefined): RuntimeConf {
  return { args: cached?.args ?? [], capabilityArgs: cached?.capabilityArgs ?? {}, ...at }
}
