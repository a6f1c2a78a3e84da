import type { Call, Verbs } from '../cni/call.ts'
import type { DelegatingPlugin, InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { CniError, CODE } from '../text/errors.ts'
import { common, readLoose } from '../text/shape.ts'
import { readConf } from './call.ts'
import { interfaces } from './interface.ts'

/** The verbs of a plugin that is another one under keys of its own: its configuration is judged by these keys, then put into those of the other, whose verbs they are from there on. */
export function delegating<C extends NetConf>(plugin: DelegatingPlugin<C>): Verbs {
  const whole = (call: Call) => through(plugin, call, readConf(plugin, call))
  return {
    add: async (call) => whole(call).then(({ other, inner }) => interfaces(other).add(inner)),
    check: async (call) => whole(call).then(({ other, inner }) => interfaces(other).check(inner)),
    del: async (call) => through(plugin, call, readLoose(plugin.conf, call.raw)).then(({ other, inner }) => interfaces(other).del(inner)),
    gc: async (call) => whole(call).then(({ other, inner }) => interfaces(other).gc(inner)),
    status: async (call) => whole(call).then(({ other, inner }) => interfaces(other).status(inner)),
  }
}

const KEPT = new Set([...Object.keys(common), 'runtimeConfig'].map((key) => key.toLowerCase()))

/** The plugin that does the work, and the call as it gets it. Throws CniError 999 when this executable has no such plugin. */
export async function through<C extends NetConf>({ to, translate }: DelegatingPlugin<C>, call: Call, conf: Partial<C>): Promise<{ readonly other: InterfacePlugin<NetConf>; readonly inner: Call }> {
  const other = await call.io.plugin(to)
  if (other?.role !== 'interface') throw new CniError(CODE.internal, `Cannot find the plugin ${to} in this executable`)
  const raw = { ...Object.fromEntries(Object.entries(call.raw).filter(([key]) => KEPT.has(key.toLowerCase()))), ...translate(conf) }
  // No CNI_PATH: the pool is this executable's own, too, and reads `raw`.
  return { other, inner: { ...call, at: { ...call.at, path: [] }, raw } }
}
