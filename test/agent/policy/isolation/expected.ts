// What may pass on the node of the isolation histories, by the oracle and by what the agent can know.
import type { Pod } from '../../../../agent/cluster/objects.ts'
import { decide, type Objects } from '../../../../agent/policy/oracle.ts'
import type { Ip } from '../../../../lib/text/ip.ts'
import type { Row } from '../../../support/harness.ts'
import { type End, type Flow, familyOf, ofFamily, type Protocol, type Slot, type Target } from './ends.ts'
import { type Draft, type Known, objectsOf, ofKind, type World } from './world.ts'

export function isSlot(end: End): end is Slot {
  return 'netns' in end
}

/** What may pass now. While there is no agent, it is what the last one knew. */
export class Expected {
  readonly #world: World
  readonly #slots: readonly Slot[]
  readonly #node: End
  readonly #outside: End
  #frozen: Known | undefined

  constructor(world: World, slots: readonly Slot[], node: End, outside: End) {
    this.#world = world
    this.#slots = slots
    this.#node = node
    this.#outside = outside
  }

  /** The agent is gone. */
  freeze(): void {
    this.#frozen = this.#world.known()
  }

  /** There is an agent again. */
  goOn(): void {
    this.#frozen = undefined
  }

  get #known(): Known {
    return this.#frozen ?? this.#world.known()
  }

  /** Who has an address. */
  ownerOf(ip: Ip): End | undefined {
    return [...this.#slots, this.#node, this.#outside].find(({ ips }) => ips.includes(ip))
  }

  /** Where packets for a target go, as far as the agent knows. Undefined when it leads nowhere. */
  destination(target: Target): Ip | undefined {
    if ('ip' in target) return target.ip
    const slice = ofKind(this.#known, 'EndpointSlice').find(({ metadata }) => metadata.name === `svc-${target.family}`)
    return (slice?.['endpoints'] as Row[] | undefined)?.[0]?.['addresses'][0]
  }

  #podOf(known: Known, slot: Slot): Draft | undefined {
    const found = ofKind(known, 'Pod').find(
      ({ metadata: { namespace, name } }) => namespace === slot.namespace && name === slot.name,
    )
    return found?.metadata['uid'] === slot.uid ? found : undefined
  }

  #isOpen(slot: Slot): boolean {
    return slot.ips.length > 0 && !slot.isUnseen && this.#podOf(this.#known, slot) !== undefined
  }

  // What the agent knows. An object without an attachment counts for nothing.
  #objects(): Objects {
    const known = this.#known
    const ips = (pod: Draft) => {
      const slot = this.#slots.find(
        ({ namespace, name }) => namespace === pod.metadata.namespace && name === pod.metadata.name,
      )
      return slot && this.#podOf(known, slot) ? slot.ips : []
    }
    return objectsOf(known, ips)
  }

  /** Whether a new connection from an end to an address passes, by the oracle. */
  allows(from: End, ip: Ip, protocol: Protocol, port: number): boolean {
    const to = this.ownerOf(ip)
    if (!to || from.ips.length === 0) return false
    // The node reaches its own pods.
    if (from === this.#node) return true
    if ([from, to].some((end) => isSlot(end) && !this.#isOpen(end))) return false
    const objects = this.#objects()
    const source = ofFamily(from, familyOf(ip)) as Ip
    const end = (one: End, address: Ip) =>
      isSlot(one)
        ? (objects.pods.find(({ namespace, name }) => namespace === one.namespace && name === one.name) as Pod)
        : { ip: address }
    const ends = { from: end(from, source), to: end(to, ip), source, destination: ip }
    return decide(objects, { ...ends, protocol, port, isHairpin: from === to }).passes
  }

  /** The same of a flow's first packet. */
  passes({ from, target, protocol, dport }: Pick<Flow, 'from' | 'target' | 'protocol' | 'dport'>): boolean {
    const ip = this.destination(target)
    return ip !== undefined && this.allows(from, ip, protocol, dport)
  }
}
