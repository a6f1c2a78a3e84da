import { digest } from './digest.ts'
import type { Owner } from './owner.ts'
import { type IfName, localMac, type Mac } from './values.ts'

/**
 * The name of the host end of an attachment's veth pair. It follows from the owner alone, so DEL finds the link without
 * other data. No other attachment has this name.
 */
export function hostVeth(owner: Owner): IfName {
  return `veth${hostDigest(owner).slice(0, 11)}` as IfName
}

/**
 * The MAC of the host end. All MACs in this file contain the machine's id, because two nodes in one layer 2 may use the
 * same container id.
 */
export function hostMac(owner: Owner, { machineId }: Machine): Mac {
  return localMac(hostDigest(owner, machineId).slice(11))
}

/**
 * The name of the bridge port of a veth pair whose other end is `name`. That end holds a bridge's gateway addresses in
 * a VLAN. All networks use the same name.
 */
export function gatewayPort(name: IfName): IfName {
  return `veth${digest(`gateway ${name}`).slice(0, 11)}` as IfName
}

/** The MACs of the port of `gatewayPort` and of the link that holds the gateway addresses. */
export function gatewayMacs(name: IfName, { machineId = '' }: Machine): { port: Mac; holder: Mac } {
  return {
    port: localMac(digest(`${machineId}gateway ${name}`).slice(11)),
    holder: localMac(digest(`${machineId}gateway's ${name}`)),
  }
}

/** The default MAC of a pod's link. It is always the same for the same attachment, and locally administered. */
export function podMac(owner: Owner, { machineId = '' }: Machine): Mac {
  return localMac(digest(`${machineId}pod ${owner.network} ${owner.containerId} ${owner.ifname}`))
}

/**
 * The temporary name of a link that exists only in the pod. Later the link gets its final name together with its alias.
 */
export function birthName(owner: Owner): IfName {
  return `plumb${digest(`birth ${owner.network} ${owner.containerId} ${owner.ifname}`).slice(0, 10)}` as IfName
}

/**
 * The MAC of a bridge that its first attachment makes. It is set from the start. Otherwise the bridge takes the lowest
 * MAC of its ports, which changes as pods come and go.
 */
export function bridgeMac(name: IfName, first: Owner, { machineId = '' }: Machine): Mac {
  return localMac(digest(`${machineId}bridge ${name} ${first.containerId}`))
}

/** The data that distinguishes this machine from all others. */
interface Machine {
  readonly machineId?: string
}

function hostDigest(owner: Owner, machineId = ''): string {
  return digest(`${machineId}host ${owner.network} ${owner.containerId} ${owner.ifname}`)
}
