import * as v from 'valibot'
import type { Attachment, NodeFacts } from '../lib/cni/plugin.ts'
import { podMac } from '../lib/text/link-names.ts'
import { field } from '../lib/text/shape.ts'
import { parse } from '../lib/text/values.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { askedMac, masterKeys, masterOf, masterReady } from '../lib/wiring/master.ts'
import type { PodLink } from '../lib/wiring/pod-link.ts'
import { definePodPlugin } from '../lib/wiring/pod-plugin.ts'

const mac = field.filled(parse.mac)

const conf = v.object({
  ...masterKeys,
  mode: v.optional(field.word('', 'bridge', 'private', 'vepa', 'passthru'), ''),
  // 0: the kernel's default.
  bcqueuelen: v.optional(field.int(0, 2 ** 32 - 1), 0),
  mac,
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({ mac }), {}),
})
type Conf = v.InferOutput<typeof conf>

const KIND = 'macvlan'

/** The plugin `macvlan` (upstream plugins/main/macvlan). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin macvlan: a link of the container beside one of the node, with a MAC address of its own',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['MAC', 'IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
  status: async (conf) => masterReady(conf),
})

function linkOf(conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  const { mode, bcqueuelen, mtu } = conf
  const master = masterOf(conf, at, node)
  const asked = askedMac(conf, at)
  // In passthru mode the link shares its master's MAC, unless another MAC is requested.
  const mac = asked ?? (mode === 'passthru' ? undefined : podMac(at, node))
  return {
    type: KIND,
    mac,
    mtu,
    like: { mode: mode || 'bridge', ...(bcqueuelen > 0 ? { bcqueuelen } : {}) },
    birth: { by: master.ns, master: master.name },
    shown: { mac: master.mac, mtu: master.mtu },
  }
}
