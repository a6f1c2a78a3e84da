import { type Entry, LINK, type Part } from '../../lib/journal/journal.ts'
import type { LinkFacts } from '../../lib/os/links.ts'
import { joining } from '../../lib/state/bridge-ports.ts'
import type { Addr } from '../../lib/state/kinds/addr.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import type { Route } from '../../lib/state/kinds/route.ts'
import type { BridgePort, Change } from '../../lib/state/resource.ts'
import { contains, hostCidr, isSix } from '../../lib/text/cidr.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import { BRIDGE_ALIAS } from '../../lib/text/owner.ts'
import type { IfName, Mac } from '../../lib/text/values.ts'
import { gatewayOf } from '../../lib/wiring/pod.ts'
import { gatewayFor, hostSide, ROUTED } from '../../lib/wiring/routed.ts'

// The links of pods on the node, as the journal of plumb's plugins has them: what is not as ADD made it, and the
// resources that it lacks.

/** A bridge of pods as it was when it was seen last. */
interface Bridge {
  readonly mac: Mac
  readonly mtu: number
  readonly addresses: readonly Cidr[]
}
/** What the last look has seen. */
export interface LastLook {
  readonly bridges: ReadonlyMap<string, Bridge>
  /** The ports by name: the bridge and the settings. */
  readonly ports: ReadonlyMap<string, Port>
}
interface Port extends Pick<LinkFacts, 'hairpin' | 'isolated' | 'locked'> {
  readonly bridge: IfName
  /** What `bridge` sets on it, as the journal has it. */
  readonly rows: BridgePort['rows']
}
/** Nothing was seen. */
export const NOTHING: LastLook = { bridges: new Map(), ports: new Map() }
/** What the check looks at. */
export interface PodLinkFacts {
  readonly entries: readonly Entry[]
  readonly links: readonly LinkFacts[]
  /** The addresses of a link by its index, without link-local ones. */
  addressesOf(index: number): readonly Cidr[]
  /** All addresses of a link by its index. */
  heldBy(index: number): readonly Cidr[]
  /** The index of the link by which the node sends to an address. */
  towards(ip: Ip): number | undefined
  /** Whether the namespace of a pod is still there. */
  isThere(part: Part): boolean
  readonly known: LastLook
  /** The node's subnets. The first address of each is the gateway of its pods. */
  readonly subnets: readonly Cidr[]
}
/** What the check found. */
export interface PodLinkRepairs {
  /** What to make or to change, for `ip`, for `bridge`, and for `ip` again. `mended` names it for people. */
  readonly changes: readonly (readonly Change[])[]
  readonly mended: readonly string[]
  /** What nobody can mend but who made the pod. One sentence each, with the command. */
  readonly lost: readonly string[]
  readonly known: LastLook
}

/**
 * Compares the links of pods with the journal: of pods with an address of the node's subnets, because other networks
 * are not the agent's. An attachment whose ADD or DEL runs is left alone. Pure.
 */
