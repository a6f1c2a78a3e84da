import { ValueError } from '../../lib/text/errors.ts'
import { type Choice, chooseUplink, overlap, see, strangersOf, type Uplink } from '../backend/uplink.ts'
import type { NodeState } from '../health/condition.ts'
import type { Event } from '../kernel/events.ts'
import { PROTO } from '../kernel/marks.ts'
import { both, isSame } from '../lease/families.ts'
import { DONE, type Outcome, type Part } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { Context } from './context.ts'

/** Keeps the choice of the uplink: the link and the addresses that lead to the other nodes. */
export class UplinkPart implements Part {
  readonly name = 'uplink'
  readonly trouble = 'Cannot choose the uplink'
  readonly quietMs: number
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #changed: () => void
  readonly #links = new Map<string, string>()

  /** `changed` is called after each choice. */
  constructor(context: Context, now: NodeState, queue: Queue, changed: () => void) {
    this.#context = context
    this.#now = now
    this.queue = queue
    this.quietMs = context.quietMs
    this.#changed = changed
  }

  async step(): Promise<Outcome> {
    const { wish, run, facts, bgp, log } = this.#context
    const sight = await see(wish, run)
    const before = this.#now.choice?.uplink
    const strangers = bgp ? strangersOf(sight, facts.networks) : []
    const choice = { ...this.#choose(sight), ...(strangers.length > 0 && { strangers }) }
    if (!before) this.#refuseOverlap(sight)
    this.#now.choice = choice
    const { name, mtu, tunnel } = choice.uplink
    if (!before || !isSameUplink(before, choice.uplink))
      log(`agent: uplink ${name} ${both(tunnel).join(' ')}: ${choice.why} mtu=${mtu}`)
    this.#changed()
    return DONE
  }

  /** Whether an event may change the choice, or the set of peers on the uplink's link. */
  concerns({ kind, key, gone, text, resource }: Event): boolean {
    const name = this.#now.choice?.uplink.name
    // The kernel also reports an unchanged link when a device is made on it.
    if (kind === 'link' && !gone && this.#links.get(key) === text) return false
    // Removed links are forgotten. Otherwise the links of removed pods fill the memory.
    if (kind === 'link' && gone) this.#links.delete(key)
    else if (kind === 'link') this.#links.set(key, text)
    const dev = resource.kind === 'link' ? resource.name : 'dev' in resource ? resource.dev : undefined
    const isForeignRoute = resource.kind === 'route' && resource.proto !== PROTO
    if (kind !== 'link' && kind !== 'addr' && !isForeignRoute) return false
    const isDefault = resource.kind === 'route' && resource.dst.endsWith('/0')
    return isDefault || name === undefined || dev === undefined || dev === name
  }

  // Packets go on over the uplink of before. The status says no reason for it that no longer holds.
  #choose(sight: Awaited<ReturnType<typeof see>>): Choice {
    const { wish, conf } = this.#context
    const before = this.#now.choice
    try {
      return chooseUplink(sight, wish, conf, before?.uplink)
    } catch (cause) {
      if (before && cause instanceof ValueError)
        this.#now.choice = { ...before, why: `${before.uplink.name} was chosen before, and cannot be chosen now` }
      throw cause
    }
  }

  #refuseOverlap(sight: Parameters<typeof overlap>[0]): void {
    const { conf, allowOverlap, backend, options, before, log, bgp } = this.#context
    // The agent's BIRD may have a network that holds this one, such as 10.0.0.0/8, and subnets of nodes.
    const isOther = ({ protocol }: (typeof sight.routes)[number]) => !bgp || !BIRD.includes(protocol ?? '')
    const seen = { ...sight, routes: sight.routes.filter(isOther) }
    for (const pool of allowOverlap ? [] : [conf.v4, conf.v6]) {
      const meets = pool && overlap(seen, pool.network, backend.links(options))
      if (!meets) continue
      const text = `the network ${pool.network} overlaps the route ${meets} of this node`
      // A node that already has pods keeps working.
      if (!before?.v4 && !before?.v6) throw new ValueError(`${text}; want another "Network", or --allow-overlap`)
      log(`agent: ${text}: addresses there may be out of reach`)
    }
  }
}

/** The protocol of BIRD's routes, as iproute2 shows it with and without its list of names (rt_protos). */
const BIRD: readonly string[] = ['bird', '12']

function isSameUplink(a: Uplink, b: Uplink): boolean {
  const isSameLink = a.name === b.name && a.index === b.index && a.mtu === b.mtu
  return isSameLink && isSame(a.tunnel, b.tunnel) && isSame(a.advertise, b.advertise)
}
