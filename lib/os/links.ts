import type { Settings } from '../state/kinds/setting.ts'
import { BRIDGE_ALIAS } from '../text/owner.ts'
import type { IfName, Mac, Netns } from '../text/values.ts'
import { sleep } from './door.ts'
import { attributesOf, attributeText, numberOf } from './netlink-attributes.ts'
import { inside } from './netns.ts'
import { readText } from './reading.ts'
import { type Answer, type Attribute, askRoute, NLM_F_DUMP } from './rtnetlink.ts'

// linux/rtnetlink.h, linux/if_link.h, linux/if.h and linux/if_arp.h
const RTM_GETLINK = 18
const [IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_TXQLEN] = [1, 3, 4, 5, 10, 13]
const [IFLA_LINKINFO, IFLA_IFALIAS, IFLA_EXT_MASK, IFLA_LINK_NETNSID, IFLA_PERM_ADDRESS] = [18, 20, 29, 37, 54]
const [IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_INFO_SLAVE_DATA, IFLA_VRF_TABLE] = [1, 2, 5, 1]
const [IFLA_BRPORT_STATE, IFLA_BRPORT_MODE, IFLA_BRPORT_ISOLATED, IFLA_BRPORT_LOCKED] = [1, 4, 33, 39]
const [IFINFOMSG_BYTES, IFI_TYPE, IFI_INDEX, IFI_FLAGS] = [16, 2, 4, 8]
const [IFF_UP, IFF_PROMISC, IFF_ALLMULTI] = [1, 0x100, 0x200]
const ARPHRD_ETHER = 1
const SKIP_STATISTICS: Attribute = [IFLA_EXT_MASK, Uint8Array.of(8, 0, 0, 0)]
// ENODEV. ERANGE and EINVAL: no link can have this name or index.
const ABSENT = [19, 22, 34]

/** The kernel's facts about a link. */
export interface LinkFacts extends Required<Omit<Settings, 'master'>> {
  readonly index: number
  readonly name: IfName
  /** The kind as in `ip -d link`, such as `macvlan` or `veth`. Empty for hardware and for lo. */
  readonly kind: string
  readonly alias: string
  readonly isUp: boolean
  readonly isEthernet: boolean
  /** The permanent hardware address, as any number of hex pairs. Absent for virtual links. */
  readonly permanent?: string
  /** The index of the lower link, or of the peer in a pair. */
  readonly on: number | undefined
  /** Whether the link of `on` is in another namespace. */
  readonly isOnElsewhere: boolean
  /** The index of the link's master, such as its bridge. */
  readonly master: number | undefined
  /** For a port of a bridge: the port drops packets from unknown source addresses (Linux 5.18). */
  readonly locked: boolean
  /**
   * For a port of a bridge: the bridge sends a packet back to the port that it came from, and the port reaches no other
   * isolated port.
   */
  readonly hairpin: boolean
  readonly isolated: boolean
  /** For a port of a bridge: what the bridge does with its frames, such as `BR_STATE_DISABLED`. */
  readonly state: number | undefined
  /** For a VRF: its routing table. */
  readonly table: number | undefined
}

/** The facts that decide whether and how a link is used. */
export type SeenLink = Pick<
  LinkFacts,
  'index' | 'mtu' | 'mac' | 'kind' | 'alias' | 'isEthernet' | 'isUp' | 'promisc' | 'locked'
>

/**
 * The facts of a link of this thread's namespace, by name or index (rtnetlink(7)). Takes microseconds and no
 * subprocess. Undefined when there is no such link. Throws NoAnswer.
 */
export function linkFacts(which: string | number): LinkFacts | undefined {
  const body = new Uint8Array(IFINFOMSG_BYTES)
  if (typeof which === 'number') new DataView(body.buffer).setInt32(IFI_INDEX, which, true)
  const named: Attribute[] = typeof which === 'number' ? [] : [[IFLA_IFNAME, new TextEncoder().encode(`${which}\0`)]]
  const [found] = askRoute(RTM_GETLINK, body, 0, [SKIP_STATISTICS, ...named], ABSENT)
  return found && read(found)
}

/**
 * The facts of all links of this thread's namespace. Not from sysfs, which shows the namespace in which it was mounted.
 * Throws NoAnswer.
 */
export function linksNow(): LinkFacts[] {
  return askRoute(RTM_GETLINK, new Uint8Array(IFINFOMSG_BYTES), NLM_F_DUMP, [SKIP_STATISTICS]).map(read)
}

