import * as v from 'valibot'
import { ValueError } from '../lib/errors.ts'
import { linkKeys } from '../lib/linkkeys.ts'
import { podMac } from '../lib/owner.ts'
import type { Attachment, NodeFacts } from '../lib/plugin.ts'
import type { PodLink } from '../lib/podlink.ts'
import { definePodPlugin } from '../lib/podplugin.ts'
import { field } from '../lib/shape.ts'

const keys = v.object({ ...linkKeys, runtimeConfig: v.optional(v.looseObject({}), {}) })
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ ipam }) => {
  if (!ipam.type) throw new ValueError('Cannot read ipam.type: it is missing, and a dummy is there for its addresses: want the name of a pool, such as host-local')
})

const KIND = 'dummy'
// What dummy_setup gives.
const MTU = 1500

/** The plugin `dummy` (upstream plugins/main/dummy). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin dummy: a link of the container that leads nowhere and has addresses',
  conf,
  // The pool's, which reads them from the same variable.
  args: ['IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
})

function linkOf(_conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  return { type: KIND, mac: podMac(at, node), mtu: 0, birth: { by: 'host' }, shown: { mtu: MTU } }
}
