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

/** The name of an attachment whose pod has no object: only an earlier or a later pod of its name has one. */
function strangerKey(endpoint: Endpoint): string {
  return `${podKey(endpoint)} (${endpoint.uid})`
}

/**
 * The attachments of this node. An admitted address belongs to its pod from ADD on, before the API knows it. A released
 * address belongs to nobody, although the API may name it for a while. Of two pods of one name, only the one whose UID the
 * object has is that pod. The other one is a stranger, a pod without an object.
 */
export class Endpoints {
  readonly #changed: (pod: string) => void
  readonly #object: (pod: string) => Pod | undefined
  readonly #all = new Map<string, Endpoint>()
  readonly #byPod = new Map<string, Set<string>>()
  readonly #byAddress = new Map<Ip, string>()
  /** Of released pods: the addresses that the API's Pod had then. */
  readonly #released = new Map<string, readonly Ip[]>()

  /**
   * `changed` is called with the key of a pod whose addresses may have changed. `object` gives the object of a pod, as it
   * is known now.
   */
  constructor(changed: (pod: string) => void, object: (pod: string) => Pod | undefined) {
    this.#changed = changed
    this.#object = object
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
    // An earlier pod of the name stays released.
    if (this.isKnown(endpoint)) this.#released.delete(podKey(endpoint))
    if (before && podKey(before) !== podKey(endpoint)) this.#notify(before)
    this.#notify(endpoint)
  }

  /**
   * Forgets an attachment. The addresses of its Pod object do not count from now on, until the object has others: they
   * may be another pod's a moment later. Gives the attachment. Undefined when it is unknown.
   */
  release({ containerId, ifname }: Pick<Endpoint, 'containerId' | 'ifname'>): Endpoint | undefined {
    const id = idOf({ containerId, ifname })
    const found = this.#all.get(id)
    if (!found) return undefined
    this.#drop(id, found)
    const key = podKey(found)
    const object = this.#object(key)
    if (object && this.isKnown(found) && this.of(key).length === 0) this.#released.set(key, object.ips)
    this.#notify(found)
    return found
  }

  /** Notes that the object of a pod is gone. The next object of that name is another pod's. */
  objectGone(pod: string): void {
    this.#released.delete(pod)
  }

  /** Whether the object of an attachment's pod is known. An object or an attachment without a UID may be any pod's. */
  isKnown(endpoint: Pick<Endpoint, 'namespace' | 'pod' | 'uid'>): boolean {
    const object = this.#object(podKey(endpoint))
    return object !== undefined && isOf(endpoint, object)
  }

  /** The key of an attachment's pod. That of a stranger has its UID behind the name. */
  keyOf(endpoint: Endpoint): string {
    const key = podKey(endpoint)
    const object = this.#object(key)
    return object === undefined || isOf(endpoint, object) ? key : strangerKey(endpoint)
  }

  /** The attachments of a pod, or of a stranger. */
  of(pod: string): readonly Endpoint[] {
    return this.#named(pod).filter((one) => this.keyOf(one) === pod)
  }

  /** The keys that strangers of a pod's name have, had or may get when the object of that name changes. */
  strangersOf(pod: string): readonly string[] {
    return this.#named(pod).flatMap((one) => (one.uid === undefined ? [] : [strangerKey(one)]))
  }

  /** All attachments. */
  all(): readonly Endpoint[] {
    return [...this.#all.values()]
  }

  /** The pod that has an address by ADD. Undefined when no ADD gave it. */
  ownerOf(ip: Ip): string | undefined {
    const owner = this.#all.get(this.#byAddress.get(ip) ?? '')
    return owner && this.keyOf(owner)
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

  // The attachments of all pods of a name. The key of a stranger has the name before a blank.
  #named(key: string): Endpoint[] {
    const [pod = key] = key.split(' ', 1)
    return [...(this.#byPod.get(pod) ?? [])].map((id) => this.#all.get(id) as Endpoint)
  }

  #notify(endpoint: Endpoint): void {
    this.#changed(podKey(endpoint))
    if (endpoint.uid !== undefined) this.#changed(strangerKey(endpoint))
  }

  #replace(endpoint: Endpoint): void {
    const [id, key] = [idOf(endpoint), podKey(endpoint)]
    const before = this.#all.get(id)
    if (before) this.#drop(id, before)
    this.#all.set(id, endpoint)
    this.#byPod.set(key, (this.#byPod.get(key) ?? new Set()).add(id))
    for (const ip of endpoint.addresses) this.#byAddress.set(ip, id)
    if (before) this.#notify(endpoint)
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

function isOf({ uid }: Pick<Endpoint, 'uid'>, object: Pod): boolean {
  return uid === undefined || object.uid === undefined || uid === object.uid
}

function idOf({ containerId, ifname }: Pick<Endpoint, 'containerId' | 'ifname'>): string {
  return `${containerId} ${ifname}`
}

function isSame(one: readonly Ip[], other: readonly Ip[]): boolean {
  return one.length === other.length && one.every((ip, i) => ip === other[i])
}
