import type { Ip } from '../text/ip.ts'
import { addressOf } from './link-addresses.ts'
import { askRoute, NLM_F_DUMP } from './rtnetlink.ts'

const [AF_INET, AF_INET6] = [2, 10]
// linux/neighbour.h: struct ndmsg holds the family, the index of the link at 4, the state at 8 and flags at 10.
const RTM_GETNEIGH = 30
const [NDMSG_BYTES, NDM_INDEX, NDM_STATE, NDM_FLAGS] = [12, 4, 8, 10]
const [NUD_PERMANENT, NTF_PROXY, NTF_EXT_LEARNED] = [0x80, 0x08, 0x10]
const [NDA_DST, NDA_PROTOCOL] = [1, 12]

/**
 * The number of neighbours of this thread's namespace that do not count for the limit of the kernel's table,
 * `gc_thresh3`. They are the permanent ones, such as those of a VXLAN device, and those that a program learnt. Source:
 * Linux 5.0, net/core/neighbour.c, `neigh_alloc`. Throws NoAnswer.
 */
export function uncountedNeighbours(family: 4 | 6): number {
  const body = new Uint8Array(NDMSG_BYTES)
  body[0] = family === 4 ? AF_INET : AF_INET6
  const isUncounted = (header: DataView) =>
    (header.getUint16(NDM_STATE, true) & NUD_PERMANENT) !== 0 || (header.getUint8(NDM_FLAGS) & NTF_EXT_LEARNED) !== 0
  return askRoute(RTM_GETNEIGH, body, NLM_F_DUMP).filter(({ body: header }) => isUncounted(header)).length
}

/** An address for which the node answers on a link, and the number of the program that made it so. */
export interface Proxied {
  /** The index of the link. */
  readonly index: number
  readonly ip: Ip
  readonly proto: number
}

/** The addresses of both families for which this thread's namespace answers (proxy ARP and NDP). Throws NoAnswer. */
export function proxiesNow(): Proxied[] {
  const body = new Uint8Array(NDMSG_BYTES)
  body[NDM_FLAGS] = NTF_PROXY
  return askRoute(RTM_GETNEIGH, body, NLM_F_DUMP).flatMap(({ body: header, attributes }) => {
    const ip = addressOf(attributes.get(NDA_DST))
    if (ip === undefined) return []
    return [{ index: header.getUint32(NDM_INDEX, true), ip, proto: attributes.get(NDA_PROTOCOL)?.getUint8(0) ?? 0 }]
  })
}
