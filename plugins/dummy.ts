import * as v from 'valibot'
import type { Attachment, NodeFacts } from '../lib/cni/plugin.ts'
import { ValueError } from '../lib/text/errors.ts'
import { podMac } from '../lib/text/link-names.ts'
import { field } from '../lib/text/shape.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import type { PodLink } from '../lib/wiring/pod-link.ts'
import { definePodPlugin } from '../lib/wiring/pod-plugin.ts'

const keys = v.object({ ...linkKeys, runtimeConfig: v.optional(v.looseObject({}), {}) })
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ ipam }) => {
  if (ipam.type) return
  const fact = 'it is missing, and a dummy is there for its addresses'
  throw new ValueError(`Cannot read ipam.type: ${fact}: want the name of a pool, such as host-local`)
})

const KIND = 'dummy'
// The kernel's default MTU of a dummy link (dummy_setup).
const MTU = 1500

/** The plugin `dummy` (upstream plugins/main/dummy). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin dummy: a link of the container that leads nowhere and has addresses',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
})

function linkOf(_conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  return { type: KIND, mac: podMac(at, node), mtu: 0, birth: { by: 'host' }, shown: { mtu: MTU } }
}
