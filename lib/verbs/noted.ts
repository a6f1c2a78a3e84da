import { apply } from '../apply.ts'
import { holds, lapsed } from '../claimed.ts'
import { log } from '../log.ts'
import type { Run } from '../plugin.ts'
import { readRecord, unrecord } from '../records.ts'
import type { Claim, Plan, Resource } from '../state.ts'

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

/** Removes what records tell of, all at once, and the records. Which of them there were. */
export async function dropNoted([path, ...others]: readonly string[], run: Run, held: readonly Resource[] = []): Promise<string[]> {
  if (path === undefined) {
    for (const plan of removing(held, () => true)) await apply(plan, run)
    return []
  }
  let found: string[] = []
  const isThere = await unrecord(path, async (own) => {
    found = [path, ...(await dropNoted(others, run, [...held, ...following(own, holds)]))]
  })
  return isThere ? found : dropNoted(others, run, held)
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

/** Whether a resource is a host port reserved as a file. */
export function isClaim(one: Resource): one is Claim {
  return one.kind === 'claim'
}
