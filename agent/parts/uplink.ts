import { linkFeature } from '../../lib/os/link-features.ts'
import { meets } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { FEATURE } from '../backend/checksum-offload.ts'
import { givenMtu } from '../backend/open.ts'
import {
  type Choice,
  cardOf,
  chooseUplink,
  foreignRoutes,
  overlap,
  type Sight,
  see,
  type Uplink,
} from '../backend/uplink.ts'
import type { Event } from '../kernel/events.ts'
import { PROTO } from '../kernel/marks.ts'
import { within } from '../kernel/ownership.ts'
import { both, isSame } from '../lease/families.ts'
import type { Failure } from '../scheduler/failures.ts'
import type { Outcome } from '../scheduler/part.ts'
import { BasePart } from './base.ts'
import type { KernelInputs, NetworkInputs, Reports, SelfInputs } from './inputs.ts'

/** What the part needs of the agent. */
export interface UplinkPartOptions
  extends Pick<SelfInputs, 'wish' | 'before'>,
    Pick<NetworkInputs, 'conf' | 'backend' | 'options' | 'facts' | 'allowOverlap'>,
    Pick<KernelInputs, 'run' | 'quietMs'>,
    Pick<Reports, 'failures' | 'log'> {
  readonly isBgpOn: boolean
  /** Called after each choice. */
  readonly uplinkLooked: () => void
}

/** Keeps the choice of the uplink: the link and the addresses that lead to the other nodes. */
export class UplinkPart extends BasePart<UplinkPartOptions> {
  readonly name = 'uplink'
  readonly trouble = 'Cannot choose the uplink'
  readonly quietMs = this.given.quietMs
  readonly #links = new Map<string, string>()
  #clipped: string | undefined
  #offload: string | undefined

  async step(): Promise<Outcome> {
    const { wish, run, facts, isBgpOn, log } = this.given
    const sight = await see(wish, run)
    const before = this.now.choice?.uplink
    const foreign = isBgpOn ? foreignRoutes(sight, facts.networks) : []
    const choice = {
      ...this.#withCard(this.#choose(sight), sight),
      ...(foreign.length > 0 && { foreignRoutes: foreign }),
    }
    const overlaps = this.#overlapping(sight)
    const [first] = overlaps
    // A node that serves its pods goes on. A node that begins does not, whatever its state directory remembers.
    if (!before && first !== undefined) throw new ValueError(`${first}; want another "Network", or --allow-overlap`)
    this.now.choice = choice
    const { name, mtu, tunnel } = choice.uplink
    this.#reportMtu(choice.uplink)
    this.#tellOffload(choice)
    if (!before || !isSameUplink(before, choice.uplink))
      log(`agent: uplink ${name} ${both(tunnel).join(' ')}: ${choice.why} mtu=${mtu}`)
    this.given.uplinkLooked()
    const hurt = (text: string): Failure => ({ scope: 'part', text: `${text}: addresses there may be out of reach` })
    return { failures: overlaps.map(hurt) }
  }

  /** Whether an event may change the choice, or the set of peers on the uplink's link. */
  concerns({ kind, key, gone, text, resource }: Event): boolean {
    const name = this.now.choice?.uplink.name
    // The kernel also reports an unchanged link when a device is made on it.
    if (kind === 'link' && !gone && this.#links.get(key) === text) return false
    // Removed links are forgotten. Otherwise the links of removed pods fill the memory.
    if (kind === 'link' && gone) this.#links.delete(key)
    else if (kind === 'link') this.#links.set(key, text)
    const dev = resource.kind === 'link' ? resource.name : 'dev' in resource ? resource.dev : undefined
    const isForeignRoute = resource.kind === 'route' && resource.proto !== PROTO
    if (kind !== 'link' && kind !== 'addr' && !isForeignRoute) return false
    const leads = resource.kind === 'route' && (resource.dst.endsWith('/0') || this.#isForPods(resource.dst))
    return leads || name === undefined || dev === undefined || dev === name
  }

  // Packets go on over the uplink of before. The status says no reason for it that no longer holds.
  #choose(sight: Sight): Choice {
    const { wish, conf } = this.given
    const before = this.now.choice
    try {
      return chooseUplink(sight, wish, conf, before?.uplink)
    } catch (cause) {
      if (before && cause instanceof ValueError)
        this.now.choice = { ...before, why: `${before.uplink.name} was chosen before, and cannot be chosen now` }
      throw cause
    }
  }

  #withCard(choice: Choice, { links }: Sight): Choice {
    const { backend, options } = this.given
    if (!backend.checksumOffload) return choice
    const card = cardOf(links, choice.uplink.name, (name) => linkFeature(name, FEATURE))
    const uplink = { ...choice.uplink, card }
    return { ...choice, uplink, checksumOffload: backend.checksumOffload(options, uplink) }
  }

  #tellOffload({ checksumOffload }: Choice): void {
    const why = checksumOffload?.why
    if (why !== undefined && why !== this.#offload) this.given.log(`agent: checksum offload of the tunnel is ${why}`)
    this.#offload = why
  }

  // A packet that is larger than the uplink's does not leave the node.
  #reportMtu({ name, mtu }: Uplink): void {
    const { conf, backend, failures, log } = this.given
    const given = givenMtu(conf, backend)
    const want = `want at most ${mtu}, or a link with that MTU`
    const text = `Backend.MTU ${given} of the network's configuration has no effect: the uplink ${name} has ${mtu}; ${want}`
    const isClipped = given !== undefined && given > mtu
    if (isClipped && this.#clipped !== text) log(`agent: ${text}`)
    this.#clipped = isClipped ? text : undefined
    failures.report('MTU', isClipped ? [{ scope: 'part', text }] : [])
  }

  // Whether a route of another program may take packets for pods of other nodes.
  #isForPods(dst: Cidr): boolean {
    const { conf } = this.given
    const isOwn = within(both(this.now.lease?.subnets ?? {}))
    return [conf.v4, conf.v6].some((pool) => pool && meets(dst, pool.network)) && !isOwn(dst)
  }

  // One sentence for each network of pods that overlaps a route of another program.
  #overlapping(sight: Sight): string[] {
    const { conf, allowOverlap, backend, options, before = {}, isBgpOn } = this.given
    // The agent's BIRD may have a network that holds this one, such as 10.0.0.0/8, and subnets of nodes.
    const isOther = ({ protocol }: (typeof sight.routes)[number]) => !isBgpOn || !BIRD.includes(protocol ?? '')
    const seen = { ...sight, routes: sight.routes.filter(isOther) }
    const subnets = this.now.lease?.subnets ?? before
    const pods = { links: backend.links(options), subnets, byCommands: backend.commands !== undefined }
    return (allowOverlap ? [] : [conf.v4, conf.v6]).flatMap((pool) => {
      const meets = pool && overlap(seen, pool, pods)
      return meets ? [`the network ${pool.network} overlaps the route ${meets} of this node`] : []
    })
  }
}

/** The protocol of BIRD's routes, as iproute2 shows it with and without its list of names (rt_protos). */
const BIRD: readonly string[] = ['bird', '12']

function isSameUplink(a: Uplink, b: Uplink): boolean {
  const isSameLink = a.name === b.name && a.index === b.index && a.mtu === b.mtu
  return isSameLink && isSame(a.tunnel, b.tunnel) && isSame(a.advertise, b.advertise)
}
