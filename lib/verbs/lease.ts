import type { Call, Verbs } from '../cni/call.ts'
import type { LeasePlugin, NetConf } from '../cni/plugin.ts'
import { encode } from '../cni/versions.ts'
import { readLoose } from '../text/shape.ts'
import { forDel, readConf, requirePod, requirePrevious, validAttachments } from './call.ts'

/** The verbs of a pool that gets addresses through the container's link (dhcp), started as a separate program. */
export function leases<C extends NetConf>(plugin: LeasePlugin<C>): Verbs {
  return {
    async add(call: Call) {
      const conf = readConf(plugin, call)
      const args = call.io.env['CNI_ARGS'] ?? ''
      plugin.valid(conf, args)
      requirePod(call)
      const result = await plugin.add(conf, call.at, args)
      return { text: encode(result, call.version), undo: () => plugin.del(conf, call.at) }
    },
    async check(call) {
      requirePrevious(call)
      await plugin.check(readConf(plugin, call), call.at)
    },
    async del(call) {
      await plugin.del(readLoose(plugin.conf, call.raw), forDel(call).at)
    },
    async gc(call) {
      const valid = validAttachments(call)
      if (valid) await plugin.gc(readConf(plugin, call), valid)
    },
    async status(call) {
      await plugin.status(readConf(plugin, call))
    },
  }
}
