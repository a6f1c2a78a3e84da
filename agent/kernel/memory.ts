import type { Run } from '../../lib/os/run.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import type { Kind, Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { isRunning } from '../node/instance-lock.ts'
import { face, type Known, knownOf, looks } from './diff.ts'
import type { Event } from './events.ts'
import { type Found, list } from './listing.ts'
import { markOf, PROTO } from './marks.ts'
import { ownership, type Scope } from './ownership.ts'

/** The kinds that are converged, in the order in which they are made. */
export const KINDS = ['link', 'sysctl', 'addr', 'nexthop', 'neigh', 'tunnel', 'route'] as const satisfies readonly Kind[]
const MAKING_MS = 2000
/** What was wanted and could not be had: on which device, and what the tool said. */
export interface Waiting {
  readonly dev: string | undefined
  readonly said: string
}

/** What the kernel has of the agent's, as far as is known: what was listed once, what was done since, and what the monitors told. */
export class KernelState {
  /** Keys of what is otherwise than the agent left it: somebody else did that. */
  drifted = new Set<string>()
  /** What the last step could not make, by key. */
  waiting: ReadonlyMap<string, Waiting> = new Map()
  /** Links of our names that are not ours to touch, and why. */
  readonly blocked = new Map<string, string>()
  /** Ids of nexthops that are somebody else's. */
  readonly others = new Set<number>()
  /** Keys of what is left as it is for now, because another program changes it again and again; and which of them it has changed since. */
  held: ReadonlySet<string> = new Set()
  readonly pending = new Set<string>()
  /** Devices that something of ours stands on. */
  readonly devices = new Set<string>()
  readonly #scope: Scope
  readonly #owns: (found: Resource) => boolean
  readonly #known = new Map<Kind, Known>(KINDS.map((kind) => [kind, new Map()]))
  readonly #doubted = new Set<Kind>(KINDS)
  readonly #listed = new Set<Kind>()
  readonly #settled = new Map<Kind, readonly Resource[]>()
  readonly #making = new Map<string, number>()
  #looking: ReadonlySet<Kind> = new Set()

  constructor(scope: Scope) {
    this.#scope = scope
    this.#owns = ownership(scope)
  }

  of(kind: Kind): Known {
    return this.#known.get(kind) as Known
  }

  /** The next look lists these kinds anew; all when none is named. */
  doubt(...kinds: readonly Kind[]): void {
    if (kinds.length === 0) this.#making.clear()
    for (const kind of kinds.length > 0 ? kinds : KINDS) this.#doubted.add(kind)
  }

  /** Leaves what has these keys as it is; what is held no longer is looked at. */
  hold(keys: ReadonlySet<string>): void {
    for (const key of this.held) {
      if (keys.has(key)) continue
      const kind = key.slice(0, key.indexOf(' ')) as Kind
      // Its routes went with a nexthop.
      this.doubt(kind, ...(kind === 'nexthop' ? (['route'] as const) : []))
      this.pending.delete(key)
    }
    this.held = keys
  }

  /** Doubts everything, its own doings first: what is then found is no sign of anybody else's. */
  distrust(): void {
    this.doubt()
    this.#listed.clear()
    this.#settled.clear()
  }

  /** What was otherwise than it was left, for a step to put right. */
  takeDrift(): Set<string> {
    const taken = this.drifted
    this.drifted = new Set()
    return taken
  }

  /** What was wanted of a kind when the kernel was last made to agree, as long as nothing else is known to have happened. */
  settled(kind: Kind): readonly Resource[] | undefined {
    return this.#settled.get(kind)
  }

  /** The kernel is being made to agree; whatever is heard from now on ends that. */
  settle(kind: Kind, want: readonly Resource[]): void {
    this.#settled.set(kind, want)
  }

  /** Something of a kind is not as it was wanted. */
  unsettle(kind: Kind): void {
    this.#settled.delete(kind)
  }

  /** A link is being made, made anew or removed: until it is told to be so, what is told of it and of what stands on it is the agent's own doing. */
  making(name: string): void {
    this.#making.set(name, performance.now() + MAKING_MS)
  }

