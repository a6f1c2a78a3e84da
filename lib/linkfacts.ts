import { type Attributes, askRoute, attributesOf, numberOf, textOf } from './rtnetlink.ts'
import type { Settings } from './settings.ts'
import type { IfName, Mac } from './values.ts'

const NLM_F_DUMP = 0x300
// linux/rtnetlink.h and linux/if_link.h
const RTM_GETLINK = 18
const [IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_TXQLEN, IFLA_LINKINFO] = [1, 3, 4, 5, 10, 13, 18]
const [IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_VRF_TABLE] = [1, 2, 1]
const IFINFOMSG_BYTES = 16
const [IFF_PROMISC, IFF_ALLMULTI] = [0x100, 0x200]

/** A link as the kernel knows it. */
export interface LinkFacts extends Required<Omit<Settings, 'master'>> {
  readonly index: number
  readonly name: IfName
  /** What kind of virtual link it is: `veth`; empty for others. */
  readonly type: string
  /** The index of the link that it stands on, or of a pair the other end's, in that one's namespace. */
  readonly on: number | undefined
  /** The index of the link that it is a port of. */
  readonly master: number | undefined
  /** Of a VRF: its table. */
  readonly table: number | undefined
}

/** What the kernel says of a link of this thread's namespace, in microseconds and without a process; undefined when there is none. */
export function linkFacts(name: string): LinkFacts | undefined {
  for (const { body, attributes } of askRoute(RTM_GETLINK, new Uint8Array(IFINFOMSG_BYTES), 0, [IFLA_IFNAME, name])) return read(body, attributes)
  return undefined
}

/** The same of all links: for a pod, which has few. */
export function linksNow(): LinkFacts[] {
  return [...askRoute(RTM_GETLINK, new Uint8Array(IFINFOMSG_BYTES), NLM_F_DUMP)].map(({ body, attributes }) => read(body, attributes))
}

function read(body: DataView, attributes: Attributes): LinkFacts {
  const info = attributes.get(IFLA_LINKINFO)
  const inner = info ? attributesOf(info) : undefined
  const type = textOf(inner?.get(IFLA_INFO_KIND))
  const data = type === 'vrf' ? inner?.get(IFLA_INFO_DATA) : undefined
  const flags = body.getUint32(8, true)
  return {
    index: body.getInt32(4, true),
    name: textOf(attributes.get(IFLA_IFNAME)) as IfName,
    type,
    on: numberOf(attributes.get(IFLA_LINK)),
    master: numberOf(attributes.get(IFLA_MASTER)),
    table: data ? numberOf(attributesOf(data).get(IFLA_VRF_TABLE)) : undefined,
    mac: macOf(attributes.get(IFLA_ADDRESS)),
    mtu: numberOf(attributes.get(IFLA_MTU)) ?? 0,
    txQLen: numberOf(attributes.get(IFLA_TXQLEN)) ?? 0,
    promisc: (flags & IFF_PROMISC) !== 0,
    allmulti: (flags & IFF_ALLMULTI) !== 0,
  }
}

function macOf(address: DataView | undefined): Mac {
  const bytes = address ? [...new Uint8Array(address.buffer)] : []
  return bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(':') as Mac
}
