import type { Owner } from './state.ts'
import type { IfName, Mac } from './values.ts'

/** The host end of an attachment's veth pair. Named after its owner alone, so that DEL finds it with nothing else to go by, and no other attachment has it. */
export function hostVeth(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`host ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `veth${hash.slice(0, 11)}` as IfName, mac: local(hash.slice(11)) }
}

/** The two ends of a pair whose one end holds a bridge's gateway addresses in a VLAN and is called `name`, whichever network made it: the port's name, and the addresses of port and holder. */
export function gatewayPair(name: IfName): { port: IfName; portMac: Mac; mac: Mac } {
  const hash = digest(`gateway ${name}`)
  return { port: `veth${hash.slice(0, 11)}` as IfName, portMac: local(hash.slice(11)), mac: local(digest(`gateway's ${name}`)) }
}

/** The address that a pod's link gets when nobody asks for another: the same for the same attachment, locally administered. */
export function podMac(owner: Owner): Mac {
  return local(digest(`pod ${owner.network} ${owner.containerId} ${owner.ifname}`))
}

/** The name that a link which stands in the pod alone is made under, before it gets its own together with its alias. */
export function birthName(owner: Owner): IfName {
  return `plumb${digest(`birth ${owner.network} ${owner.containerId} ${owner.ifname}`).slice(0, 10)}` as IfName
}

/** The link that what an attachment sends is shaped on: of its interface alone, as its host end is. */
export function ifbOf(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`ifb ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `bwp${hash.slice(0, 12)}` as IfName, mac: local(hash.slice(12)) }
}

/** The address of a bridge that its first attachment makes, fixed from the start: one that takes its lowest port's would change it as pods come and go. */
export function bridgeMac(name: IfName, first: Owner): Mac {
  return local(digest(`bridge ${name} ${first.containerId}`))
}

/** The address of a node's VXLAN device: the same for the same node whenever the device is made, so that what peers hold stays right. */
export function vtepMac(node: string, id: number, family: 4 | 6): Mac {
  return local(digest(`vtep ${family} ${id} ${node}`))
}

// XXH64, whose answers its specification fixes: 0.1 ms less to start with than a hash of cryptography.
function digest(text: string): string {
  const half = (seed: bigint) => Bun.hash.xxHash64(text, seed).toString(16).padStart(16, '0')
  return half(0n) + half(1n)
}

// IEEE 802: bit 1 of the first octet set, bit 0 clear: locally administered, unicast.
function local(hex: string): Mac {
  return `02:${(hex.slice(0, 10).match(/../g) as string[]).join(':')}` as Mac
}
