import type { Cached } from './cache.ts'
import type { CallEnv } from './invoke.ts'
import type { Json, NetworkList, PluginConf } from './network-list.ts'
import type { RuntimeConf } from './runtime.ts'

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
