/** One attachment of a storm: a container that comes once, its namespace, and the host ports that it asks for. */
export interface Pod {
  readonly id: string
  readonly path: string
  readonly ports: readonly number[]
  /** Whether it is attached to the second network too. */
  readonly isTwice: boolean
  /** Its namespace is taken away, or is about to be. */
  isGone: boolean
}
/**
 * What those who call plugins know: who has which address and which port. It finds what was given twice, and failures
 * that nothing in the storm explains.
 */
export interface Model {
  /** What was not to be. */
  readonly wrong: string[]
  /** How many calls failed as they had to, by why. */
  readonly foreseen: Record<string, number>
  /** A pod is there and will be attached. */
  comes(pod: Pod): void
  /** An ADD has ended well. */
  given(pod: Pod, network: string, addresses: readonly string[]): void
  /** The ports of a pod lead to it. */
  mapped(pod: Pod): void
  /** A DEL begins: from here on others may have what the pod had. */
  leaves(pod: Pod): void
  /** A call failed. */
  failed(
    pod: Pod,
    call: string,
    answer: { readonly code: number; readonly msg: string; readonly details: string },
  ): void
  /** Addresses in use in a network, with the container that has each. */
  addresses(network: string): ReadonlyMap<string, string>
  /** Ports that lead to somebody. */
  readonly ports: ReadonlyMap<number, Pod>
}

/**
 * What ADD may say when the namespace goes while it works: it was not found, not entered, or a tool found nothing
 * there.
 */
const GONE =
  /network namespace|Cannot find device|No such device|Invalid "netns"|Invalid argument|no carrier|No such file or directory/

/** Begins with nobody. */
export function makeModel(): Model {
  const networks = new Map<string, Map<string, string>>()
  const ports = new Map<number, Pod>()
  const asked = new Map<string, readonly number[]>()
  const [wrong, foreseen]: [string[], Record<string, number>] = [[], {}]
  const addresses = (name: string) =>
    networks.get(name) ?? (networks.set(name, new Map()).get(name) as Map<string, string>)
  // Of a port that is taken: its holder must have asked for it.
  const why = (pod: Pod, code: number, msg: string, details: string): string | undefined => {
    const [, port, other = ''] =
      /^Cannot give host port (\d+)\/tcp to this container: container (\S+) has it$/.exec(msg) ?? []
    if (port !== undefined)
      return code === 7 && pod.ports.includes(Number(port)) && asked.get(other)?.includes(Number(port))
        ? 'port taken'
        : undefined
    return pod.isGone && (code === 3 || code === 4) && GONE.test(`${msg} ${details}`)
      ? `namespace gone, code ${code}`
      : undefined
  }
  return {
    wrong,
    foreseen,
    ports,
    addresses,
    comes: (pod) => void asked.set(pod.id, pod.ports),
    given(pod, network, list) {
      for (const address of list) {
        const other = addresses(network).get(address)
        if (other !== undefined) wrong.push(`${address} was given to ${pod.id} while ${other} had it`)
        addresses(network).set(address, pod.id)
      }
    },
    mapped(pod) {
      for (const port of pod.ports) {
        const other = ports.get(port)
        // One whose namespace is gone has given its ports up to any pod.
        if (other && !other.isGone) wrong.push(`host port ${port} was given to ${pod.id} while ${other.id} had it`)
        ports.set(port, pod)
      }
    },
    leaves(pod) {
      for (const all of networks.values()) for (const [address, id] of all) if (id === pod.id) all.delete(address)
      for (const port of pod.ports) if (ports.get(port) === pod) ports.delete(port)
    },
    failed(pod, call, { code, msg, details }) {
      const reason = why(pod, code, msg, details)
      if (reason === undefined)
        wrong.push(
          `${call} of ${pod.id}${pod.isGone ? ', whose namespace is gone' : ''}: code ${code}: ${msg}: ${details}`,
        )
      else foreseen[reason] = (foreseen[reason] ?? 0) + 1
    },
  }
}
