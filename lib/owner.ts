import { digest, localMac } from './digest.ts'
import type { Owner } from './state.ts'
import type { IfName, Mac } from './values.ts'

/** The host end of an attachment's veth pair. Named after its owner alone, so that DEL finds it with nothing else to go by, and no other attachment has it. */
export function hostVeth(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`host ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `veth${hash.slice(0, 11)}` as IfName, mac: localMac(hash.slice(11)) }
}

/** The two ends of a pair whose one end holds a bridge's gateway addresses in a VLAN and is called `name`, whichever network made it: the port's name, and the addresses of port and holder. */
export function gatewayPair(name: IfName): { port: IfName; portMac: Mac; mac: Mac } {
  const hash = digest(`gateway ${name}`)
  return { port: `veth${hash.slice(0, 11)}` as IfName, portMac: localMac(hash.slice(11)), mac: localMac(digest(`gateway's ${name}`)) }
}

/** The address that a pod's link gets when nobody asks for another: the same for the same attachment, locally administered. */
export function podMac(owner: Owner): Mac {
  return localMac(digest(`pod ${owner.network} ${owner.containerId} ${owner.ifname}`))
}

/** The name that a link which stands in the pod alone is made under, before it gets its own together with its alias. */
export function birthName(owner: Owner): IfName {
  return `plumb${digest(`birth ${owner.network} ${owner.containerId} ${owner.ifname}`).slice(0, 10)}` as IfName
}

/** The address of a bridge that its first attachment makes, fixed from the start: one that takes its lowest port's would change it as pods come and go. */
export function bridgeMac(name: IfName, first: Owner): Mac {
  return localMac(digest(`bridge ${name} ${first.containerId}`))
}
