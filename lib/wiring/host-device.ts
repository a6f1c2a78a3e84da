import type { Attachment } from '../cni/plugin.ts'
import { LINK, partName, readPart } from '../journal/journal.ts'
import { type LinkFacts, linkIn, linksNow } from '../os/links.ts'
import { inside, netnsState } from '../os/netns.ts'
import type { Lent, Link } from '../state/kinds/link.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'
import { type IfName, type Mac, type Netns, type NetnsPath, parse } from '../text/values.ts'

/** A device of the node as a resource of the pod's: put, it goes there and gets the pod's name, and its own as its alias, all in one message to the kernel. The reference plugin's DEL finds the name there. What the device was like is with it, for the way back. */
export function lend({ name, index, mac, mtu, isUp, permanent, alias: text }: LinkFacts, at: Attachment): Link {
  const lent: Lent = { name, index, mac, mtu, isUp, ...(permanent && { permanent }), ...(PLAIN.test(text) && { alias: text }) }
  return { kind: 'link', ns: 'host', name, type: 'lent', up: false, lent, move: { to: at.netns as NetnsPath, name: at.ifname, ...(lent.alias !== undefined && { alias: name }) } }
}

/** What gives a device back, wherever it is and whatever it is called by now; nothing when it is gone, or back as it was. Dropped, it does that in one message: name, address, size and whether it is up as they were. Throws CniError 11 when its name on the node is another's meanwhile. */
export function givingBack(owner: Owner): Link[] {
  const note = readPart(partName(LINK, owner))
  return (note?.own ?? []).flatMap((one) => (one.kind === 'link' && one.lent ? back(one.lent, owner, note?.netns) : []))
}

/** The same for one that a reference plugin lent: its name in the alias is all that it noted. */
export function givingBackForeign({ netns, ifname }: Attachment): Link[] {
  const link = netns === undefined ? undefined : linkIn(ifname, netns)
  if (!link?.alias || !isName(link.alias)) return []
  const { name, index, mac, mtu, alias: original } = link
  return returning({ name: parse.ifname(original), index, mac, mtu, isUp: false, alias: '' }, { ns: netns as NetnsPath, link: { ...link, name } })
}

interface Place {
  readonly ns: Netns
  readonly link: LinkFacts
}

// The kernel moves a card of a namespace that dies back to the node by itself, and deletes what is no hardware.
function back(lent: Lent, owner: Owner, netns: NetnsPath | undefined): Link[] {
  const spaces: Netns[] = [...(netns !== undefined && netnsState(netns) === 'pod' ? [netns] : []), 'host']
  const places = spaces.flatMap((ns) => inside(ns, linksNow).map((link): Place => ({ ns, link })))
  const found = sought(places, lent, owner)
  return found ? returning(lent, found) : []
}

// By its alias, which stays with it. One that is on the node as it was has never left, or is back. Any other, which could not be given one or lost it, by what it has in common with what was lent: the address of its hardware, or without one two of number, address and name.
function sought(places: readonly Place[], lent: Lent, owner: Owner): Place | undefined {
  const alike = ({ ns, link: { name, index, mac } }: Place) => [index === lent.index, mac === lent.mac, name === lent.name || (ns !== 'host' && name === owner.ifname)].filter(Boolean).length
  const others = places.filter(({ link }) => link.permanent === lent.permanent).sort((a, b) => alike(b) - alike(a))
  const likely = others.find((place) => alike(place) >= (lent.permanent === undefined ? 2 : 0))
  // Two devices of one pod may have had the same name one after the other.
  return others.find(({ link }) => lent.alias !== undefined && link.alias === lent.name) ?? others.find((place) => place.ns === 'host' && alike(place) === 3) ?? likely
}

function returning(lent: Lent, { ns, link }: Place): Link[] {
  const { name, isUp, mac, mtu } = lent
  const isNamed = lent.alias !== undefined && link.alias !== lent.alias
  if (ns === 'host' && link.name === name && link.isUp === isUp && !isNamed) return []
  if ((ns !== 'host' || link.name !== name) && linkIn(name, 'host') !== undefined)
    throw new CniError(CODE.tryLater, `Cannot give ${name} back: the node has another link of that name by now`, `it stays where it is, as ${link.name}${ns === 'host' ? '' : ` in ${ns}`}; delete or rename the other one, then DEL again`)
  return [
    {
      kind: 'link',
      ns,
      name: link.name,
      type: 'lent',
      up: isUp,
      move: { ...(ns === 'host' ? {} : { to: 'host' as const }), name, ...(isNamed && { alias: lent.alias as string }), ...(mac !== link.mac && isMac(mac) && { mac }), ...(mtu !== link.mtu && { mtu }) },
    },
  ]
}

// What can stand in a line of ip's.
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
