import type { NodeFacts } from '../cni/plugin.ts'
import { type LinkFacts, linkFacts, linkIn } from '../os/links.ts'
import { isNoNamespace } from '../os/netns.ts'
import { parse } from '../text/values.ts'

/** Finds the node's end of a pod's veth by rtnetlink, without a process. The two ends name each other. */
export const hostEnd: NonNullable<NodeFacts['hostEnd']> = ({ netns, ifname }) => {
  if (netns === undefined) return undefined
  let inPod: LinkFacts | undefined
  try {
    inPod = linkIn(ifname, netns)
  } catch (cause) {
    // A caller that needs the link reports that its namespace is gone.
    if (isNoNamespace(netns)) return undefined
    throw cause
  }
  const outer = inPod?.on && inPod.isOnElsewhere ? linkFacts(inPod.on) : undefined
  return inPod && outer?.on === inPod.index ? { name: parse.ifname(outer.name), mtu: outer.mtu } : null
}
