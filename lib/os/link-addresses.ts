import { type Cidr, format, type Ip } from '../text/ip.ts'
import { askRoute, NLM_F_DUMP } from './rtnetlink.ts'

// linux/rtnetlink.h, linux/if_addr.h: struct ifaddrmsg holds family, prefix length, flags, scope and the link's index.
const RTM_GETADDR = 22
const [IFADDRMSG_BYTES, IFA_PREFIXLEN, IFA_SCOPE, IFA_INDEX] = [8, 1, 3, 4]
const [IFA_ADDRESS, IFA_LOCAL] = [1, 2]

// ENODEV: there is no link of this index.
const GONE = [19]

/** The scope of an address that is valid only on one link (linux/rtnetlink.h). */
export const RT_SCOPE_LINK = 253

/** An address of a link. */
export interface LinkAddress {
  readonly cidr: Cidr
  readonly scope: number
}

/**
 * The addresses of a link of this thread's namespace, by the link's index. The kernel looks at
 * no other link (Linux 4.20), however many links exist. `ip -batch` makes the kernel go through all links. With index
 * 0, returns the addresses of all links. A link that is gone has none. Throws NoAnswer.
 */
export function addressesNow(index = 0): LinkAddress[] {
  const body = new Uint8Array(IFADDRMSG_BYTES)
  new DataView(body.buffer).setUint32(IFA_INDEX, index, true)
  const found: LinkAddress[] = []
  for (const { body: header, attributes } of askRoute(RTM_GETADDR, body, NLM_F_DUMP, [], GONE, true)) {
    const ip =
      index === 0 || header.getUint32(IFA_INDEX, true) === index
        ? addressOf(attributes.get(IFA_LOCAL) ?? attributes.get(IFA_ADDRESS))
        : undefined
    if (ip !== undefined)
      found.push({ cidr: `${ip}/${header.getUint8(IFA_PREFIXLEN)}` as Cidr, scope: header.getUint8(IFA_SCOPE) })
  }
  return found
}

/** The IP address in an attribute. Undefined when the attribute holds none. */
export function addressOf(bytes: DataView | undefined): Ip | undefined {
  if (bytes?.byteLength === 4) return format({ family: 4, bits: BigInt(bytes.getUint32(0)) })
  if (bytes?.byteLength === 16)
    return format({ family: 6, bits: (bytes.getBigUint64(0) << 64n) | bytes.getBigUint64(8) })
  return undefined
}
