import type { Attachment, InterfacePlugin, NetConf, Wiring } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { following, holds } from '../journal/ports.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { handler } from '../state/kinds/index.ts'
import type { Plan, Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { nodeFacts } from '../wiring/node-facts.ts'

/** The links that are made before the pool has answered. A pool that asks through the container's link needs all of them but a pair's other end; what is in the pod the daemon switches on, when its settings are made. */
export function firstLinks<C extends NetConf>(plugin: InterfacePlugin<C>, conf: C, at: Attachment, byLink: boolean): readonly Resource[] {
  const early = plugin.links?.(conf, at, nodeFacts) ?? []
  // A lent device has been moved there when the pool is asked.
  if (!byLink || plugin.lends) return early
  const { put } = beside(early, plugin.wire(conf, at, {}, nodeFacts))
  const rest = put.filter((one) => one.kind === 'link').filter(({ type, shared }) => type !== 'peer' && !shared)
  return [...early, ...rest.map((one) => (one.ns === 'host' ? one : { ...one, up: false }))]
}

/** What of a wiring is left to make beside the links that are made while the pool works, and the claims that are made before; `stands` says of those which are the attachment's. Pure but for that. */
export function beside(links: readonly Resource[], { shared, own, noted = [] }: Wiring, stands: (claim: Claim) => boolean = holds): Plan {
  const made = new Set(links.map((one) => handler(one.kind).key(one)))
  const parts = noted.flatMap((one) => following(one.own, stands)).filter((one) => !isClaim(one))
  return { put: [...shared, ...own, ...parts].filter((one) => !made.has(handler(one.kind).key(one))), drop: [] }
}

/** Throws CniError 7 for a pool's answer without an address, as the reference plugins do. */
export function requireAddress({ ips = [] }: Result, type: string): void {
  if (ips.length === 0) throw new CniError(CODE.config, 'IPAM plugin returned missing IP config', `${type} gave no address; leave "ipam" out for a link without addresses`)
}
