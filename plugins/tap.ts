import * as v from 'valibot'
import type { Attachment, NodeFacts } from '../lib/cni/plugin.ts'
import type { Link } from '../lib/state/kinds/link.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { podMac } from '../lib/text/link-names.ts'
import { field } from '../lib/text/shape.ts'
import { type NetnsPath, parse } from '../lib/text/values.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { askedMac } from '../lib/wiring/master.ts'
import { nodeFacts } from '../lib/wiring/node-facts.ts'
import type { PodLink } from '../lib/wiring/pod-link.ts'
import { definePodPlugin } from '../lib/wiring/pod-plugin.ts'

const mac = field.filled(parse.mac)
// The number of a user or a group. The kernel reads the largest 32-bit number as "nobody".
const id = v.exactOptional(field.int(0, 2 ** 32 - 2))

const conf = v.object({
  multiQueue: v.optional(field.flag, false),
  // 0: the kernel's default. The largest MTU of a tap is 65535, the limit of IPv4, minus the 14 bytes of the Ethernet
  // header.
  mtu: v.optional(field.int(0, 65521), 0),
  mac,
  owner: id,
  group: id,
  selinuxContext: v.optional(field.by(context), ''),
  // A bridge in the pod.
  bridge: field.filled(parse.ifname),
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({ mac }), {}),
})
type Conf = v.InferOutput<typeof conf>

const KIND = 'tun'
// The kernel's default MTU of a tap (ether_setup).
const MTU = 1500

/** The plugin `tap` (upstream plugins/main/tap). */
export default definePodPlugin<Conf>({
  about: 'CNI plugin tap: a tap of the container, for a program in it such as a virtual machine',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['MAC', 'IP', 'GATEWAY'],
  kind: KIND,
  linkOf,
  async status() {
    requireTun(nodeFacts, CODE.notReady)
  },
})

function linkOf(conf: Conf, at: Attachment, node: NodeFacts): PodLink {
  requireTun(node, CODE.env)
  const { mtu, owner, group, multiQueue } = conf
  return {
    type: KIND,
    mac: askedMac(conf, at) ?? podMac(at, node),
    mtu,
    like: { multiQueue },
    birth: {
      by: at.netns as NetnsPath,
      ...(owner === undefined ? {} : { owner }),
      ...(group === undefined ? {} : { group }),
      ...labelled(conf, node),
    },
    ...portOf(conf, at, node),
    shown: { mtu: MTU },
  }
}

// Throws CniError when the node has no /dev/net/tun.
function requireTun({ hasTun }: NodeFacts, code: number): void {
  if (hasTun === false)
    throw new CniError(
      code,
      'Cannot make a tap: the node has no /dev/net/tun',
      'want the kernel module tun (modprobe tun)',
    )
}

// A tap gets the SELinux label of the program that makes it. Throws CniError 4 when SELinux is off, because a requested
// label must not be dropped silently.
function labelled({ selinuxContext }: Conf, { hasSelinux }: NodeFacts): { context?: string } {
  if (selinuxContext === '') return {}
  if (!hasSelinux)
    throw new CniError(
      CODE.env,
      `Cannot give the tap the SELinux context ${shown(selinuxContext)}: SELinux is not on in this kernel`,
      'leave "selinuxContext" out on such nodes',
    )
  return { context: selinuxContext }
}

function context(value: unknown): string {
  if (typeof value !== 'string' || !/^([a-zA-Z_][\w.-]*(:[\w.,-]+){2,4})?$/.test(value))
    throw new ValueError(`${shown(value)}: want an SELinux context such as system_u:system_r:svirt_t:s0`)
  return value
}

// Throws CniError 7 when the pod has no such bridge.
function portOf({ bridge }: Conf, { netns }: Attachment, node: NodeFacts): { port?: NonNullable<Link['port']> } {
  if (bridge === undefined) return {}
  const found = node.link?.(bridge, netns as NetnsPath)
  if (!found)
    throw new CniError(
      CODE.config,
      `Cannot find the bridge ${shown(bridge)} in ${netns}: there is no such link`,
      '"bridge" is one of the container itself, and has to be there before its tap',
    )
  if (found.kind !== 'bridge')
    throw new CniError(
      CODE.config,
      `Cannot use ${shown(bridge)} in ${netns} as a bridge: it is not a bridge`,
      `it is of type ${found.kind || 'device'}; set "bridge" to another name`,
    )
  return { port: { master: bridge } }
}
