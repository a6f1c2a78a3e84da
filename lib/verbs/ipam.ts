import type { Call, Verbs } from '../cni/call.ts'
import type { IpamPlugin, NetConf, Pool } from '../cni/plugin.ts'
import { encode } from '../cni/versions.ts'
import { CniError, CODE } from '../text/errors.ts'
import { readLoose } from '../text/shape.ts'
import { readConf, requirePrevious, validAttachments } from './call.ts'

/** The verbs of an address pool that was started as a separate program. */
export function ipam<C extends NetConf>(plugin: IpamPlugin<C>): Verbs {
  const open = (call: Call) => openPool(plugin, call)
  return {
    async add(call) {
      const pool = open(call)
      const result = await pool.take(call.at)
      const undo = async () => pool.release(call.at)
      try {
        return { text: encode(result, call.version), undo }
      } catch (cause) {
        await undo()
        throw cause
      }
    },
    async check(call) {
      const pool = open(call)
      if (pool.check) pool.check(requirePrevious(call))
      else if (!pool.holds(call.at))
        throw new CniError(
          CODE.unknownContainer,
          `Cannot find an address of container ${call.at.containerId} on ${call.at.ifname} in network ${call.at.network}`,
          'its reservation is gone; delete the pod',
        )
    },
    async del(call) {
      plugin.pool(readLoose(plugin.conf, call.raw), call.at).release(call.at)
    },
    async gc(call) {
      const valid = validAttachments(call)
      if (valid) open(call).keepOnly(valid)
    },
    async status(call) {
      await open(call).ready()
    },
  }
}

/** The pool of a call's configuration. Throws ValueError for a configuration that the plugin cannot serve. */
export function openPool<C extends NetConf>(plugin: IpamPlugin<C>, call: Call): Pool {
  return plugin.pool(readConf(plugin, call), call.at)
}
