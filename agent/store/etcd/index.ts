import { type NetworkConf, parseNetworkConf } from '../../lease/network-configuration.ts'
import { pause } from '../../scheduler/pause.ts'
import { snapshots } from '../snapshots.ts'
import { StoreError, type SubnetStore } from '../store.ts'
import { type Claiming, claim, release } from './claim.ts'
import { Connection } from './connection.ts'
import { follow } from './follow.ts'
import { decode, keysBelow } from './keys.ts'
import { type EtcdOptions, prefixOf, ttlOf } from './options.ts'
import { View } from './view.ts'

/** The options of the store. */
export type { EtcdOptions as Options } from './options.ts'

// Half a second is what a person does not notice.
const CONFIG_MS = 500

/** The store that flannel has: etcd, version 3, its keys and values byte for byte flannel's. Nothing is sent before the first call. Throws ValueError for options that cannot be used. */
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
        to.view.tell(changed, ended)
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

async function config({ etcd, keys }: { readonly etcd: Connection; readonly keys: ReturnType<typeof keysBelow> }, signal: AbortSignal): Promise<NetworkConf> {
  while (!signal.aborted) {
    try {
      const { kvs } = await etcd.call(({ kv }, options) => kv.range({ key: keys.config }, options), signal)
      const [found] = kvs
      if (found) return parseNetworkConf(decode(found.value))
    } catch (cause) {
      // Told by the state, until there is an answer.
      if (!(cause instanceof StoreError)) throw cause
    }
    await pause(CONFIG_MS, signal)
  }
  throw new StoreError(etcd.state().error ?? `etcd: there is no network configuration at ${decode(keys.config)}`)
}