export function checkPodLinks(seen: PodLinkFacts): PodLinkRepairs {
  const { entries, links, addressesOf, isThere, known: before, subnets } = seen
  const byName = new Map(links.map((one) => [one.name as string, one]))
  const byIndex = new Map(links.map((one) => [one.index, one]))
  const changes: Change[] = []
  const [mended, lost]: [string[], string[]] = [[], []]
  const rejoined: BridgePort[] = []
  const [bridges, ports] = [new Map<string, Bridge>(), new Map<string, Port>()]
  const wanted = entries.flatMap(({ unfinished, ips, parts, owner }) => {
    const isOurs = subnets.some((subnet) => ips.some((ip) => contains(subnet, ip as Ip)))
    const part = unfinished || !isOurs ? undefined : parts[LINK]
    const veth = part?.own.find((one): one is Link => one.kind === 'link' && one.ns === 'host' && one.type === 'veth')
    const routed = parts[ROUTED] ? (ips as readonly Ip[]) : []
    return part && veth ? [{ part, veth, owner, routed }] : []
  })
  for (const { part, veth, owner, routed } of wanted) {
    const link = byName.get(veth.name)
    const noted = part.ports?.find(({ name }) => name === veth.name)
    const port = portOf(veth.name, link, noted)
    if (port) ports.set(veth.name, port)
    const bridge = port && bridgeOf(port.bridge, () => link !== undefined && isThere(part))
    const isOut = port !== undefined && (link?.master === undefined || byName.get(port.bridge) === undefined)
    const astray = link ? missingOf(veth.name, link, routed) : []
    if ((link?.isUp && !isOut && astray.length === 0) || !isThere(part)) continue
    const gone = `of container ${owner.containerId} is gone, and`
    if (link === undefined) lost.push(`The link ${veth.name} ${gone} its pod has no network: delete the pod`)
    else if (port && bridge === undefined)
      lost.push(`The bridge ${port.bridge} ${gone} nobody knows its addresses: delete the pod`)
    else {
      // A killed call may leave a port down that does not have all of its settings yet.
      const isHalf = port !== undefined && !link.isUp && noted?.port.master === port.bridge
      if (port && (isOut || isHalf)) rejoined.push({ name: veth.name, port: asWanted(port, noted), rows: port.rows })
      if (port && isOut) mended.push(`port ${veth.name} of bridge ${port.bridge}`)
      if (!link.isUp) {
        if (!isOut && !isHalf) changes.push(upOf(veth))
        mended.push(`link ${veth.name} up`)
      }
      for (const want of astray) {
        // Another program may have a route to the pod. The own one replaces it.
        changes.push({ want, have: want })
        mended.push(
          want.kind === 'addr' ? `gateway ${split(want.cidr).ip} on ${want.dev}` : `route to ${split(want.dst).ip}`,
        )
      }
    }
  }
  const [joins, rows, ups] = joining(rejoined)
  return {
    changes: [[...changes, ...joins], rows, ups],
    mended,
    lost,
    known: { bridges, ports },
  }

  // What a routed pod lacks on the node. A link that goes down loses its routes, and its addresses of IPv6.
  function missingOf(dev: IfName, { index }: LinkFacts, ips: readonly Ip[]): (Addr | Route)[] {
    if (ips.length === 0) return []
    const held = seen.heldBy(index)
    const given = ips.map((ip) => ({ address: hostCidr(ip), gateway: gatewayFor(ip) }))
    return hostSide(dev, given, true).filter((one) =>
      one.kind === 'addr' ? !held.includes(one.cidr) : seen.towards(split(one.dst).ip) !== index,
    )
  }

  // The bridge and the settings of a port. Another bridge than before is somebody's wish.
  function portOf(name: string, link: LinkFacts | undefined, noted: BridgePort | undefined): Port | undefined {
    const bridge = link?.master === undefined ? undefined : byIndex.get(link.master)
    const rows = noted?.rows ?? []
    if (link === undefined || bridge?.kind !== 'bridge') return before.ports.get(name) ?? (noted && asNoted(noted))
    const { hairpin, isolated, locked } = link
    return { bridge: bridge.name, hairpin, isolated, locked, rows }
  }

  // The bridge of a port, which is mended once. It is made again for a pod that lives. Undefined when it is gone.
  function bridgeOf(name: IfName, isNeeded: () => boolean): Bridge | undefined {
    const done = bridges.get(name)
    if (done) return done
    const [link, known] = [byName.get(name), before.bridges.get(name)]
    if (link === undefined) {
      if (!isNeeded()) return undefined
      const gateways = known?.addresses ?? subnets.map(firstAddress)
      if (gateways.length === 0) return undefined
      const hasVlans = wanted.some(({ part }) =>
        part.ports?.some(({ port, rows }) => port.master === name && rows.some(({ kind }) => kind === 'vlan')),
      )
      const size = known && { mac: known.mac, mtu: known.mtu }
      const filtering = hasVlans && { vlanFiltering: true as const }
      const want: Link = { ...bridgeLink(name), ...size, ...filtering, shared: true }
      changes.push({ want }, ...gateways.map((cidr) => addressOf(name, cidr)))
      mended.push(`bridge ${name}`)
      const made = { mac: known?.mac ?? ('' as Mac), mtu: known?.mtu ?? 0, addresses: gateways }
      bridges.set(name, made)
      return made
    }
    const addresses = addressesOf(link.index)
    // An address that came instead of another one is the plugin's, which follows a new subnet.
    const isMissing = (one: Cidr) => !addresses.some((other) => isSix(other) === isSix(one))
    const missing = link.alias === BRIDGE_ALIAS ? (known?.addresses ?? []).filter(isMissing) : []
    for (const cidr of missing) {
      changes.push(addressOf(name, cidr))
      mended.push(`address ${cidr} of ${name}`)
    }
    if (!link.isUp) {
      changes.push(upOf(bridgeLink(name)))
      mended.push(`bridge ${name} up`)
    }
    const now = { mac: link.mac, mtu: link.mtu, addresses: [...addresses, ...missing] }
    bridges.set(name, now)
    return now
  }
}

// The settings that the port has or had, and those of the journal.
function asWanted({ bridge: master, ...has }: Port, noted: BridgePort | undefined): BridgePort['port'] {
  const isOn = (one: 'hairpin' | 'isolated' | 'locked') => has[one] || noted?.port[one] === true
  return { master, hairpin: isOn('hairpin'), isolated: isOn('isolated'), locked: isOn('locked') }
}

// The port as the journal has it, for an agent that never saw it on its bridge.
function asNoted({ port, rows }: BridgePort): Port {
  const { master, hairpin = false, isolated = false, locked = false } = port
  return { bridge: master, hairpin, isolated, locked, rows }
}

function bridgeLink(name: IfName): Link {
  return { kind: 'link', ns: 'host', name, type: 'bridge', up: true }
}

function upOf(link: Link): Change {
  return { want: link, have: { ...link, up: false } }
}

function addressOf(dev: IfName, cidr: Cidr): Change {
  return { want: { kind: 'addr', ns: 'host', dev, cidr } }
}

function firstAddress(subnet: Cidr): Cidr {
  return `${gatewayOf({ address: subnet })}/${split(subnet).length}` as Cidr
}
