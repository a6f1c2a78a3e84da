import { handler } from './kinds/index.ts'
import { netnsState } from './netns.ts'
import type { Attachment, Run } from './plugin.ts'
import { readRecord, record, recordPath, recordsOf, unrecord } from './records.ts'
import type { Link, Owner, Resource } from './state.ts'
import type { NetworkName } from './values.ts'

// Beside the folders of chained plugins' records, under a name that no plugin has.
const TYPE = 'links'

/** Notes what an attachment is about to have in its pod, and in which: DEL and GC then find it without the namespace being named. */
export function place(at: Attachment, own: readonly Resource[]): void {
  record([{ path: recordPath(TYPE, at), own }], at)
}

/** Whether a record is one of those. */
export function isPlace(path: string): boolean {
  return path.split('/').at(-2) === TYPE
}

/** What an attachment was noted to have in a pod whose namespace still lives; undefined when nothing was. */
export function placed(owner: Owner): readonly Resource[] | undefined {
  return readRecord(recordPath(TYPE, owner))?.own.filter(lives)
}

/** Forgets it, once it is gone. */
export async function unplace(owner: Owner): Promise<void> {
  await unrecord(recordPath(TYPE, owner), async () => {})
}

/** Whose links are noted for a network, but for these owners'. */
export function placedBeside(network: NetworkName, owners: readonly Owner[]): Owner[] {
  return recordsOf(TYPE, network, owners).flatMap((path) => readRecord(path)?.owner ?? [])
}

/** Those that are there and the attachment's own: in a pod a name is anybody's, so what has it must have the alias, too. Each once. */
export function ownIn(own: readonly Resource[], run: Run): Resource[] {
  const each = [...new Map(own.map((one) => [handler(one.kind).key(one), one])).values()]
  return each.filter((one) => one.kind !== 'link' || one.ns === 'host' || isOwn(one, run))
}

function isOwn({ name, ns, alias }: Link, run: Run): boolean {
  if (!run.seen) return true
  const seen = run.seen(name, ns)
  return seen !== undefined && (alias === undefined || seen.alias === alias)
}

// A namespace that is gone took its links with it. Its path may lead to another by now: there no link has the alias.
function lives(one: Resource): boolean {
  return one.ns === 'host' || ['pod', 'own'].includes(netnsState(one.ns))
}
