import type { Call, Verbs } from '../cni/call.ts'
import type { CustomPlugin, NetConf } from '../cni/plugin.ts'
import { encode } from '../cni/versions.ts'
import { readLoose } from '../text/shape.ts'
import { forDel, readConf, requirePod } from './call.ts'

/**
 * The verbs of a plugin with its own ADD, CHECK and DEL. Adds the parsing, the namespace check and the result's form.
 */
export function custom<C extends NetConf>(plugin: CustomPlugin<C>): Verbs {
  return {
    async add(call: Call) {
      const conf = readConf(plugin, call)
      requirePod(call)
      return { text: encode(await plugin.add(conf, call.at, call.io.run), call.version) }
    },
    async check(call) {
      const conf = readConf(plugin, call)
      requirePod(call)
      await plugin.check(conf, call.at, call.io.run)
    },
    async del(call) {
      await plugin.del(readLoose(plugin.conf, call.raw), forDel(call).at, call.io.run)
    },
    async gc() {},
    async status() {},
  }
}
