import { entries } from '../../lib/journal/journal.ts'
import type { Admission } from '../../lib/state/kinds/admission.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Pod } from '../cluster/objects.ts'

/** An attachment of a pod of this node, which the plugin `policy` announced to the agent. */
export type Endpoint = Admission['endpoint']

/** The attachments that the journal of the plugins has. An agent that starts knows them before the API answers. */
export function journaled(): Endpoint[] {
  return entries().flatMap(({ parts }) =>
    (parts['policy']?.own ?? []).flatMap((one) => (one.kind === 'admission' ? [one.endpoint] : [])),
  )
}

/** The key of a pod among the objects of the cluster. */
export function podKey({ namespace, pod }: Pick<Endpoint, 'namespace' | 'pod'>): string {
  return `${namespace}/${pod}`
}

/**
 * The attachments of this node. An admitted address belongs to its pod from ADD on, before the API knows it. A released
 * address belongs to nobody, although the API may name it for a while.
 */
export class Endpoints {
  readonly #changed: (pod: string) => void
  readonly #all = new Map<string, Endpoint>()
  readonly #byPod = new Map<string, Set<string>>()
  readonly #byAddress = new Map<Ip, string>()
  /** Of released pods: the addresses that the API's Pod had then. */
  readonly #released = new Map<string, readonly Ip[]>()

  /** `changed` is called with the key of a pod whose addresses may have changed. */
  constructor(changed: (pod: string) => void) {
    this.#changed = changed
  }

  /**
   * Takes an attachment. An earlier one with the same container and interface goes. An address of another attachment
   * moves to this one.
   */
  admit(endpoint: Endpoint): void {
    const id = idOf(endpoint)
    const before = this.#all.get(id)
    if (before) this.#drop(id, before)
    for (const ip of endpoint.addresses) {
      const other = this.#all.get(this.#byAddress.get(ip) ?? '')
      if (other) this.#replace({ ...other, addresses: other.addresses.filter((one) => one !== ip) })
    }
    this.#replace(endpoint)
    this.#released.delete(podKey(endpoint))
    if (before && podKey(before) !== podKey(endpoint)) this.#changed(podKey(before))
    this.#changed(podKey(endpoint))
  }

  /**
   * Forgets an attachment. The addresses of the Pod object, `pod`, do not count from now on, until the object has
   * others: they may be another pod's a moment later. Gives the attachment. Undefined when it is unknown.
   */
  release(
    { containerId, ifname }: Pick<Endpoint, 'containerId' | 'ifname'>,
    pod: (key: string) => Pod | undefined,
  ): Endpoint | undefined {
    const id = idOf({ containerId, ifname })
    const found = this.#all.get(id)
    if (!found) return undefined
    this.#drop(id, found)
    const key = podKey(found)
    const object = pod(key)
    if (object && !this.#byPod.has(key)) this.#released.set(key, object.ips)
    this.#changed(key)
    return found
  }

  /** Notes that the object of a pod is gone. The next object of that name is another pod's. */
  objectGone(pod: string): void {
    this.#released.delete(pod)
  }

  /** The attachments of a pod. */
  of(pod: string): readonly Endpoint[] {
    return [...(this.#byPod.get(pod) ?? [])].map((id) => this.#all.get(id) as Endpoint)
  }

  /** All attachments. */
  all(): readonly Endpoint[] {
    return [...this.#all.values()]
  }

  /** The pod that has an address by ADD. Undefined when no ADD gave it. */
  ownerOf(ip: Ip): string | undefined {
    const owner = this.#all.get(this.#byAddress.get(ip) ?? '')
    return owner && podKey(owner)
  }

  /**
   * The addresses of a pod: those of its attachments, else those of the API. Without the addresses that an ADD gave
   * another pod, and without those of a released pod. Gives the API's own list when it counts as it is.
   */
  addressesOf(pod: Pick<Pod, 'namespace' | 'name' | 'ips'>): readonly Ip[] {
    const key = podKey({ namespace: pod.namespace, pod: pod.name })
    const own = this.of(key)
    if (own.length > 0) return own.flatMap(({ addresses }) => addresses)
    const released = this.#released.get(key)
    if (released && isSame(released, pod.ips)) return []
    this.#released.delete(key)
    return pod.ips.some((ip) => this.#byAddress.has(ip)) ? pod.ips.filter((ip) => !this.#byAddress.has(ip)) : pod.ips
  }

  #replace(endpoint: Endpoint): void {
    const [id, key] = [idOf(endpoint), podKey(endpoint)]
    const before = this.#all.get(id)
    if (before) this.#drop(id, before)
    this.#all.set(id, endpoint)
    this.#byPod.set(key, (this.#byPod.get(key) ?? new Set()).add(id))
    for (const ip of endpoint.addresses) this.#byAddress.set(ip, id)
    if (before) this.#changed(key)
  }

  #drop(id: string, endpoint: Endpoint): void {
    const key = podKey(endpoint)
    this.#all.delete(id)
    const ids = this.#byPod.get(key)
    ids?.delete(id)
    if (ids?.size === 0) this.#byPod.delete(key)
    for (const ip of endpoint.addresses) if (this.#byAddress.get(ip) === id) this.#byAddress.delete(ip)
  }
}

function idOf({ containerId, ifname }: Pick<Endpoint, 'containerId' | 'ifname'>): string {
  return `${containerId} ${ifname}`
}

function isSame(one: readonly Ip[], other: readonly Ip[]): boolean {
  return one.length === other.length && one.every((ip, i) => ip === other[i])
}
