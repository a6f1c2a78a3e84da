import type { Attachment, InterfacePlugin, NetConf } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { LINK, partName, readPart } from '../journal/journal.ts'
import { log } from '../os/log.ts'
import type { Resource } from '../state/resource.ts'
import { hostVeth } from '../text/link-names.ts'
import type { Owner } from '../text/owner.ts'

/** Whether another program than plumb made an attachment: of a pair the node's end has plumb's name, of a device there is an entry. A link that stands in the pod alone is judged alike, whoever made it. */
export function isForeign<C extends NetConf>(plugin: InterfacePlugin<C>, at: Attachment, given: Result): boolean {
  if (plugin.lends) return readPart(partName(LINK, at)) === undefined
  return !plugin.inPod && !hasOurs(at, given)
}

/** Whether a result names the node's end of plumb's own pair. */
export function hasOurs(owner: Owner, { interfaces = [] }: Result): boolean {
  return interfaces.some(({ name, sandbox }) => !sandbox && name === hostVeth(owner))
}

/** What of a wiring an attachment of a reference plugin has, too. Its links have other settings, its senders are compared by nft, and the pair that holds a VLAN's gateways has another name. Pure. */
export function asTheirs(resources: readonly Resource[]): Resource[] {
  const ports = new Set(resources.flatMap((one) => (one.kind === 'link' && one.shared && one.peer ? [one.name] : [])))
  return resources.flatMap((one): Resource[] => {
    if ((one.kind === 'sysctl' && !FORWARDING.test(one.name)) || one.kind === 'fdb' || ('dev' in one && ports.has(one.dev))) return []
    if (one.kind !== 'link') return [one]
    if (ports.has(one.name)) return []
    const { locked: _, ...port } = one.port ?? {}
    return [one.port ? { ...one, port: port as typeof one.port } : one]
  })
}

const FORWARDING = /^ipv4\/ip_forward$|^ipv6\/conf\/all\/forwarding$/

/** Says that CHECK of a plugin accepts what another program made. */
export function logTheirs(type: string, { network, containerId, ifname }: Owner): void {
  log('plumb: what another program made for this attachment is there', { plugin: type, network, container: containerId, interface: ifname })
}
