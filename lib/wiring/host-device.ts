import type { Attachment } from '../cni/plugin.ts'
import { isAnothers, LINK, partName, readPart } from '../journal/journal.ts'
import { type LinkFacts, linkIn, linksNow } from '../os/links.ts'
import { inside, netnsState } from '../os/netns.ts'
import type { Lent, Link } from '../state/kinds/link-shape.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'
import { type IfName, type Mac, type Netns, type NetnsPath, parse } from '../text/values.ts'

/**
 * A device of the node, as a resource of the pod. `put` moves it into the pod, gives it the pod's interface name, and
 * stores its own name as the alias. One message to the kernel does all of this. The DEL of the reference plugin finds
 * the name in the alias. The resource also has the device's earlier settings, for the way back.
 */
export function movedDevice({ name, index, mac, mtu, isUp, permanent, alias: text }: LinkFacts, at: Attachment): Link {
  const lent: Lent = {
    name,
    index,
    mac,
    mtu,
    isUp,
    ...(permanent && { permanent }),
    ...(PLAIN.test(text) && { alias: text }),
  }
  return {
    kind: 'link',
    ns: 'host',
    name,
    type: 'lent',
    up: false,
    lent,
    move: { to: at.netns as NetnsPath, name: at.ifname, ...(lent.alias !== undefined && { alias: name }) },
  }
}

/**
 * The resource that returns a device to the node, at any place and under any name. Undefined when the device is gone or
 * already back. `drop` restores name, MAC address, MTU and state in one message. Throws CniError 11 when another link
 * on the node has taken the device's name.
 */
export function givingBack(owner: Owner): Link[] {
  const note = readPart(partName(LINK, owner))
  return (note?.own ?? []).flatMap((one) => (one.kind === 'link' && one.lent ? back(one.lent, owner, note?.netns) : []))
}

/** The same for a device that a reference plugin moved. That plugin notes only the device's name, in the alias. */
export function givingBackForeign(at: Attachment): Link[] {
  const { netns, ifname } = at
  const link = netns === undefined ? undefined : linkIn(ifname, netns)
  if (!link?.alias || !isName(link.alias) || isAnothers(at)) return []
  const { name, index, mac, mtu, alias: original } = link
  return returning(
    { name: parse.ifname(original), index, mac, mtu, isUp: false, alias: '' },
    { ns: netns as NetnsPath, link: { ...link, name } },
  )
}

interface Place {
  readonly ns: Netns
  readonly link: LinkFacts
}

// When a namespace ends, the kernel moves hardware devices back to the node by itself. It deletes all other links.
function back(lent: Lent, owner: Owner, netns: NetnsPath | undefined): Link[] {
  const spaces: Netns[] = [...(netns !== undefined && netnsState(netns) === 'pod' ? [netns] : []), 'host']
  const places = spaces.flatMap((ns) => inside(ns, linksNow).map((link): Place => ({ ns, link })))
  const found = sought(places, lent, owner)
  return found ? returning(lent, found) : []
}

// Finds the device by its alias, which stays with it. A device that is on the node with its earlier settings never
// left, or is back. A device without an alias is found by the facts that it shares with the moved device: the hardware
// address, or two of index, MAC address and name.
function sought(places: readonly Place[], lent: Lent, owner: Owner): Place | undefined {
  const alike = ({ ns, link: { name, index, mac } }: Place) => {
    const isNamed = name === lent.name || (ns !== 'host' && name === owner.ifname)
    return Number(index === lent.index) + Number(mac === lent.mac) + Number(isNamed)
  }
  const others = places.filter(({ link }) => link.permanent === lent.permanent).sort((a, b) => alike(b) - alike(a))
  const likely = others.find((place) => alike(place) >= (lent.permanent === undefined ? 2 : 0))
  // Two devices of one pod may have had the same name at different times.
  return (
    others.find(({ link }) => lent.alias !== undefined && link.alias === lent.name) ??
    others.find((place) => place.ns === 'host' && alike(place) === 3) ??
    likely
  )
}

function returning(lent: Lent, { ns, link }: Place): Link[] {
  const { name, isUp, mac, mtu } = lent
  const isNamed = lent.alias !== undefined && link.alias !== lent.alias
  if (ns === 'host' && link.name === name && link.isUp === isUp && !isNamed) return []
  if ((ns !== 'host' || link.name !== name) && linkIn(name, 'host') !== undefined) {
    const place = ns === 'host' ? '' : ` in ${ns}`
    throw new CniError(
      CODE.tryLater,
      `Cannot give ${name} back: the node has another link of that name by now`,
      `it stays where it is, as ${link.name}${place}; delete or rename the other one, then DEL again`,
    )
  }
  const move = {
    ...(ns === 'host' ? {} : { to: 'host' as const }),
    name,
    ...(isNamed && { alias: lent.alias as string }),
    ...(mac !== link.mac && isMac(mac) && { mac }),
    ...(mtu !== link.mtu && { mtu }),
  }
  return [{ kind: 'link', ns, name: link.name, type: 'lent', up: isUp, move }]
}

// The characters that a line of `ip` can contain.
const PLAIN = /^[\w.:/@+-]*$/

function isMac(text: string): text is Mac {
  return /^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$/.test(text) && text !== '00:00:00:00:00:00'
}

function isName(text: string): text is IfName {
  try {
    parse.ifname(text)
    return true
  } catch {
    return false
  }
}
