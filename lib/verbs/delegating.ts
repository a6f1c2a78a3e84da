import type { Call, Verbs } from '../cni/call.ts'
import type { DelegatingPlugin, InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { CniError, CODE } from '../text/errors.ts'
import { common, readLoose } from '../text/shape.ts'
import { readConf } from './call.ts'
import { interfaces } from './interface.ts'

/**
 * The verbs of a plugin that is another interface plugin under different keys. The configuration is validated with the
 * plugin's own keys and then translated to the keys of the other plugin. The other plugin does the work.
 */
export function delegating<C extends NetConf>(plugin: DelegatingPlugin<C>): Verbs {
  const whole = (call: Call) => through(plugin, call, readConf(plugin, call))
  return {
    add: async (call) => whole(call).then(({ other, inner }) => interfaces(other).add(inner)),
    check: async (call) => whole(call).then(({ other, inner }) => interfaces(other).check(inner)),
    del: async (call) =>
      through(plugin, call, readLoose(plugin.conf, call.raw)).then(({ other, inner }) => interfaces(other).del(inner)),
    gc: async (call) => whole(call).then(({ other, inner }) => interfaces(other).gc(inner)),
    status: async (call) => whole(call).then(({ other, inner }) => interfaces(other).status(inner)),
  }
}

const KEPT = new Set([...Object.keys(common), 'runtimeConfig'].map((key) => key.toLowerCase()))

/**
 * The plugin that does the work, and the call with the translated configuration. Throws CniError 999 when this
 * executable has no such plugin.
 */
export async function through<C extends NetConf>(
  { to, translate }: DelegatingPlugin<C>,
  call: Call,
  conf: Partial<C>,
): Promise<{ readonly other: InterfacePlugin<NetConf>; readonly inner: Call }> {
  const other = await call.io.plugin(to)
  if (other?.role !== 'interface') throw new CniError(CODE.internal, `Cannot find the plugin ${to} in this executable`)
  const raw = {
    ...Object.fromEntries(Object.entries(call.raw).filter(([key]) => KEPT.has(key.toLowerCase()))),
    ...translate(conf),
  }
  // CNI_PATH is empty, so the pool is also a plugin of this executable. It reads `raw`. A program would get `text` with
  // the old keys.
  return { other, inner: { ...call, at: { ...call.at, path: [] }, raw } }
}
