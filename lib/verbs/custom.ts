import type { Call, Verbs } from '../cni/call.ts'
import type { CustomPlugin, NetConf } from '../cni/plugin.ts'
import { encode } from '../cni/versions.ts'
import { inodeOf } from '../os/netns.ts'
import { occupy, takeTurn } from '../os/turns.ts'
import { readLoose } from '../text/shape.ts'
import { forDel, readConf, requirePod } from './call.ts'
import { podOf } from './journal-parts.ts'

/**
 * The verbs of a plugin with its own ADD, CHECK and DEL. Adds the parsing, the namespace check and the result's form.
 * ADD and DEL wait for the tools of an earlier call that was killed.
 */
export function custom<C extends NetConf>(plugin: CustomPlugin<C>): Verbs {
  return {
    async add(call: Call) {
      const conf = readConf(plugin, call)
      requirePod(call)
      takeTurn(podOf(call.at.netns && inodeOf(call.at.netns)), `another plugin in ${call.at.netns}`)
      return { text: encode(await plugin.add(conf, call.at, call.io.run), call.version) }
    },
    async check(call) {
      const conf = readConf(plugin, call)
      requirePod(call)
      await plugin.check(conf, call.at, call.io.run)
    },
    async del(call) {
      const { at } = forDel(call)
      if (at.netns) occupy(podOf(inodeOf(at.netns)))
      await plugin.del(readLoose(plugin.conf, call.raw), at, call.io.run)
    },
    async gc() {},
    async status() {},
  }
}
