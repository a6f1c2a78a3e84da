import type { Io } from '../lib/cni/call.ts'
import type { InterfacePlugin, NetConf, Within } from '../lib/cni/plugin.ts'
import type { Host } from '../lib/runtime/invoke.ts'
import type { NetworkList } from '../lib/runtime/network-list.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { read, unknownKeys } from '../lib/text/shape.ts'
import { isOwnPlugin } from './target.ts'

/**
 * Refuses a network when a plugin of this executable does not know one of its keys. Otherwise a pod with a mistyped key
 * comes up, but on the wrong bridge. Container runtimes ignore unknown keys, as the reference does. Throws ValueError
 * that names each unknown key.
 */
export async function refuseUnknown(
  { name, cniVersion, plugins }: NetworkList,
  host: Host,
  load: Io['plugin'],
): Promise<void> {
  const found: string[] = []
  for (const { type, conf } of plugins) {
    const plugin = isOwnPlugin(type, host) ? await load(type) : undefined
    if (!plugin) continue
    const raw = { ...conf, name, cniVersion }
    found.push(...unknownKeys(plugin.conf, raw).map((text) => `plugin ${type}: ${text}`))
    if (plugin.role !== 'interface') continue
    for (const part of chainedIn(plugin, raw)) {
      const inner = await load(part.type)
      if (!inner) continue
      const unknown = unknownKeys(inner.conf, { name, cniVersion, type: part.type, ...part.conf })
      found.push(...unknown.map((text) => `plugin ${type}, ${shown(part.key)}: ${text}`))
    }
  }
  if (found.length === 0) return
  const advice = 'with --lenient plugins pass such keys over, as they do for a runtime'
  throw new ValueError(`Cannot use network ${name}: ${found.join('; ')}; ${advice}`)
}

// A value that cannot be used is no error here. The plugin refuses the value itself, with its own error code.
function chainedIn({ conf, within }: InterfacePlugin<NetConf>, raw: object): readonly Within[] {
  try {
    return within?.(read(conf, { ...raw, strict: false }).value) ?? []
  } catch (cause) {
    if (cause instanceof ValueError) return []
    throw cause
  }
}
