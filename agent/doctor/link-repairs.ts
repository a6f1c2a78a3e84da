import { entries, isThere } from '../../lib/journal/journal.ts'
import { addressesNow, RT_SCOPE_LINK } from '../../lib/os/link-addresses.ts'
import { linksNow } from '../../lib/os/links.ts'
import { linkTowards } from '../../lib/os/route-tables.ts'
import type { Run } from '../../lib/os/run.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { type Cidr, split } from '../../lib/text/ip.ts'
import { isRoutedGateway } from '../../lib/wiring/routed.ts'
import { sentences } from '../kernel/batch.ts'
import type { Converger } from '../kernel/converge.ts'
import type { Event } from '../kernel/events.ts'
import { readLinksNow } from './facts/links.ts'
import { entrancesOf, type Pod, podsOf } from './facts/pods.ts'
import { checkPodLinks, type LastLook, NOTHING, type PodLinkRepairs } from './pod-links.ts'
import { PodProxies } from './pod-proxies.ts'

/** The result of one look. */
export interface LinkRepairs {
  /** What was mended, in words. */
  readonly mended: readonly string[]
  /** What nobody can mend but who made the pod. One sentence each, with the command. */
  readonly lost: readonly string[]
  /** A plugin is at work, or a link went while it was mended: another look has to follow. No event may tell of it. */
  readonly isBusy: boolean
}

type Mender = Pick<Converger, 'mend'>

/** Keeps the links of pods on this node as the journal has them. */
export class PodLinks {
  readonly #proxies = new PodProxies()
  #known: LastLook = NOTHING
  #pods: readonly Pod[] = []
  #entrances: ReadonlySet<string> = new Set()

  /** The pods of the last look. */
  get pods(): readonly Pod[] {
    return this.#pods
  }

  /** The links by which packets of pods come to the node. */
  get entrances(): ReadonlySet<string> {
    return this.#entrances
  }

  /** Whether an event may be about the links of pods. `uplink` is the link to the other nodes, whose events count, too. */
  concerns({ kind, gone, resource }: Event, uplink: string | undefined): boolean {
    const isKnown = (name: string) => this.#known.bridges.has(name)
    const isPodLink = (name: string) => isKnown(name) || name.startsWith('veth')
    const isUplink = resource.kind === 'link' && resource.name === uplink
    const isLink = resource.kind === 'link' && (gone || !resource.up || isPodLink(resource.name))
    const isAddress = kind === 'addr' && resource.kind === 'addr' && isKnown(resource.dev)
    // Of a routed pod.
    const isWay = gone && (resource.kind === 'addr' || resource.kind === 'route') && isPodLink(resource.dev)
    return isUplink || isLink || isAddress || isWay
  }

  /** Whether an event tells of a routed pod that pods of a bridge look for on the bridge. */
  isAwaited({ gone, resource }: Event): boolean {
    return this.#proxies.hasBridge && !gone && resource.kind === 'addr' && isRoutedGateway(split(resource.cidr).ip)
  }

  /**
   * Looks at all links, and mends what differs unless `isHeld`. `subnets` are those of the node. Throws ValueError when a
   * tool refuses.
   */
  async keep(subnets: readonly Cidr[], isHeld: boolean, converger: Mender, run: Run): Promise<LinkRepairs> {
    const all = entries()
    this.#pods = podsOf(all)
    this.#entrances = this.#pods.length === 0 ? new Set() : entrancesOf(this.#pods, readLinksNow())
    const addressesOf = (index: number) =>
      addressesNow(index).flatMap(({ cidr, scope }) => (scope === RT_SCOPE_LINK ? [] : [cidr]))
    const links = linksNow()
    await this.#proxies.keep({ entries: all, links, addressesOf, subnets }, run)
    if (all.length === 0) {
      this.#known = NOTHING
      return { mended: [], lost: [], isBusy: false }
    }
    const repairs = checkPodLinks({
      entries: all,
      links,
      addressesOf,
      heldBy: (index) => addressesNow(index).map(({ cidr }) => cidr),
      towards: linkTowards,
      isThere,
      known: this.#known,
      subnets,
    })
    const isWrong = repairs.mended.length > 0 && !isHeld
    const isMended = isWrong && (await mend(repairs.changes, converger))
    this.#known = repairs.known
    return {
      mended: isMended ? repairs.mended : [],
      lost: repairs.lost,
      isBusy: isWrong !== isMended || all.some(({ unfinished }) => unfinished),
    }
  }
}

// False when a link has gone since it was seen, as in a DEL.
async function mend(changes: PodLinkRepairs['changes'], converger: Mender): Promise<boolean> {
  const failed = await converger.mend(changes)
  const others = [...failed].filter(([, said]) => !/^(Cannot find|No such)/.test(said))
  if (others.length > 0) throw new ValueError(sentences(new Map(others)).join('; '))
  return failed.size === 0
}
