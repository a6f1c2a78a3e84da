import { isTraced, traced } from '../scheduler/spans.ts'
import type { SubnetStore } from './store.ts'

/** The requests of a store that are spans. What follows leases lasts as long as the agent, and is none. */
const REQUESTS: readonly (keyof SubnetStore)[] = ['config', 'claim', 'release', 'remembered', 'ready', 'unready']

/** The same store. Each request to it is a span, when anybody takes spans. */
export function tracedStore(store: SubnetStore): SubnetStore {
  if (!isTraced()) return store
  const attributes = { 'plumb.store': store.state().name }
  return new Proxy(store, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      if (!REQUESTS.includes(key as keyof SubnetStore)) return value.bind(target)
      return (...given: unknown[]) =>
        traced(`store ${String(key)}`, { kind: 'client', attributes }, async () => value.apply(target, given))
    },
  })
}
