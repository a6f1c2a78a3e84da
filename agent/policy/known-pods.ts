import type { Ip } from '../../lib/text/ip.ts'
import type { Pod } from '../cluster/objects.ts'

/** A pod as the policies know it: the object, and the addresses that count. */
export interface KnownPod {
  readonly key: string
  readonly pod: Pod
  /** The addresses that ADD has admitted, else those of the object. */
  readonly ips: readonly Ip[]
  readonly isLocal: boolean
}

/** The pods that the policies know, by key, namespace and address. */
export class KnownPods {
  readonly #byKey = new Map<string, KnownPod>()
  readonly #byNamespace = new Map<string, Map<string, KnownPod>>()
  readonly #byIp = new Map<Ip, Set<string>>()

  get(key: string): KnownPod | undefined {
    return this.#byKey.get(key)
  }

  /** Replaces a pod, or removes it. */
  set(key: string, now: KnownPod | undefined): void {
    const before = this.#byKey.get(key)
    if (before) this.#remove(before)
    if (!now) return
    this.#byKey.set(key, now)
    const home = this.#byNamespace.get(now.pod.namespace) ?? new Map<string, KnownPod>()
    this.#byNamespace.set(now.pod.namespace, home.set(key, now))
    for (const ip of now.ips) this.#byIp.set(ip, (this.#byIp.get(ip) ?? new Set()).add(key))
  }

  #remove({ key, pod: { namespace }, ips }: KnownPod): void {
    this.#byKey.delete(key)
    const home = this.#byNamespace.get(namespace)
    home?.delete(key)
    if (home?.size === 0) this.#byNamespace.delete(namespace)
    for (const ip of ips) {
      const keys = this.#byIp.get(ip)
      keys?.delete(key)
      if (keys?.size === 0) this.#byIp.delete(ip)
    }
  }

  all(): Iterable<KnownPod> {
    return this.#byKey.values()
  }

  /** The pods of a namespace. */
  *of(namespace: string): Generator<KnownPod> {
    yield* this.#byNamespace.get(namespace)?.values() ?? []
  }

  /** The pods that have an address: one, unless an object is late to go. */
  *at(ip: Ip): Generator<KnownPod> {
    for (const key of this.#byIp.get(ip) ?? []) yield this.#byKey.get(key) as KnownPod
  }
}
