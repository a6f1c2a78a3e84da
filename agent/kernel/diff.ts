import { handler } from '../../lib/state/kinds/index.ts'
import { type Link, link } from '../../lib/state/kinds/link.ts'
import { isSamePeer, looksOfPeer } from '../../lib/state/kinds/wgpeer.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { ListedResource } from './listing.ts'

/**
 * A resource as the kernel is known to have it, with its key. `odd` marks an object that cannot equal a wanted
 * resource. Its text is made on demand, because forty thousand texts take ten megabytes.
 */
export interface Entry {
  readonly resource: Resource
  readonly key: string
  readonly odd?: true
}
/** The known objects of one kind in the kernel, by key. */
export type KernelObjects = Map<string, Entry>
/** The changes that make one kind of kernel objects equal to the wanted list. */
export interface Difference {
  /** Wanted and missing. */
  readonly add: readonly Resource[]
  /** Wanted, but different in the kernel. */
  readonly change: readonly { readonly want: Resource; readonly have: Resource }[]
  /** In the kernel, but not wanted. */
  readonly drop: readonly Resource[]
}

/**
 * Compares by key and canonical text. When two wanted resources have one key, the first counts. The time is linear.
 * `settled` is a list that the kernel was made equal to and still is. The cost is much lower when it differs little
 * from `want`. Pure.
 */
export function diff(want: readonly Resource[], known: KernelObjects, settled?: readonly Resource[]): Difference {
  return (settled && nearly(want, known, settled)) ?? whole(want, known)
}

/** A resource with its key. */
export function face(resource: Resource): Entry {
  return { resource, key: handler(resource.kind).key(resource) }
}

/**
 * The text for comparison. For a link it holds the fields that link events tell, and for a WireGuard device or peer
 * what the kernel never changes by itself. For other kinds it is the line that makes the resource.
 */
export function resourceText(resource: Resource): string {
  if (resource.kind === 'link') {
    const { up, mtu, mac, ipip } = resource
    return `${up ? 'up' : 'down'} mtu ${mtu} ${mac ?? ipip?.local}`
  }
  if (resource.kind === 'wgdevice') return `${resource.port} ${resource.publicKey}`
  if (resource.kind === 'wgpeer') return looksOfPeer(resource)
  return handler(resource.kind).put(resource)[0]?.text ?? ''
}

/** The text of a known object. It is empty for an odd object. */
export function looks({ resource, odd }: Entry): string {
  return odd ? '' : resourceText(resource)
}

/** Indexes the found objects by key. */
export function knownOf(found: readonly ListedResource[]): KernelObjects {
  const known: KernelObjects = new Map()
  for (const { resource, odd } of found) {
    const entry = face(resource)
    const { key } = entry
    // Two lists may show the same object, or one slot may hold two different objects. Different objects in one slot
    // match no wanted resource.
    const same = known.get(key)
    known.set(key, odd || (same && looks(same) !== resourceText(resource)) ? { ...entry, odd: true } : entry)
  }
  return known
}

/** Whether a known object is not as wanted. An attribute that a wanted link leaves undefined may have any value. */
export function isOther(want: Resource, { resource: have, odd }: Entry): boolean {
  if (want.kind === 'link') return (link.change?.(want, have as Link) ?? []).length > 0
  if (want.kind === 'wgpeer' && have.kind === 'wgpeer') return !isSamePeer(want, have)
  return odd === true || (have !== want && resourceText(have) !== resourceText(want))
}

function whole(want: readonly Resource[], known: KernelObjects): Difference {
  const { add, change, seen } = compare(want, known)
  const drop: Resource[] = []
  // When all known objects are wanted, there is nothing to drop.
  if (known.size > seen.size - add.length)
    for (const [key, { resource }] of known) if (!seen.has(key)) drop.push(resource)
  return { add, change, drop }
}

type Compared = Omit<Difference, 'drop'> & { readonly seen: ReadonlySet<string> }

function compare(want: readonly Resource[], known: KernelObjects): Compared {
  const add: Resource[] = []
  const change: { want: Resource; have: Resource }[] = []
  const seen = new Set<string>()
  for (const one of want) {
    const { key } = face(one)
    if (seen.has(key)) continue
    seen.add(key)
    const have = known.get(key)
    if (!have) add.push(one)
    else if (isOther(one, have)) change.push({ want: one, have: have.resource })
  }
  return { add, change, seen }
}

// Compares only the part between the common beginning and the common end of both lists. A resource that left this part
// may stand elsewhere in `want`, so it is looked up in the whole list.
function nearly(want: readonly Resource[], known: KernelObjects, settled: readonly Resource[]): Difference | undefined {
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
