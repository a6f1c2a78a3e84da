import { apply, gradually } from '../apply.ts'
import { occupy } from '../busy.ts'
import { following, holds, lapsed } from '../claimed.ts'
import { fs } from '../fs.ts'
import { isClaim } from '../kinds/claim.ts'
import { handler } from '../kinds/index.ts'
import { log } from '../log.ts'
import type { Run } from '../plugin.ts'
import { listFiles } from '../reading.ts'
import { isThere, readRecord, unrecord } from '../records.ts'
import type { Claim, Plan, Resource } from '../state.ts'
import { title } from '../title.ts'
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
    for (const path of gone) {
      log('plumb: a host port was still held for a container whose namespace is gone: it is taken from it', { container: readRecord(path)?.owner.containerId ?? '' })
      await dropNoted([path], run)
    }
    await apply({ put: claims, drop: [] }, run)
  }
}

/** Removes what records tell of, all at once, and the records; which of them there were. `isFailed`: the ADD that made it fails, so that nobody relies on any of it yet. */
export async function dropNoted([path, ...others]: readonly string[], run: Run, isFailed = false, held: readonly Resource[] = []): Promise<string[]> {
  if (path === undefined) {
    await removed(held, run)
    return []
  }
  let found: string[] = []
  const wasThere = await unrecord(path, async (note) => {
    const there = note ? reachable(note, run, isFailed) : []
    const lost = there.filter((one) => isClaim(one) && !holds(one))
    found = [path, ...(await dropNoted(others, run, isFailed, [...held, ...following(there, holds), ...lost]))]
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
  for (const path of siblings(released)) {
    // One that another call is at work on is going, or sees for itself what is free.
    const note = occupy(path, 0) ? readRecord(path) : undefined
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

// The records of the container's other attachments. A record's name is network, container and interface; none of them holds a colon.
function siblings(claims: readonly Claim[]): string[] {
  const own = [...new Set(claims.map(({ record }) => record))]
  const beside = (record: string) => {
    const [folder, container] = [fs.dirname(record), `:${record.split(':')[1]}:`]
    return listFiles(folder).flatMap((name) => (name.includes(container) ? [`${folder}/${name}`] : []))
  }
  return own.flatMap(beside).filter((path) => !own.includes(path))
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