/**
 * The facts of a link of any namespace. Undefined when there is no such link. Throws NoAnswer, and CniError 3 when the
 * namespace cannot be entered.
 */
export function linkIn(name: string, ns: Netns): LinkFacts | undefined {
  return inside(ns, () => linkFacts(name))
}

// linux/if_bridge.h
const BR_STATE_DISABLED = 0
const [FIRST_STEP_MS, LONGEST_STEP_MS] = [0.05, 50]

/**
 * Waits until the bridge of a port takes the port's frames, at most `limitMs`. The kernel reports a carrier a moment
 * before it tells the bridge. A bridge with spanning tree listens first, for half a minute. Nobody waits for that.
 * Returns false when the time is over.
 */
export function forwards(port: string, limitMs: number): boolean {
  const until = performance.now() + limitMs
  for (
    let step = FIRST_STEP_MS;
    linkFacts(port)?.state === BR_STATE_DISABLED;
    step = Math.min(step * 2, LONGEST_STEP_MS)
  ) {
    if (performance.now() >= until) return false
    sleep(step)
  }
  return true
}

// linux/netdevice.h
const NET_ADDR_SET = '3'

/**
 * The MAC of a bridge when no program has set it. Such a MAC changes with the bridge's ports. Undefined when the MAC
 * was set, or when there is no such bridge. Netlink does not report this. sysfs does, but only for the namespace in
 * which it was mounted. In any other namespace, only the MAC of a bridge that plumb made counts as set.
 */
export function floatingMac(bridge: IfName): Mac | undefined {
  const seen = linkFacts(bridge)
  if (seen?.kind !== 'bridge') return undefined
  const of = (attribute: string) => readText(`/sys/class/net/${bridge}/${attribute}`)?.trim()
  const isShown = of('ifindex') === String(seen.index) && of('address') === seen.mac
  const isSet = isShown ? of('addr_assign_type') === NET_ADDR_SET : seen.alias === BRIDGE_ALIAS
  return isSet ? undefined : seen.mac
}

function read({ body, attributes }: Answer): LinkFacts {
  const info = attributes.get(IFLA_LINKINFO)
  const inner = info ? attributesOf(info) : undefined
  const kind = attributeText(inner?.get(IFLA_INFO_KIND))
  const data = kind === 'vrf' ? inner?.get(IFLA_INFO_DATA) : undefined
  const slave = inner?.get(IFLA_INFO_SLAVE_DATA)
  const port = slave && attributesOf(slave)
  const isOn = (attribute: number) => port?.get(attribute)?.getUint8(0) === 1
  const flags = body.getUint32(IFI_FLAGS, true)
  const permanent = macOf(attributes.get(IFLA_PERM_ADDRESS))
  return {
    index: body.getInt32(IFI_INDEX, true),
    name: attributeText(attributes.get(IFLA_IFNAME)) as IfName,
    kind,
    alias: attributeText(attributes.get(IFLA_IFALIAS)),
    isUp: (flags & IFF_UP) !== 0,
    isEthernet: body.getUint16(IFI_TYPE, true) === ARPHRD_ETHER,
    ...(permanent && { permanent }),
    on: numberOf(attributes.get(IFLA_LINK)),
    isOnElsewhere: attributes.has(IFLA_LINK_NETNSID),
    master: numberOf(attributes.get(IFLA_MASTER)),
    locked: isOn(IFLA_BRPORT_LOCKED),
    hairpin: isOn(IFLA_BRPORT_MODE),
    isolated: isOn(IFLA_BRPORT_ISOLATED),
    state: port?.get(IFLA_BRPORT_STATE)?.getUint8(0),
    table: data ? numberOf(attributesOf(data).get(IFLA_VRF_TABLE)) : undefined,
    mac: macOf(attributes.get(IFLA_ADDRESS)),
    mtu: numberOf(attributes.get(IFLA_MTU)) ?? 0,
    txQLen: numberOf(attributes.get(IFLA_TXQLEN)) ?? 0,
    promisc: (flags & IFF_PROMISC) !== 0,
    allmulti: (flags & IFF_ALLMULTI) !== 0,
  }
}

// Accepts any hardware. Links other than Ethernet have more or fewer than six pairs.
function macOf(address: DataView | undefined): Mac {
  let text = ''
  for (let at = 0; address && at < address.byteLength; at++)
    text += `${at > 0 ? ':' : ''}${address.getUint8(at).toString(16).padStart(2, '0')}`
  return text as Mac
}