  /** Notes what a resource stands on. */
  uses(resource: Resource): void {
    const dev = deviceOf(resource)
    if (dev !== undefined) this.devices.add(dev)
    if (resource.kind === 'link' && resource.vxlan) this.devices.add(resource.vxlan.dev)
  }

  /** Lists what of these kinds is in doubt, and nothing when nothing is; gives the kinds that it looked at. `nexthops` are wanted: one of their ids that carries our number was ours before somebody changed it. Throws ExecError. */
  async look(run: Run, among: readonly Kind[], nexthops: readonly Resource[] = []): Promise<ReadonlySet<Kind>> {
    if ([...this.#making.values()].some((until) => until <= performance.now())) this.doubt()
    const kinds = new Set(among.filter((kind) => this.#doubted.has(kind)))
    if (kinds.size === 0) return kinds
    // Before the list is asked for: what changes from now on is doubtful again.
    for (const kind of kinds) this.#doubted.delete(kind)
    this.#looking = kinds
    try {
      this.#take(kinds, await list(kinds, this.#scope, run), kinds.has('nexthop') ? new Set(nexthops.map((one) => face(one).key)) : new Set())
    } catch (cause) {
      this.doubt()
      throw cause
    } finally {
      this.#looking = new Set()
    }
    return kinds
  }

  /** Forgets what stood on a device that is gone. */
  forget(dev: string): void {
    for (const known of this.#known.values()) for (const [key, { resource }] of known) if (('dev' in resource && resource.dev === dev) || (resource.kind === 'sysctl' && resource.name.split('/').includes(dev))) known.delete(key)
  }

  /** Whether an event tells of nothing but what is known: what the agent did itself, or what is none of its business. */
  agrees({ kind, key, gone, text, resource }: Event): boolean {
    if (this.#making.size > 0 && this.#isBeingMade(deviceOf(resource))) return true
    if (resource.kind === 'link') return this.#agreesLink(resource, key, gone, text)
    const entry = this.#known.get(kind)?.get(key)
    if (entry) return !gone && looks(entry) === text
    if (this.waiting.has(key)) return false
    if (gone) return !(isLast(resource) && this.devices.has(resource.dev) && !this.#scope.links.includes(resource.dev))
    // What the kernel itself learns of neighbours comes and goes.
    return ((kind === 'neigh' || kind === 'tunnel') && text === '') || !this.#owns(resource)
  }

  /** Takes an event in. True when the next step has something to do. */
  heard(event: Event): boolean {
    const { kind, key, gone, resource } = event
    const agrees = this.agrees(event)
    if (!agrees && this.held.has(key)) {
      this.pending.add(key)
      // What stands on a link is another matter.
      if (kind !== 'link') return false
    }
    const known = this.#known.get(kind)
    if (resource.kind === 'link' && (gone ? !known?.has(key) : textAt(known, key) === event.text)) this.#making.delete(resource.name)
    if (resource.kind === 'nexthop' && !known?.has(key)) this.#other(resource.id, gone, this.#owns(resource))
    // The first list, which is under way, may be from before.
    const isLooking = this.#looking.has(kind as Kind)
    const isEarly = isLooking && !this.#listed.has(kind) && this.#owns(resource)
    if (agrees && !isEarly) return false
    if (isLooking) this.doubt(kind)
    if (resource.kind === 'link') this.#heardLink(resource, gone)
    else if (gone) this.#heardGone(event)
    else this.doubt(kind)
    return true
  }

  // Its events come in the kernel's order, so nothing of anybody else's is missed; but a monitor that was not there then never tells of the end.
  #isBeingMade(name: string | undefined): boolean {
    return name !== undefined && (this.#making.get(name) ?? 0) > performance.now()
  }

  #agreesLink({ name, up }: Link, key: string, gone: boolean, text: string): boolean {
    const entry = this.of('link').get(key)
    if (entry) return !gone && looks(entry) === text
    if (this.waiting.has(key) || (!gone && this.#scope.links.includes(name) && !this.blocked.has(name))) return false
    if (!this.devices.has(name)) return true
    return !gone && up && ![...this.waiting.values()].some(({ dev }) => dev === name)
  }

  // The kernel removes what stands on a device that goes, or goes down, and says little of it: nothing at all of IPv4 routes and of nexthops.
  #heardLink({ name, up }: Link, gone: boolean): void {
    if (gone || !up) this.doubt()
    else this.doubt(...(this.#scope.links.includes(name) ? (['link'] as const) : (['link', 'nexthop', 'route'] as const)))
  }

  #heardGone({ kind, key, resource }: Event): void {
    if (this.#known.get(kind)?.delete(key)) this.drifted.add(key)
    this.unsettle(kind)
    // Its routes go with a nexthop, and with the last address of a device.
    if (resource.kind === 'nexthop') this.doubt('route')
    if (isLast(resource)) this.doubt('nexthop', 'route')
  }

  #other(id: number, gone: boolean, own: boolean): void {
    if (gone || own) this.others.delete(id)
    else this.others.add(id)
  }

  #take(kinds: ReadonlySet<Kind>, found: readonly Found[], ids: ReadonlySet<string>): void {
    if (kinds.has('link')) this.#block(found)
    if (kinds.has('nexthop')) this.others.clear()
    const mine = new Map<Kind, Found[]>([...kinds].map((kind) => [kind, []]))
    for (const one of found) {
      const { resource } = one
      if (!this.#owns(resource) && !(resource.kind === 'nexthop' && resource.proto === PROTO && ids.has(face(resource).key))) {
        if (resource.kind === 'nexthop') this.others.add(resource.id)
      } else if (this.blocked.size === 0 || !this.blocked.has(deviceOf(resource) ?? '')) {
        mine.get(resource.kind)?.push(one)
        this.uses(resource)
      }
    }
    for (const [kind, all] of mine) {
      const now = knownOf(all)
      if (this.#listed.has(kind)) this.#compare(this.of(kind), now)
      this.#known.set(kind, now)
      this.#listed.add(kind)
      this.unsettle(kind)
    }
  }

  #compare(before: Known, now: Known): void {
    for (const [key, entry] of before) {
      if (textAt(now, key) !== looks(entry)) this.drifted.add(key)
      // The object that is wanted, in the place of one more that says the same. What a link looks like does not say all of it.
      else if (!entry.odd && entry.resource.kind !== 'link') now.set(key, entry)
    }
    for (const key of now.keys()) if (!before.has(key)) this.drifted.add(key)
  }

  #block(found: readonly Found[]): void {
    this.blocked.clear()
    for (const { resource } of found) {
      if (resource.kind !== 'link' || !this.#scope.links.includes(resource.name)) continue
      if (resource.type !== 'vxlan') this.blocked.set(resource.name, `a link of that name is there already, of type ${resource.type}`)
      else if (isAnothers(resource.alias, this.#scope)) this.blocked.set(resource.name, `it belongs to another agent, ${resource.alias}`)
    }
  }
}

// What an agent made that runs no more is taken over: nobody else would ever remove it.
function isAnothers(alias: string | undefined, { instance }: Scope): boolean {
  const mark = markOf('' as Scope['instance'])
  if (!alias?.startsWith(mark) || alias === markOf(instance)) return false
  return isRunning(alias.slice(mark.length) as Scope['instance'])
}

function textAt(known: Known | undefined, key: string): string | undefined {
  const entry = known?.get(key)
  return entry && looks(entry)
}

/** The device that a resource stands on, or is. */
export function deviceOf(resource: Resource): string | undefined {
  return 'dev' in resource ? resource.dev : resource.kind === 'link' ? resource.name : undefined
}

// A device that loses its last IPv4 address loses its IPv4 routes.
function isLast(resource: Resource): resource is Resource & { kind: 'addr' } {
  return resource.kind === 'addr' && !isSix(resource.cidr)
}
