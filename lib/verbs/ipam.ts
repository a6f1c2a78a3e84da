import type { Call, Verbs } from '../cni/call.ts'
import type { IpamPlugin, NetConf, Pool } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { encode } from '../cni/versions.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Ip } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import { readLoose } from '../text/shape.ts'
import { readConf, requirePrevious, validAttachments } from './call.ts'

/** The verbs of an address pool that was started as a separate program. */
export function ipam<C extends NetConf>(plugin: IpamPlugin<C>): Verbs {
  const open = (call: Call) => openPool(plugin, call)
  return {
    async add(call) {
      const pool = open(call)
      const result = await takeFrom(pool, call.at)
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
      else if (!pool.holds(call.at)) throw new CniError(CODE.unknownContainer, `Cannot find an address of container ${call.at.containerId} on ${call.at.ifname} in network ${call.at.network}`, 'its reservation is gone; delete the pod')
    },
    async del(call) {
      plugin.pool(readLoose(plugin.conf, call.raw), call.at).release(call.at)
    },
    async gc(call) {
      const valid = validAttachments(call)
      if (valid) open(call).keepOnly(valid)
    },
    async status(call) {
      const pool = open(call)
      try {
        pool.ready()
      } catch (cause) {
        // The next ADD takes back what an earlier boot left.
        if (!((await pool.takeBack?.(true)) ?? 0)) throw cause
      }
    },
  }
}

/** Takes addresses. A pool that cannot give them first takes back what an earlier boot left. Throws like `take`. */
export async function takeFrom(pool: Pool, owner: Owner, former?: readonly Ip[]): Promise<Result> {
  try {
    return pool.take(owner, former)
  } catch (cause) {
    if (!(cause instanceof CniError) || !((await pool.takeBack?.()) ?? 0)) throw cause
    return pool.take(owner, former)
  }
}

/** The pool of a call's configuration. Throws ValueError for a configuration that the plugin cannot serve. */
export function openPool<C extends NetConf>(plugin: IpamPlugin<C>, call: Call): Pool {
  return plugin.pool(readConf(plugin, call), call.at)
}
