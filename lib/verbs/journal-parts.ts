import { forget, isThere, type Note, readPart, siblings } from '../journal/journal.ts'
import { following, holds, lapsed } from '../journal/ports.ts'
import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import { occupy } from '../os/turns.ts'
import { apply, gradually } from '../state/apply.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { handler } from '../state/kinds/index.ts'
import type { Setting } from '../state/kinds/setting.ts'
import { type Plan, type Resource, title } from '../state/resource.ts'
import type { PartName } from '../text/owner.ts'
import { isLastOf } from '../wiring/vrfs.ts'

/**
 * Reserves the host ports of the claims in `own`. A blocking attachment whose namespace is gone never got its DEL, so
 * its part is removed here. Throws CniError 7 when another container has a port.
 */
export async function reserve(own: readonly Resource[], run: Run): Promise<void> {
  const claims = own.filter(isClaim)
  if (claims.length === 0) return
  try {
    await apply({ put: claims, drop: [] }, run)
  } catch (cause) {
    const gone = lapsed(claims)
    if (gone.length === 0) throw cause
    for (const part of gone) {
      log('plumb: took over a host port of a container whose namespace is gone', {
        container: readPart(part)?.owner.containerId ?? '',
      })
      await dropNoted([part], run)
    }
    await apply({ put: claims, drop: [] }, run)
  }
}

/**
 * Removes the noted resources of parts, together with the resources `held`, all in one go. Then removes the parts from
 * the journal. Returns the names of the parts that existed. `isFailed` says that the ADD which made the resources
 * fails, so nobody relies on them yet.
 */
export async function dropNoted(
  [part, ...others]: readonly PartName[],
  run: Run,
  isFailed = false,
  held: readonly Resource[] = [],
): Promise<PartName[]> {
  if (part === undefined) {
    await removed(held, run)
    return []
  }
  let found: PartName[] = []
  const wasThere = await forget(part, async (note) => {
    const there = reachable(note, run, isFailed)
    const lost = there.filter((one) => isClaim(one) && !holds(one))
    found = [part, ...(await dropNoted(others, run, isFailed, [...held, ...following(there, holds), ...lost]))]
  })
  return wasThere ? found : dropNoted(others, run, isFailed, held)
}

async function removed(held: readonly Resource[], run: Run): Promise<void> {
  for (const plan of removing(held, () => true)) {
    const { links, rest } = apart(plan)
    // The kernel takes a while to remove links, and also to remove nft elements. Both removals run at the same time.
    const onLinks = gradually(links, run)
    onLinks.ahead()
    const failures: unknown[] = []
    for (const part of [() => apply(rest, run), onLinks.finish]) {
      // The second removal runs also when the first fails.
      try {
        const { already } = await part()
        for (const one of already)
          if (one.kind === 'setting') log(`plumb: Cannot put ${title(one)} back to what it was`)
      } catch (cause) {
        failures.push(cause)
      }
    }
    if (failures.length > 0) throw failures[0]
  }
  await handOver(held.filter(isClaim), run)
}

// Another attachment of the same container may have asked for the same ports, because podman sends the ports for each
// network. The released ports then lead to that attachment. A failure is only logged: the removal has succeeded.
async function handOver(released: readonly Claim[], run: Run): Promise<void> {
  const isReleased = ({ protocol, port }: Claim) =>
    released.some((one) => one.protocol === protocol && one.port === port)
  for (const part of others(released)) {
    // Skips a part that another call works on. That call removes the attachment, or finds the free ports itself.
    const note = occupy(part, 0) ? readPart(part) : undefined
    const claims =
      note && isThere(note) ? note.own.filter(isClaim).filter((claim) => isReleased(claim) && !holds(claim)) : []
    if (!note || claims.length === 0) continue
    try {
      await apply({ put: claims, drop: [] }, run)
      const put = following(note.own, (claim) => claims.includes(claim) && holds(claim)).filter((one) => !isClaim(one))
      await apply({ put, drop: [] }, run)
    } catch (cause) {
      log(`plumb: Cannot lead host ports on to ${note.owner.ifname} of the container: ${(cause as Error).message}`, {
        container: note.owner.containerId,
      })
    }
  }
}

// The parts of the same container's other attachments.
function others(claims: readonly Claim[]): PartName[] {
  const own = [...new Set(claims.map(({ part }) => part))]
  return own.flatMap(siblings).filter((part) => !own.includes(part))
}

/** Splits a plan of removals in two that can run at the same time: the node's links, and the rest. Pure. */
export function apart({ drop }: Plan): { readonly links: Plan; readonly rest: Plan } {
  const links = drop.filter(({ kind, ns }) => kind === 'link' && ns === 'host')
  return { links: { put: [], drop: links }, rest: { put: [], drop: drop.filter((one) => !links.includes(one)) } }
}

/**
 * The plans that remove noted resources, in their order. `stands` tells whether the attachment has a claim. Claims go
 * last: another attachment may get the port only when the old resources for the port are gone. Pure.
 */
export function removing(own: readonly Resource[], stands: (claim: Claim) => boolean): Plan[] {
  const held = following(own, stands)
  return [held.filter((one) => !isClaim(one)), held.filter(isClaim)].map((drop) => ({ put: [], drop }))
}

/**
 * The resources of an earlier ADD (`before`) to remove before a later ADD makes `own`. They block the new resources, or
 * are no longer wanted. The other resources are changed in place. Pure.
 */
export function outdated(before: readonly Resource[], own: readonly Resource[]): Resource[] {
  const key = (one: Resource) => handler(one.kind).key(one)
  const kept = new Set(own.map(key))
  return before.flatMap((one): Resource[] => {
    // A tc filter (`redirect`) that is added again would exist twice, so it is always removed.
    if (one.kind === 'redirect') return [{ ...one, replaced: true }]
    if (kept.has(key(one))) return []
    return [one.kind === 'qdisc' ? { ...one, replaced: true } : one]
  })
}

/**
 * The noted resources that may still exist. Resources in a pod go with the pod. Routes and settings go with their link.
 * No process has to remove them. `isFailed` says that the ADD which made the resources fails. Then sysctls that
 * normally stay are restored, too.
 */
export function reachable(note: Note, run: Run, isFailed = false): Resource[] {
  const inPod = isThere(note)
  const mayExist = (one: Resource) => {
    if (one.ns !== 'host' && !inPod) return false
    return !handler(one.kind).goesWithLink || run.link?.((one as Setting).dev, one.ns) !== false
  }
  return note.own
    .filter((one) => one.kind !== 'vrf' || (inPod && occupy(podOf(note.inode)) && isLastOf(one, note.owner.ifname)))
    .filter(mayExist)
    .map((one) => {
      if (one.kind !== 'sysctl' || !isFailed) return one
      const { stays: _, ...rest } = one
      return rest
    })
}

/**
 * The name of a pod's lock (lib/os/turns.ts), from the inode of the pod's namespace. With the lock, one call at a time
 * looks at the pod and changes it.
 */
export function podOf(inode: number | undefined): string {
  return `pod ${inode}`
}
