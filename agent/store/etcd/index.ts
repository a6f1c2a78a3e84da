// The etcd store: leases of nodes in etcd, in flannel's format. Begin to read here. `claim.ts` and `write.ts` claim a
// lease. `view.ts` and `follow.ts` keep all leases up to date. `connection.ts` talks to the members.
import { type NetworkConf, parseNetworkConf } from '../../lease/network-configuration.ts'
import { pause } from '../../scheduler/pause.ts'
import { StoreError, type SubnetStore, snapshots } from '../store.ts'
import { type Claiming, claim, release } from './claim.ts'
import { Connection } from './connection.ts'
import { follow } from './follow.ts'
import { decode, keysBelow } from './keys.ts'
import { type EtcdOptions, prefixOf, ttlOf } from './options.ts'
import { View } from './view.ts'

/** The options of the store. */
export type { EtcdOptions as Options } from './options.ts'

// A user does not notice half a second.
const CONFIG_MS = 500

/**
 * Opens the etcd store (etcd version 3), the store of flannel. Keys and values match flannel byte for byte. Nothing is
 * sent before the first call. Throws ValueError for invalid options.
 */
export function open(options: EtcdOptions): SubnetStore {
  const [etcd, keys] = [new Connection(options), keysBelow(prefixOf(options))]
  const to: Claiming = { etcd, keys, view: new View(keys), ttlSeconds: ttlOf(options) }
  const closing = new AbortController()
  const until = (signal: AbortSignal) => AbortSignal.any([signal, closing.signal])
  return {
    config: (signal) => config(to, until(signal)),
    claim: (draft, conf, signal) => claim(to, draft, conf, until(signal)),
    leases(signal) {
      const followed = async (changed: () => void, ended: AbortSignal) => {
        to.view.subscribe(changed, ended)
        await follow(to, ended)
      }
      return snapshots(() => to.view.snapshot(), followed, until(signal))
    },
    release: (node, identity) => release(to, node, identity, closing.signal),
    state: () => etcd.state(),
    async close() {
      closing.abort()
      etcd.close()
    },
  }
}

async function config(
  { etcd, keys }: { readonly etcd: Connection; readonly keys: ReturnType<typeof keysBelow> },
  signal: AbortSignal,
): Promise<NetworkConf> {
  const none = `etcd: there is no network configuration at ${decode(keys.config)}`
  let why = 'etcd has not answered yet'
  while (!signal.aborted) {
    try {
      const { kvs } = await etcd.call(({ kv }, options) => kv.range({ key: keys.config }, options), signal)
      const [found] = kvs
      if (found) return parseNetworkConf(decode(found.value))
      why = none
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      // An answer before the signal ended a further question still counts.
      if (why !== none) why = cause.message
    }
    await pause(CONFIG_MS, signal)
  }
  throw new StoreError(etcd.state().error ?? why)
}
