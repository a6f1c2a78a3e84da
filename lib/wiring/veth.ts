import type { Attachment, NodeFacts } from '../cni/plugin.ts'
import { previous } from '../cni/previous.ts'
import type { Interface, Result } from '../cni/result.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Resource } from '../state/resource.ts'
import { hostMac, hostVeth, podMac } from '../text/link-names.ts'
import { alias } from '../text/owner.ts'
import { type IfName, type NetnsPath, parse } from '../text/values.ts'

/** The two ends of an attachment's veth pair, and how the result shows them. */
export interface Pair {
  readonly host: Link
  readonly pod: Link
  readonly shown: readonly Interface[]
}
// What veth_setup gives a pair that is told no size.
const VETH_MTU = 1500

/** The pair of an attachment, of `mtu` bytes (0: the kernel's own choice). CHECK names the ends as ADD's result did: a reference plugin may have made them. Throws ValueError for a prevResult whose names cannot be links'. */
export function vethPair(at: Attachment, mtu: number, { interfaces = [] }: Result, node: NodeFacts): Pair {
  const made = { host: interfaces.find(({ sandbox }) => !sandbox), pod: interfaces.find(({ name, sandbox }) => sandbox && name === at.ifname) }
  const own = hostVeth(at)
  const name = made.host ? previous(parse.ifname, made.host.name) : own
  const outer = made.host?.mac ? previous(parse.mac, made.host.mac) : hostMac(at, node)
  const inner = made.pod?.mac ? previous(parse.mac, made.pod.mac) : podMac(at, node)
  const ns = at.netns as NetnsPath
  const size = (seen: Interface | undefined) => (mtu ? { mtu: seen?.mtu || mtu } : {})
  return {
    host: { kind: 'link', ns: 'host', name, type: 'veth', mac: outer, ...size(made.host), ...(name === own ? { alias: alias(at) } : {}), peer: { ns, name: at.ifname, mac: inner }, up: true },
    pod: { kind: 'link', ns, name: at.ifname, type: 'peer', mac: inner, ...size(made.pod), up: true },
    shown: [
      { name, mac: outer, mtu: mtu || VETH_MTU },
      { name: at.ifname, mac: inner, mtu: mtu || VETH_MTU, sandbox: ns },
    ],
  }
}

/** Switches IPv6 off for a node's end that has no use for it: else the kernel keeps addresses and routes for it, which it walks through with each change of any link: among 4,000 ports of a bridge an ADD took half as long again. An end that a reference plugin made has it, and only takes no routes. */
export function mute({ name, alias }: Link): Resource {
  return alias === undefined ? ofSix(name, 'accept_ra', '0') : withoutSix(name)
}

/** Switches IPv6 off for a link of the node. */
export function withoutSix(name: IfName): Resource {
  return ofSix(name, 'disable_ipv6', '1')
}

function ofSix(name: IfName, key: string, value: string): Resource {
  return { kind: 'sysctl', ns: 'host', name: `ipv6/conf/${name}/${key}`, value, optional: true }
}
