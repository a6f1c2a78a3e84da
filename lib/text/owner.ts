import { brief, type IfName, type NetworkName } from './values.ts'

/** The name of the record of what one plugin made for an attachment: `<type>:<attachment>` (lib/journal). */
export type PartName = `${string}:${string}`

/**
 * The alias (`ip link show`) that names the owner of a host link: `plumb/network/container/ifname`. The kernel accepts
 * up to 255 bytes.
 */
export function alias(owner: Owner): string {
  return `${aliasPrefix(owner.network)}${brief(owner.containerId)}/${owner.ifname}`
}

/** The alias of a bridge that plumb made. `plumb uninstall --purge` removes only bridges with this alias. */
export const BRIDGE_ALIAS = 'plumb-bridge'

/** The owner that the alias of a network's link names. The container id is in its brief form. */
export function ownerOf(text: string, network: NetworkName): Owner {
  const [containerId = '', ifname = ''] = text.slice(aliasPrefix(network).length).split('/')
  return { network, containerId, ifname: ifname as IfName }
}

/**
 * An attachment as a file name. The names of a network's attachments begin with the network's brief name and a colon.
 */
export function fileName({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}

/** The common prefix of the aliases of a network's links. */
export function aliasPrefix(network: NetworkName): string {
  return `plumb/${brief(network)}/`
}

/** The comment on an attachment's nft elements. It names their owner. */
export function commentOf({ network, containerId }: Owner): string {
  return `${brief(network).slice(0, 50)}/${brief(containerId).slice(0, 70)}`
}

/** The owner of host state: one attachment. Every name in the kernel and on disk derives from these values. */
export interface Owner {
  readonly network: NetworkName
  readonly containerId: string
  readonly ifname: IfName
}
