import type { Attachment } from '../cni/plugin.ts'
import { isAnothers } from '../journal/journal.ts'
import { type LinkFacts, linkFacts, linksNow } from '../os/links.ts'
import { inside } from '../os/netns.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import type { Vrf } from '../state/kinds/vrf.ts'
import type { Resource } from '../state/resource.ts'
import type { IfName, Netns } from '../text/values.ts'

/** Whether a VRF has no port except this one. This port may already be gone. Such a VRF is removed with the port. */
export function isLastOf({ ns, name }: Pick<Vrf, 'ns' | 'name'>, dev: IfName): boolean {
  return inside(ns, () => {
    const vrf = linkFacts(name)
    return vrf?.kind === 'vrf' && portsOf(vrf).every((port) => port.name === dev)
  })
}

/**
 * Takes a link out of the VRF that another plugin put it into. Removes the VRF with its last port. Does nothing for a
 * link without a VRF.
 */
export async function leaveForeign(name: IfName, at: Attachment, run: Run): Promise<void> {
  const { netns: ns, ifname: dev } = at
  if (ns === undefined) return
  const drop = inside(ns, (): Resource[] => {
    const vrf = linkFacts(name)
    if (vrf?.kind !== 'vrf') return []
    const ports = portsOf(vrf)
    const gone: Vrf[] = ports.every((port) => port.name === dev)
      ? [{ kind: 'vrf', ns, name, table: vrf.table ?? 0 }]
      : []
    return [...(ports.some((port) => port.name === dev) ? [leaving(ns, dev, name)] : []), ...gone]
  })
  if (drop.length > 0 && !isAnothers(at)) await apply({ put: [], drop }, run)
}

function leaving(ns: Netns, dev: IfName, master: IfName): Resource {
  return { kind: 'setting', ns, dev, master, before: { master: '' } }
}

function portsOf({ index }: LinkFacts): LinkFacts[] {
  return linksNow().filter(({ master }) => master === index)
}
