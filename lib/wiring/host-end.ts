import type { NodeFacts } from '../cni/plugin.ts'
import { type LinkFacts, linkFacts, linkIn } from '../os/links.ts'
import { parse } from '../text/values.ts'

/** The node's end of a pod's veth, asked of the kernel itself (rtnetlink), without a process: the pod's link and the node's name each other. */
export const hostEnd: NonNullable<NodeFacts['hostEnd']> = ({ netns, ifname }) => {
  if (netns === undefined) return undefined
  let inPod: LinkFacts | undefined
  try {
    inPod = linkIn(ifname, netns)
  } catch {
    // It is gone, or not to be entered: whoever needs it says so.
    return undefined
  }
  const outer = inPod?.on && inPod.isOnElsewhere ? linkFacts(inPod.on) : undefined
  return inPod && outer?.on === inPod.index ? { name: parse.ifname(outer.name), mtu: outer.mtu } : null
}
