import {
  type Attachment,
  definePlugin,
  type InterfacePlugin,
  type NetConf,
  type NodeFacts,
  type Plugin,
} from '../cni/plugin.ts'
import type { Dns } from '../cni/result.ts'
import type { PodKind } from '../state/kinds/link-shape.ts'
import { birthOf, type PodLink, podWiring, removeForeignPodLink, unwirePod } from './pod-link.ts'

type PodPlugin<C extends NetConf> = Pick<InterfacePlugin<C>, 'about' | 'conf' | 'args' | 'status'> &
  Partial<Pick<InterfacePlugin<C>, 'wire'>> & {
    readonly kind: PodKind
    readonly linkOf: (conf: C, at: Attachment, node: NodeFacts) => PodLink
  }

/** A plugin whose link is only in the pod, with nothing on the node. The description of the link decides the rest. */
export function definePodPlugin<C extends NetConf & { readonly dns?: Dns }>({
  kind,
  linkOf,
  ...rest
}: PodPlugin<C>): Plugin {
  return definePlugin<C>({
    role: 'interface',
    inPod: true,
    links: (conf, at, node) => [birthOf(at, linkOf(conf, at, node))],
    wire: (conf, at, given, node) => podWiring(linkOf(conf, at, node), at, conf, given),
    unwire: (at) => unwirePod(at, kind),
    unwireForeign: (_, at, run) => removeForeignPodLink(at, kind, run),
    ...rest,
  })
}
