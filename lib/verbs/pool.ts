import type { Call } from '../cni/call.ts'
import type { IpamPlugin, LeasePlugin, NetConf, Pool } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { decode, encode, hasFamilies } from '../cni/versions.ts'
import { CniError, CODE, shown } from '../text/errors.ts'
import type { Ip } from '../text/ip.ts'
import { readConf } from './call.ts'
import { findPlugin, runDelegate } from './delegate.ts'
import { ipam, leases, openPool } from './pools.ts'

/** A pool that an interface plugin delegates to, in this process or as another program (CNI spec 1.1.0 section 4). */
export interface Delegate {
  /** The pool is another program. A failed `add` may leave reservations that only `del` frees. */
  readonly foreign: boolean
  /** Whether the pool gets addresses through the container's link. Then the link must exist from `add` until `del`. */
  readonly byLink: boolean
  /**
   * Throws for a request that the pool can never satisfy, before anything is made. Does nothing for another program:
   * only `add` tells.
   */
  valid(): void
  /** `former` are addresses that the attachment had before. They are taken where they are free. */
  add(former?: readonly Ip[]): Promise<Result>
  check(): Promise<void>
  del(): Promise<void>
  gc(): Promise<void>
  status(): Promise<void>
}

const WANTED = { roles: ['ipam', 'lease'], what: 'IPAM plugin', key: 'ipam.type', example: 'host-local' } as const

/** Finds the pool that `ipam.type` names along CNI_PATH. Throws CniError 7 with the type and the searched folders. */
export async function delegate(type: string, call: Call): Promise<Delegate> {
  const found = await findPool(type, call)
  if (typeof found === 'string') return program(found, call, type)
  if (found.role === 'lease') return leased(found, call)
  const verbs = ipam(found)
  let opened: Pool | undefined
  const pool = () => (opened ??= openPool(found, call))
  return {
    foreign: false,
    byLink: false,
    valid: () => pool().valid(),
    add: async (former) => inVersion(await pool().take(call.at, former), call.version),
    check: () => verbs.check(call),
    del: () => verbs.del(call),
    gc: () => verbs.gc(call),
    status: () => verbs.status(call),
  }
}

/**
 * Reduces a pool's answer to the fields that the CNI version has, because another program's result would not hold more.
 * CNI 0.1.0 and
 * 0.2.0 keep only destination and gateway of a route. They keep one address per family, and no route of a family
 * without an address.
 */
export function inVersion(result: Result, version: string): Result {
  return hasFamilies(version) ? decode(JSON.parse(encode(result, version)), version, 'the IPAM result') : result
}

/** The pool of a type: a plugin of this executable, or the path of another program. Throws like `delegate`. */
export function findPool(type: string, call: Call): Promise<IpamPlugin<NetConf> | LeasePlugin<NetConf> | string> {
  return findPlugin(type, WANTED, call)
}

function leased(plugin: LeasePlugin<NetConf>, call: Call): Delegate {
  const verbs = leases(plugin)
  const args = call.io.env['CNI_ARGS'] ?? ''
  return {
    foreign: false,
    byLink: true,
    valid: () => plugin.valid(readConf(plugin, call), args),
    add: async () => inVersion(await plugin.add(readConf(plugin, call), call.at, args), call.version),
    check: () => verbs.check(call),
    del: () => verbs.del(call),
    gc: () => verbs.gc(call),
    status: () => verbs.status(call),
  }
}

function program(file: string, call: Call, type: string): Delegate {
  const start = (command: string) => runDelegate(file, command, call, WANTED.what)
  const verb = (command: string) => async () => void (await start(command))
  return {
    foreign: true,
    // The reference dhcp plugin asks through the link, like plumb's.
    byLink: type === 'dhcp',
    valid() {},
    async add() {
      const stdout = await start('ADD')
      try {
        // A pool has no interfaces (CNI spec 1.1.0 section 4). If its result names some, they must not appear as the
        // attachment's.
        const { interfaces: _, ...result } = decode(JSON.parse(stdout), call.version, 'the IPAM result')
        return result
      } catch (cause) {
        throw new CniError(
          CODE.internal,
          `Cannot read what the IPAM plugin ${file} answered`,
          `${(cause as Error).message}: ${shown(stdout)}`,
          { cause },
        )
      }
    },
    check: verb('CHECK'),
    del: verb('DEL'),
    gc: verb('GC'),
    status: verb('STATUS'),
  }
}
