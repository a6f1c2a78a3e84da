import { type Entry, LINK } from '../../lib/journal/journal.ts'
import type { LinkFacts } from '../../lib/os/links.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import { contains } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { IfName } from '../../lib/text/values.ts'

/** A pod that takes part in the fast path. */
export interface PodWay {
  /** Its link on the node. */
  readonly link: IfName
  /** The link by which its packets come to the rules: its bridge, or its own. */
  readonly entrance: IfName
  readonly addresses: readonly Ip[]
}
/** What takes part in the fast path. */
export interface Ways {
  /** The links to other nodes and to the world. */
  readonly outer: readonly IfName[]
  readonly pods: readonly PodWay[]
  /**
   * Pods that a plugin is at work on. One that takes part already is about to go, and its connections go with its link.
   * Until then it stays: it would send the connections of all others back to the rules.
   */
  readonly unfinished: readonly PodWay[]
  /** The bridges of these pods. */
  readonly bridges: readonly IfName[]
  /**
   * Networks of IPv6 whose routes have an MTU of their own. In the fast path the kernel asks the device alone, and sends
   * packets that are too large. (It asks the route in IPv4.)
   */
  readonly narrow: readonly Cidr[]
  /** The number of pods that stay on the way by the rules: filters of tc take what they send, or their link is down. */
  readonly slow: number
  /** A plugin is at work on a pod, which may have no link yet: another look has to follow. */
  readonly isBusy: boolean
}
/** What the ways follow from. */
export interface WayFacts {
  readonly entries: readonly Entry[]
  readonly links: readonly LinkFacts[]
  /** The indexes of links with filters of tc for what enters (lib/os/qdiscs.ts). */
  readonly filtered: ReadonlySet<number>
  /** The uplink, and the devices of the backend. */
  readonly outer: readonly string[]
  /** The subnets of this node. Pods of other networks are not the agent's. */
  readonly subnets: readonly Cidr[]
  readonly narrow: readonly Cidr[]
  /** The kernel looks through a bridge, to the port (Linux 5.13, `ndo_fill_forward_path`). */
  readonly seesPorts: boolean
}

/**
 * The links and pods that take part in the fast path. A filter of tc may send packets through another link, where they
 * do not meet the flowtable: so such a pod takes no part. Pods of other programs' plugins take no part, for nobody says when
 * their addresses go. Pure.
 */
export function waysOf({ entries, links, filtered, outer, subnets, narrow, seesPorts }: WayFacts): Ways {
  const byName = new Map(links.map((one) => [one.name as string, one]))
  const byIndex = new Map(links.map((one) => [one.index, one]))
  const pods: PodWay[] = []
  const unfinishedPods: PodWay[] = []
  const bridges = new Set<IfName>()
  let [slow, isBusy] = [0, false]
  for (const { unfinished, ips, parts } of entries) {
    const addresses = (ips as readonly Ip[]).filter((ip) => subnets.some((subnet) => contains(subnet, ip)))
    const veth = parts[LINK]?.own.find((one): one is Link => one.kind === 'link' && one.ns === 'host')
    if (unfinished) isBusy = true
    if (veth?.type !== 'veth' || addresses.length === 0) continue
    const link = byName.get(veth.name)
    const master = link?.master === undefined ? undefined : byIndex.get(link.master)
    const isPlain = link?.master === undefined || (seesPorts && master?.kind === 'bridge')
    if (!link?.isUp || filtered.has(link.index) || !isPlain) {
      if (!unfinished) slow++
      continue
    }
    if (master) bridges.add(master.name)
    const way = { link: link.name, entrance: master?.name ?? link.name, addresses }
    if (unfinished) unfinishedPods.push(way)
    else pods.push(way)
  }
  const there = outer.flatMap((name) => byName.get(name) ?? []).filter(({ isUp }) => isUp)
  const uplinks = [...new Set(there.map(({ name }) => name))]
  return { outer: uplinks, pods, unfinished: unfinishedPods, bridges: [...bridges], narrow, slow, isBusy }
}
