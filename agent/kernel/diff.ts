import { handler } from '../../lib/state/kinds/index.ts'
import { type Link, link } from '../../lib/state/kinds/link.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { Found } from './listing.ts'

/** A resource as the kernel is known to have it, and what makes it this one; `odd` when it is like none that is wanted. What it looks like is made when it is asked for: forty thousand texts are ten megabytes. */
export interface Entry {
  readonly resource: Resource
  readonly key: string
  readonly odd?: true
}
/** What stands in the kernel of one kind, by key. */
export type Known = Map<string, Entry>
/** What makes one kind of the kernel's objects what it should be. */
export interface Difference {
  /** Not there. */
  readonly add: readonly Resource[]
  /** There, and otherwise. */
  readonly change: readonly { readonly want: Resource; readonly have: Resource }[]
  /** There, and not wanted. */
  readonly drop: readonly Resource[]
}

/** Compares by key and canonical text; of two that have one key the first counts. Linear, and much less when `settled`, a list that the kernel was made to agree with and still does, differs little from what is wanted. Pure. */
export function diff(want: readonly Resource[], known: Known, settled?: readonly Resource[]): Difference {
  return (settled && nearly(want, known, settled)) ?? whole(want, known)
}

/** A resource and what makes it this one. */
export function face(resource: Resource): Entry {
  return { resource, key: handler(resource.kind).key(resource) }
}

/** What a resource looks like: the line that would make it, of a link what its events tell. */
export function textOf(resource: Resource): string {
  if (resource.kind === 'link') return `${resource.up ? 'up' : 'down'} mtu ${resource.mtu} ${resource.mac}`
  return handler(resource.kind).put(resource)[0]?.text ?? ''
}

/** What the kernel is known to have looks like, empty when it is like none that is wanted. */
export function looks({ resource, odd }: Entry): string {
  return odd ? '' : textOf(resource)
}

/** What was found, by key. */
export function knownOf(found: readonly Found[]): Known {
  const known: Known = new Map()
  for (const { resource, odd } of found) {
    const entry = face(resource)
    const { key } = entry
    // Twice the same thing in two lists, or one slot with two entries: neither is as wanted then, unless they are one.
    const same = known.get(key)
    known.set(key, odd || (same && looks(same) !== textOf(resource)) ? { ...entry, odd: true } : entry)
  }
  return known
}

// What of a link is not wanted one way or the other may be as it is.
function isOther(want: Link, have: Link): boolean {
  return (link.change?.(want, have) ?? []).length > 0
}

function whole(want: readonly Resource[], known: Known): Difference {
  const { add, change, seen } = compare(want, known)
  const drop: Resource[] = []
  // When as many are known as were found, none is too many.
  if (known.size > seen.size - add.length) for (const [key, { resource }] of known) if (!seen.has(key)) drop.push(resource)
  return { add, change, drop }
}

function compare(want: readonly Resource[], known: Known): Omit<Difference, 'drop'> & { readonly seen: ReadonlySet<string> } {
  const add: Resource[] = []
  const change: { want: Resource; have: Resource }[] = []
  const seen = new Set<string>()
  for (const one of want) {
    const { key } = face(one)
    if (seen.has(key)) continue
    seen.add(key)
    const have = known.get(key)
    if (!have) add.push(one)
    else if (one.kind === 'link' ? isOther(one, have.resource as Link) : have.odd || (have.resource !== one && textOf(have.resource) !== textOf(one))) change.push({ want: one, have: have.resource })
  }
  return { add, change, seen }
}

// Only what stands between the part that both lists begin with and the part that both end with is looked at. Whether what left that middle is wanted elsewhere is asked of the whole list.
function nearly(want: readonly Resource[], known: Known, settled: readonly Resource[]): Difference | undefined {
  const most = Math.min(want.length, settled.length)
  let [start, end] = [0, 0]
  while (start < most && want[start] === settled[start]) start++
  while (end < most - start && want[want.length - 1 - end] === settled[settled.length - 1 - end]) end++
  const middle = want.slice(start, want.length - end)
  const gone = settled.slice(start, settled.length - end)
  const { add, change } = compare(middle, known)
  if (change.length > 0 || gone.length > 1000) return undefined
  const left = new Map(gone.map((one) => [face(one).key, one]))
  if (left.size > 0) for (const one of want) left.delete(face(one).key)
  return { add, change, drop: [...left.values()] }
}
