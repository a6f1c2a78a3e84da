import { askRoute, attributesOf, numberOf, textOf } from './rtnetlink.ts'
import type { Settings } from './state.ts'
import type { Mac } from './values.ts'

// linux/rtnetlink.h and linux/if_link.h
const RTM_GETLINK = 18
const [IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_TXQLEN, IFLA_LINKINFO, IFLA_INFO_KIND] = [1, 3, 4, 5, 13, 18, 1]
const IFINFOMSG_BYTES = 16
const [IFF_PROMISC, IFF_ALLMULTI] = [0x100, 0x200]

/** A link as the kernel knows it. */
export interface LinkFacts extends Required<Settings> {
  readonly index: number
  /** What kind of virtual link it is: `veth`. */
  readonly type: string
  /** The index of the link that it stands on, or of a pair the other end's, in that one's namespace. */
  readonly on: number | undefined
}

/** What the kernel says of a link of this thread's namespace, in microseconds and without a process; undefined when there is none. */
export function linkFacts(name: string): LinkFacts | undefined {
  for (const { body, attributes } of askRoute(RTM_GETLINK, new Uint8Array(IFINFOMSG_BYTES), 0, [IFLA_IFNAME, name])) {
    const info = attributes.get(IFLA_LINKINFO)
    const flags = body.getUint32(8, true)
    return {
      index: body.getInt32(4, true),
      type: info ? textOf(attributesOf(info).get(IFLA_INFO_KIND)) : '',
      on: numberOf(attributes.get(IFLA_LINK)),
      mac: macOf(attributes.get(IFLA_ADDRESS)),
      mtu: numberOf(attributes.get(IFLA_MTU)) ?? 0,
      txQLen: numberOf(attributes.get(IFLA_TXQLEN)) ?? 0,
      promisc: (flags & IFF_PROMISC) !== 0,
      allmulti: (flags & IFF_ALLMULTI) !== 0,
    }
  }
  return undefined
}

function macOf(address: DataView | undefined): Mac {
  const bytes = address ? [...new Uint8Array(address.buffer)] : []
  return bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(':') as Mac
}
