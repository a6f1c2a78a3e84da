import * as v from 'valibot'
import { definePlugin } from '../lib/cni.ts'
import { dnsShape } from '../lib/dns.ts'
import { ValueError } from '../lib/errors.ts'
import { podMac } from '../lib/owner.ts'
import type { Attachment } from '../lib/plugin.ts'
import { birthOf, type PodLink, podWiring, removeForeignPodLink, unwirePod } from '../lib/podlink.ts'
import { common, field } from '../lib/shape.ts'

const keys = v.object({ ...common, ipam: v.optional(v.looseObject({ type: v.optional(field.text, '') }), {}), dns: dnsShape, runtimeConfig: v.optional(v.looseObject({}), {}) })
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ ipam }) => {
  if (!ipam.type) throw new ValueError('Cannot read ipam.type: it is missing, and a dummy is there for its addresses: want the name of a pool, such as host-local')
})

const KIND = 'dummy'
// What dummy_setup gives.
const MTU = 1500

/** The plugin `dummy` (upstream plugins/main/dummy). */
export default definePlugin<Conf>({
  role: 'interface',
  about: 'CNI plugin dummy: a link of the container that leads nowhere and has addresses',
  conf,
  // The pool's, which reads them from the same variable.
  args: ['IP', 'GATEWAY'],
  inPod: true,
  links: (_, at) => [birthOf(at, linkOf(at))],
  wire: (conf, at, given) => podWiring(linkOf(at), at, conf, given),
  unwire: (at) => unwirePod(at, KIND),
  unwireForeign: (_, at, run) => removeForeignPodLink(at, KIND, run),
})

function linkOf(at: Attachment): PodLink {
  return { type: KIND, mac: podMac(at), mtu: 0, birth: { by: 'host' }, shown: { mtu: MTU } }
}
