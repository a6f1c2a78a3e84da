import type { Attachment, InterfacePlugin, NetConf, Wiring } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { following, holds } from '../journal/ports.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { handler } from '../state/kinds/index.ts'
import type { Plan, Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { nodeFacts } from '../wiring/node-facts.ts'

/**
 * The links that ADD makes before the pool has answered. With `byLink` the pool asks through the container's link. Then
 * all links are made first, except shared links and the peer of a veth pair. The daemon switches on the links in the
 * pod after their settings are made.
 */
export function firstLinks<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  conf: C,
  at: Attachment,
  byLink: boolean,
): readonly Resource[] {
  const early = plugin.links?.(conf, at, nodeFacts) ?? []
  // `moveDevice` (add.ts) moves a lent device into the pod before the pool is asked.
  if (!byLink || plugin.movesDevice) return early
  const { put } = remaining(early, plugin.wire(conf, at, {}, nodeFacts))
  const rest = put.filter((one) => one.kind === 'link').filter(({ type, shared }) => type !== 'peer' && !shared)
  return [...early, ...rest.map((one) => (one.ns === 'host' ? one : { ...one, up: false }))]
}

/**
 * The resources of a wiring that are still to be made. Left out are `links`, because they are made while the pool
 * works, and the claims, because they are reserved earlier. `stands` tells whether the attachment has a claim. Pure,
 * except for `stands`.
 */
export function remaining(
  links: readonly Resource[],
  { shared, own, noted = [] }: Wiring,
  stands: (claim: Claim) => boolean = holds,
): Plan {
  const made = new Set(links.map((one) => handler(one.kind).key(one)))
  const parts = noted.flatMap((one) => following(one.own, stands)).filter((one) => !isClaim(one))
  return { put: [...shared, ...own, ...parts].filter((one) => !made.has(handler(one.kind).key(one))), drop: [] }
}

/** Throws CniError 7 when the pool's answer has no address. The reference plugins do the same. */
export function requireAddress({ ips = [] }: Result, type: string): void {
  if (ips.length === 0)
    throw new CniError(
      CODE.config,
      'IPAM plugin returned missing IP config',
      `${type} gave no address; leave "ipam" out for a link without addresses`,
    )
}
