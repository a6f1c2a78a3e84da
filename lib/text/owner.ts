import { brief, type IfName, type NetworkName } from './values.ts'

/** What one plugin made for an attachment, by name: `<type>:<attachment>` (lib/journal). */
export type PartName = `${string}:${string}`

/** The alias (`ip link show`) that says whose a host link is: `plumb/network/container/ifname`; the kernel takes up to 255 bytes. */
export function alias(owner: Owner): string {
  return `${aliasPrefix(owner.network)}${brief(owner.containerId)}/${owner.ifname}`
}

/** The alias of a bridge that plumb made: `plumb uninstall --purge` removes it, and no other. */
export const BRIDGE_ALIAS = 'plumb-bridge'

/** Whose link of a network an alias names; the container id is in its brief form. */
export function ownerOf(text: string, network: NetworkName): Owner {
  const [containerId = '', ifname = ''] = text.slice(aliasPrefix(network).length).split('/')
  return { network, containerId, ifname: ifname as IfName }
}

/** An attachment as the name of a file; those of a network begin with the network's brief name and a colon. */
export function fileName({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}

/** What the aliases of all of a network's links begin with. */
export function aliasPrefix(network: NetworkName): string {
  return `plumb/${brief(network)}/`
}

/** The comment of an attachment's nft elements: whose they are. */
export function commentOf({ network, containerId }: Owner): string {
  return `${brief(network).slice(0, 50)}/${brief(containerId).slice(0, 70)}`
}

/** Who host state belongs to; every name in the kernel and on disk derives from it. */
export interface Owner {
  readonly network: NetworkName
  readonly containerId: string
  readonly ifname: IfName
}
