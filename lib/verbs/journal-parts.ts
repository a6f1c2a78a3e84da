import { forget, isThere, readPart, siblings } from '../journal/journal.ts'
import { following, holds, lapsed } from '../journal/ports.ts'
import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import { occupy } from '../os/turns.ts'
import { apply, gradually } from '../state/apply.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { handler } from '../state/kinds/index.ts'
import { type Plan, type Resource, title } from '../state/resource.ts'
import type { PartName } from '../text/owner.ts'
import { reachable } from './reachable.ts'

/** Reserves the claims among these. Whoever is in the way of one and whose pod is gone has waited for a DEL in vain: it gets it now. Throws CniError 7 when another has one. */
export async function reserve(own: readonly Resource[], run: Run): Promise<void> {
  const claims = own.filter(isClaim)
  if (claims.length === 0) return
  try {
    await apply({ put: claims, drop: [] }, run)
  } catch (cause) {
    const gone = lapsed(claims)
    if (gone.length === 0) throw cause
    for (const part of gone) {
      log('plumb: a host port was still held for a container whose namespace is gone: it is taken from it', { container: readPart(part)?.owner.containerId ?? '' })
      await dropNoted([part], run)
    }
    await apply({ put: claims, drop: [] }, run)
  }
}

/** Removes what parts of the journal tell of, all at once, and forgets them; which of them there were. `isFailed`: the ADD that made it fails, so that nobody relies on any of it yet. */
export async function dropNoted([part, ...others]: readonly PartName[], run: Run, isFailed = false, held: readonly Resource[] = []): Promise<PartName[]> {
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
    // For links and for elements the kernel waits a while: for both at once.
    const onLinks = gradually(links, run)
    onLinks.ahead()
    const failures: unknown[] = []
    for (const part of [() => apply(rest, run), onLinks.finish]) {
      // A tool that fails must not keep another from its work.
      try {
        const { already } = await part()
        for (const one of already) if (one.kind === 'setting') log(`plumb: Cannot put ${title(one)} back to what it was`)
      } catch (cause) {
        failures.push(cause)
      }
    }
    if (failures.length > 0) throw failures[0]
  }
  await handOver(held.filter(isClaim), run)
}

// Another attachment of the same container may have asked for the same ports, and they lead there now (podman sends them for each of its networks).
// Where that fails the removal has not.
async function handOver(released: readonly Claim[], run: Run): Promise<void> {
  const isReleased = ({ protocol, port }: Claim) => released.some((one) => one.protocol === protocol && one.port === port)
  for (const part of others(released)) {
    // One that another call is at work on is going, or sees for itself what is free.
    const note = occupy(part, 0) ? readPart(part) : undefined
    const claims = note && isThere(note) ? note.own.filter(isClaim).filter((claim) => isReleased(claim) && !holds(claim)) : []
    if (!note || claims.length === 0) continue
    try {
      await apply({ put: claims, drop: [] }, run)
      const put = following(note.own, (claim) => claims.includes(claim) && holds(claim)).filter((one) => !isClaim(one))
      await apply({ put, drop: [] }, run)
    } catch (cause) {
      log(`plumb: Cannot lead host ports on to ${note.owner.ifname} of the container: ${(cause as Error).message}`, { container: note.owner.containerId })
    }
  }
}

// The parts of the container's other attachments.
function others(claims: readonly Claim[]): PartName[] {
  const own = [...new Set(claims.map(({ part }) => part))]
  return own.flatMap(siblings).filter((part) => !own.includes(part))
}

/** A plan of removals as two that go on beside each other: the node's links, and the rest. Pure. */
export function apart({ drop }: Plan): { readonly links: Plan; readonly rest: Plan } {
  const links = drop.filter(({ kind, ns }) => kind === 'link' && ns === 'host')
  return { links: { put: [], drop: links }, rest: { put: [], drop: drop.filter((one) => !links.includes(one)) } }
}

/** What removes what was noted, in order, given which claims stand. Claims last: another may have the port only when nothing that it adds can meet what is removed here. Pure. */
export function removing(own: readonly Resource[], stands: (claim: Claim) => boolean): Plan[] {
  const held = following(own, stands)
  return [held.filter((one) => !isClaim(one)), held.filter(isClaim)].map((drop) => ({ put: [], drop }))
}

/** What of an earlier ADD is in the way of a later one, or no longer wanted; the rest is changed in place. Pure. */
export function outdated(before: readonly Resource[], own: readonly Resource[]): Resource[] {
  const key = (one: Resource) => handler(one.kind).key(one)
  const kept = new Set(own.map(key))
  // A filter that is added again stands there twice.
  return before.flatMap((one) => (one.kind !== 'redirect' && kept.has(key(one)) ? [] : one.kind === 'redirect' || one.kind === 'qdisc' ? { ...one, replaced: true as const } : one))
}
