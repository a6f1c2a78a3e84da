import type { Call, Verbs } from '../cni/call.ts'
import type { Attachment, IpamPlugin, LeasePlugin, NetConf, Pool } from '../cni/plugin.ts'
import { encode } from '../cni/versions.ts'
import { CniError, CODE } from '../text/errors.ts'
import { readLoose } from '../text/shape.ts'
import { forDel, readConf, requirePod, requirePrevious, validAttachments } from './call.ts'

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
      else if (!pool.holds(call.at)) throw notHeld(call.at)
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

function notHeld({ containerId, ifname, network }: Attachment): CniError {
  const fact = `Cannot find an address of container ${containerId} on ${ifname} in network ${network}`
  return new CniError(CODE.unknownContainer, fact, 'its reservation is gone; delete the pod')
}

/** The pool of a call's configuration. Throws ValueError for a configuration that the plugin cannot serve. */
export function openPool<C extends NetConf>(plugin: IpamPlugin<C>, call: Call): Pool {
  return plugin.pool(readConf(plugin, call), call.at)
}

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
