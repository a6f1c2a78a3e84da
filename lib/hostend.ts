import { netlink } from './libc.ts'
import { inside } from './netns.ts'
import type { NodeFacts } from './plugin.ts'
import { parse } from './values.ts'

const NETLINK_ROUTE = 0
// linux/rtnetlink.h and linux/if_link.h
const [NEWLINK, GETLINK, NLM_F_REQUEST] = [16, 18, 1]
const [IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_LINK_NETNSID] = [3, 4, 5, 37]
// struct nlmsghdr and struct ifinfomsg, before the attributes.
const [HEADERS, INDEX] = [32, 20]

interface Row {
  readonly index: number
  readonly name: string
  readonly mtu: number
  /** The index of the other end, in whatever namespace that is. */
  readonly link: number | undefined
  /** That namespace is another one. */
  readonly isElsewhere: boolean
}

/** The node's end of a pod's veth, asked of the kernel itself (rtnetlink), without a process: the pod's link and the node's name each other. */
export const hostEnd: NonNullable<NodeFacts['hostEnd']> = ({ netns, ifname }) => {
  if (netns === undefined) return undefined
  let inPod: Row | undefined
  try {
    inPod = inside(netns, () => ask({ name: ifname }))
  } catch {
    // It is gone, or not to be entered: whoever needs it says so.
    return undefined
  }
  const outer = inPod?.link && inPod.isElsewhere ? ask({ index: inPod.link }) : undefined
  return inPod && outer?.link === inPod.index ? { name: parse.ifname(outer.name), mtu: outer.mtu } : null
}

function ask({ name, index = 0 }: { readonly name?: string; readonly index?: number }): Row | undefined {
  const text = name === undefined ? new Uint8Array(0) : new TextEncoder().encode(`${name}\0`)
  const length = HEADERS + (name === undefined ? 0 : (4 + text.length + 3) & ~3)
  const request = new Uint8Array(length)
  const view = new DataView(request.buffer)
  view.setUint32(0, length, true)
  view.setUint16(4, GETLINK, true)
  view.setUint16(6, NLM_F_REQUEST, true)
  view.setInt32(INDEX, index, true)
  if (name !== undefined) {
    view.setUint16(HEADERS, 4 + text.length, true)
    view.setUint16(HEADERS + 2, IFLA_IFNAME, true)
    request.set(text, HEADERS + 4)
  }
  for (const answer of netlink(NETLINK_ROUTE, request)) if (answer.getUint16(4, true) === NEWLINK) return rowOf(answer)
  return undefined
}

function rowOf(answer: DataView): Row {
  const attributes = new Map<number, number>()
  for (let at = HEADERS, size = 0; at + 4 <= answer.byteLength; at += (size + 3) & ~3) {
    size = answer.getUint16(at, true)
    if (size < 4) break
    attributes.set(answer.getUint16(at + 2, true), at)
  }
  const number = (type: number) => (attributes.has(type) ? answer.getUint32((attributes.get(type) as number) + 4, true) : undefined)
  const at = attributes.get(IFLA_IFNAME) ?? 0
  const name = at === 0 ? '' : new TextDecoder().decode(new Uint8Array(answer.buffer, answer.byteOffset + at + 4, answer.getUint16(at, true) - 5))
  return { index: answer.getInt32(INDEX, true), name, mtu: number(IFLA_MTU) ?? 0, link: number(IFLA_LINK), isElsewhere: attributes.has(IFLA_LINK_NETNSID) }
}
