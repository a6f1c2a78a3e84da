import { ahead, apply } from '../apply.ts'
import { holds, lapsed } from '../claimed.ts'
import { isClaim } from '../kinds/claim.ts'
import { log } from '../log.ts'
import type { Run } from '../plugin.ts'
import { readRecord, unrecord } from '../records.ts'
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
    const own = note ? following(reachable(note, run, isFailed), holds) : []
    found = [path, ...(await dropNoted(others, run, isFailed, [...held, ...own]))]
  })
  return wasThere ? found : dropNoted(others, run, isFailed, held)
}

async function removed(held: readonly Resource[], run: Run): Promise<void> {
  for (const plan of removing(held, () => true)) {
    const { links, rest } = apart(plan)
    // For links and for elements the kernel waits a while: for both at once.
    ahead(links, run)
    const failures: unknown[] = []
    for (const part of [rest, links]) {
      // A tool that fails must not keep another from its work.
      try {
        const { already } = await apply(part, run)
        for (const one of already) if (one.kind === 'setting') log(`plumb: Cannot put ${title(one)} back to what it was`)
      } catch (cause) {
        failures.push(cause)
      }
    }
    if (failures.length > 0) throw failures[0]
  }
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

/** Of what was noted, what is the attachment's, each once. What follows a claim belongs to it: where that is another's, refused, or not made yet when the call was killed, the rest is none of ours. Two ports may lead to one place. Pure. */
export function following(own: readonly Resource[], stands: (claim: Claim) => boolean): Resource[] {
  let mine = true
  const held = own.filter((one) => {
    if (isClaim(one)) mine = stands(one)
    return mine
  })
  return [...new Map(held.map((one) => [JSON.stringify(one), one])).values()]
}
