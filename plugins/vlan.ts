import * as v from 'valibot'
import type { Attachment, NodeFacts } from '../lib/cni/plugin.ts'
import { ValueError } from '../lib/text/errors.ts'
import { field } from '../lib/text/shape.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { masterKeys, masterOf, masterReady } from '../lib/wiring/master.ts'
import type { PodLink } from '../lib/wiring/pod-link.ts'
import { definePodPlugin } from '../lib/wiring/pod-plugin.ts'

const keys = v.object({
  ...masterKeys,
  // VLAN 0 gives a frame only a priority. 4095 is reserved (IEEE 802.1Q).
  vlanId: v.optional(field.int(0, 4094), 0),
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ master }) => {
  if (master === undefined)
    throw new ValueError('Cannot read master: it is missing: want the link whose VLAN it is, such as eth0')
})

const KIND = 'vlan'

/** The plugin `vlan` (upstream plugins/main/vlan). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin vlan: a VLAN of a link of the node, as a link of the container',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
  status: async (conf) => masterReady(conf),
})

// The link shares its master's MAC.
function linkOf(conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  const { name, ns, mac, mtu } = masterOf(conf, at, node)
  return { type: KIND, mtu: conf.mtu, like: { id: conf.vlanId }, birth: { by: ns, master: name }, shown: { mac, mtu } }
}
