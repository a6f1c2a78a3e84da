import type { Attachment, NodeFacts } from '../cni/plugin.ts'
import { type Interface, previous, type Result } from '../cni/result.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Resource } from '../state/resource.ts'
import { hostMac, hostVeth, podMac } from '../text/link-names.ts'
import { alias } from '../text/owner.ts'
import { type IfName, type NetnsPath, parse } from '../text/values.ts'

/** The two ends of an attachment's veth pair, and their entries in the result. */
export interface Pair {
  readonly host: Link
  readonly pod: Link
  readonly shown: readonly Interface[]
}
// The default MTU of veth_setup in the kernel.
const VETH_MTU = 1500

/**
 * The veth pair of an attachment, with an MTU of `mtu` bytes. 0 means that the kernel chooses. CHECK takes the names
 * from ADD's result, because a reference plugin may have made the pair. Throws ValueError for a prevResult with names
 * that cannot be names of links.
 */
export function vethPair(at: Attachment, mtu: number, { interfaces = [] }: Result, node: NodeFacts): Pair {
  const made = {
    host: interfaces.find(({ sandbox }) => !sandbox),
    pod: interfaces.find(({ name, sandbox }) => sandbox && name === at.ifname),
  }
  const own = hostVeth(at)
  const name = made.host ? previous(parse.ifname, made.host.name) : own
  const outer = made.host?.mac ? previous(parse.mac, made.host.mac) : hostMac(at, node)
  const inner = made.pod?.mac ? previous(parse.mac, made.pod.mac) : podMac(at, node)
  const ns = at.netns as NetnsPath
  const size = (seen: Interface | undefined) => (mtu ? { mtu: seen?.mtu || mtu } : {})
  return {
    host: {
      kind: 'link',
      ns: 'host',
      name,
      type: 'veth',
      mac: outer,
      ...size(made.host),
      ...(name === own ? { alias: alias(at) } : {}),
      peer: { ns, name: at.ifname, mac: inner },
      up: true,
    },
    pod: { kind: 'link', ns, name: at.ifname, type: 'peer', mac: inner, ...size(made.pod), up: true },
    shown: [
      { name, mac: outer, mtu: mtu || VETH_MTU },
      { name: at.ifname, mac: inner, mtu: mtu || VETH_MTU, sandbox: ns },
    ],
  }
}

/**
 * Switches IPv6 off on the node's end of a veth that does not use it. Otherwise the kernel keeps addresses and routes
 * for it, and walks through them at each change of any link. Among 4,000 ports of a bridge this made an ADD half as
 * long again. An end that a reference plugin made keeps IPv6, and only accepts no router advertisements.
 */
export function mute({ name, alias }: Link): Resource {
  return alias === undefined ? ofSix(name, 'accept_ra', '0') : withoutSix(name)
}

/** Switches IPv6 off on a link of the node. */
export function withoutSix(name: IfName): Resource {
  return ofSix(name, 'disable_ipv6', '1')
}

function ofSix(name: IfName, key: string, value: string): Resource {
  return { kind: 'sysctl', ns: 'host', name: `ipv6/conf/${name}/${key}`, value, optional: true }
}
