import * as v from 'valibot'
import { ValueError } from '../lib/errors.ts'
import { linkKeys } from '../lib/linkkeys.ts'
import { masterKeys, masterOf, masterReady } from '../lib/master.ts'
import type { Attachment, NodeFacts } from '../lib/plugin.ts'
import type { PodLink } from '../lib/podlink.ts'
import { definePodPlugin } from '../lib/podplugin.ts'
import { field } from '../lib/shape.ts'

const keys = v.object({
  ...masterKeys,
  // 0 tags a frame with a priority alone; 4095 is reserved (IEEE 802.1Q).
  vlanId: v.optional(field.int(0, 4094), 0),
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ master }) => {
  if (master === undefined) throw new ValueError('Cannot read master: it is missing: want the link whose VLAN it is, such as eth0')
})

const KIND = 'vlan'

/** The plugin `vlan` (upstream plugins/main/vlan). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin vlan: a VLAN of a link of the node, as a link of the container',
  conf,
  // The pool's, which reads them from the same variable.
  args: ['IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
  status: async (conf) => masterReady(conf),
})

// It has its master's address.
function linkOf(conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  const { name, ns, mac, mtu } = masterOf(conf, at, node)
  return { type: KIND, mtu: conf.mtu, like: { id: conf.vlanId }, birth: { by: ns, master: name }, shown: { mac, mtu } }
}
