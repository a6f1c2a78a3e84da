import type { Attachment, InterfacePlugin, NetConf } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { LINK, partName, readPart } from '../journal/journal.ts'
import { log } from '../os/log.ts'
import type { Resource } from '../state/resource.ts'
import { hostVeth } from '../text/link-names.ts'
import type { Owner } from '../text/owner.ts'

/**
 * Whether another program than plumb made an attachment. plumb's veth pairs have plumb's name on the node's end.
 * plumb's devices have a part in the journal. A link that exists only in the pod never counts as foreign.
 */
export function isForeign<C extends NetConf>(plugin: InterfacePlugin<C>, at: Attachment, given: Result): boolean {
  if (plugin.movesDevice) return readPart(partName(LINK, at)) === undefined
  return !plugin.inPod && !hasOurs(at, given)
}

/** Whether a result names the node's end of a veth pair that plumb made. */
export function hasOurs(owner: Owner, { interfaces = [] }: Result): boolean {
  return interfaces.some(({ name, sandbox }) => !sandbox && name === hostVeth(owner))
}

/**
 * The resources that an attachment of a reference plugin has, too. Three things differ there, and are left out. They
 * are the settings of links, the check of senders (nft rules and not a locked port), and the name of the pair that
 * holds a VLAN's gateways. Pure.
 */
export function asTheirs(resources: readonly Resource[]): Resource[] {
  const ports = new Set(resources.flatMap((one) => (one.kind === 'link' && one.shared && one.peer ? [one.name] : [])))
  return resources.flatMap((one): Resource[] => {
    if (one.kind === 'sysctl' && !FORWARDING.test(one.name)) return []
    if (one.kind === 'fdb' || ('dev' in one && ports.has(one.dev))) return []
    if (one.kind !== 'link') return [one]
    if (ports.has(one.name)) return []
    const { locked: _, ...port } = one.port ?? {}
    return [one.port ? { ...one, port: port as typeof one.port } : one]
  })
}

const FORWARDING = /^ipv4\/ip_forward$|^ipv6\/conf\/all\/forwarding$/

/** Logs that CHECK of a plugin accepts the objects that another program made. */
export function logTheirs(type: string, { network, containerId, ifname }: Owner): void {
  log('plumb: what another program made for this attachment is there', {
    plugin: type,
    network,
    container: containerId,
    interface: ifname,
  })
}
