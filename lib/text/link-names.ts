import { digest, localMac } from './digest.ts'
import type { Owner } from './owner.ts'
import type { IfName, Mac } from './values.ts'

/** The name of the host end of an attachment's veth pair. It comes from the owner alone: DEL finds the link with nothing else to go by, and no other attachment has it. */
export function hostVeth(owner: Owner): IfName {
  return `veth${hostDigest(owner).slice(0, 11)}` as IfName
}

/** Its MAC. As all MACs here it holds the machine's id: two nodes of one layer 2 may run the same container id. */
export function hostMac(owner: Owner, { machineId }: Machine): Mac {
  return localMac(hostDigest(owner, machineId).slice(11))
}

/** The name of the port of a pair whose other end, `name`, holds a bridge's gateway addresses in a VLAN, whichever network made it. */
export function gatewayPort(name: IfName): IfName {
  return `veth${digest(`gateway ${name}`).slice(0, 11)}` as IfName
}

/** The MACs of that port and of the link that holds the addresses. */
export function gatewayMacs(name: IfName, { machineId = '' }: Machine): { port: Mac; holder: Mac } {
  return { port: localMac(digest(`${machineId}gateway ${name}`).slice(11)), holder: localMac(digest(`${machineId}gateway's ${name}`)) }
}

/** The address that a pod's link gets when nobody asks for another: the same for the same attachment, locally administered. */
export function podMac(owner: Owner, { machineId = '' }: Machine): Mac {
  return localMac(digest(`${machineId}pod ${owner.network} ${owner.containerId} ${owner.ifname}`))
}

/** The name that a link which stands in the pod alone is made under, before it gets its own together with its alias. */
export function birthName(owner: Owner): IfName {
  return `plumb${digest(`birth ${owner.network} ${owner.containerId} ${owner.ifname}`).slice(0, 10)}` as IfName
}

/** The address of a bridge that its first attachment makes, fixed from the start: one that takes its lowest port's would change it as pods come and go. */
export function bridgeMac(name: IfName, first: Owner, { machineId = '' }: Machine): Mac {
  return localMac(digest(`${machineId}bridge ${name} ${first.containerId}`))
}

/** Tells this machine from all others. */
interface Machine {
  readonly machineId?: string
}

function hostDigest(owner: Owner, machineId = ''): string {
  return digest(`${machineId}host ${owner.network} ${owner.containerId} ${owner.ifname}`)
}
