import type { Run } from '../../lib/os/run.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import { isOverlay } from '../../lib/state/kinds/overlay.ts'
import { isSamePeer, type Wgpeer } from '../../lib/state/kinds/wgpeer.ts'
import type { Kind, Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { isRunning } from '../node/instance-lock.ts'
import { face, type KernelObjects, knownOf, looks } from './diff.ts'
import type { Event } from './events.ts'
import { type ListedResource, list } from './listing.ts'
import { markOf, PROTO } from './marks.ts'
import { ownership, type Scope } from './ownership.ts'

/** The kinds that the converger handles. */
export const KINDS = [
  'link',
  'sysctl',
  'addr',
  'nexthop',
  'neigh',
  'tunnel',
  'wgdevice',
  'wgpeer',
  'route',
] as const satisfies readonly Kind[]
const MAKING_MS = 2000
/** A wanted resource that could not be made: its device, and the message of the tool. */
export interface Waiting {
  readonly dev: string | undefined
  readonly message: string
}

/**
 * The agent's objects in the kernel, as far as they are known. The sources are lists, the agent's own steps and the
 * events of the monitors.
 */
export class KernelState {
  /** Keys of objects that another program changed after the agent's last step. */
  drifted = new Set<string>()
  /** The resources that the last step could not make, by key. */
  waiting: ReadonlyMap<string, Waiting> = new Map()
  /** Links that have a wanted name but do not belong to the agent, each with the reason. */
  readonly blocked = new Map<string, string>()
  /** Ids of nexthops that belong to other programs. */
  readonly others = new Set<number>()
  /**
   * Keys of resources that are left unchanged for now, because another program changes them again and again. `pending`
   * has the keys that it has changed since.
   */
  held: ReadonlySet<string> = new Set()
  readonly pending = new Set<string>()
  /** The ages of the last handshakes with WireGuard peers at the last list, in seconds, by public key. */
  readonly handshakes = new Map<string, number | undefined>()
  /** Devices that the agent's objects use. */
  readonly devices = new Set<string>()
  readonly #scope: Scope
  readonly #owns: (found: Resource) => boolean
  readonly #known = new Map<Kind, KernelObjects>(KINDS.map((kind) => [kind, new Map()]))
  readonly #stale = new Set<Kind>(KINDS)
  readonly #listed = new Set<Kind>()
  readonly #settled = new Map<Kind, readonly Resource[]>()
  readonly #making = new Map<string, number>()
  /** Kinds with events that counted as the agent's own while it made a link. Another program may have caused them. */
  readonly #unsure = new Set<Kind>()
  #looking: ReadonlySet<Kind> = new Set()

  constructor(scope: Scope) {
    this.#scope = scope
    this.#owns = ownership(scope)
  }

  of(kind: Kind): KernelObjects {
    return this.#known.get(kind) as KernelObjects
  }

  /** The next look lists these kinds again. Without arguments it lists all kinds. */
  invalidate(...kinds: readonly Kind[]): void {
    if (kinds.length === 0) {
      this.#making.clear()
      this.#unsure.clear()
    }
    for (const kind of kinds.length > 0 ? kinds : KINDS) this.#stale.add(kind)
  }

  /** Leaves the resources with these keys unchanged. Kinds of resources that are no longer held are listed again. */
  hold(keys: ReadonlySet<string>): void {
    for (const key of this.held) {
      if (keys.has(key)) continue
      const kind = key.slice(0, key.indexOf(' ')) as Kind
      // The routes of a nexthop went together with it.
      this.invalidate(kind, ...(kind === 'nexthop' ? (['route'] as const) : []))
      this.pending.delete(key)
    }
    this.held = keys
  }

  /**
   * Invalidates everything, even the agent's own steps. Differences in the next list do not count as changes by another
   * program.
   */
  distrust(): void {
    this.invalidate()
    this.#listed.clear()
    this.#settled.clear()
  }

  /** Takes the keys of changed objects, for a step that repairs them. */
  takeDrift(): Set<string> {
    const taken = this.drifted
    this.drifted = new Set()
    return taken
  }

  /** The wanted list of a kind that the kernel was last made equal to. Undefined after any other event of that kind. */
  settled(kind: Kind): readonly Resource[] | undefined {
    return this.#settled.get(kind)
  }

  /** Notes that a step makes the kernel equal to this list. An event from now on clears it. */
  settle(kind: Kind, want: readonly Resource[]): void {
    this.#settled.set(kind, want)
  }

  /** Notes that a resource of this kind differs from the wanted list. */
  unsettle(kind: Kind): void {
    this.#settled.delete(kind)
  }

  /**
   * Notes that the agent makes or removes a link. Events of the link and its objects count as the agent's own until an
   * event confirms the link. The kinds of these objects are then listed again, because the two monitors have no common
   * order. An event of a tunnel entry may overtake the event that confirms its link.
   */
  making(name: string): void {
    this.#making.set(name, performance.now() + MAKING_MS)
  }

  /** Notes the devices that a resource uses. */
  uses(resource: Resource): void {
    const dev = deviceOf(resource)
    if (dev !== undefined) this.devices.add(dev)
    if (resource.kind === 'link' && resource.vxlan) this.devices.add(resource.vxlan.dev)
  }

  /**
   * Lists those of these kinds that are stale, and gives the kinds that it listed. It starts no process when nothing
   * is stale. `nexthops` are the wanted ones. An object with one of their ids and the agent's protocol number
   * belongs to the agent, even after a change. Throws ExecError.
   */
  async look(run: Run, among: readonly Kind[], nexthops: readonly Resource[] = []): Promise<ReadonlySet<Kind>> {
    if ([...this.#making.values()].some((until) => until <= performance.now())) this.invalidate()
    const kinds = new Set(among.filter((kind) => this.#stale.has(kind)))
    if (kinds.size === 0) return kinds
    // Clears the mark before the list is requested. A change from now on sets it again.
    for (const kind of kinds) this.#stale.delete(kind)
    this.#looking = kinds
    const wanted = kinds.has('nexthop') ? nexthops : []
    try {
      const found = await list(kinds, this.#scope, run)
      this.#take(kinds, found, new Set(wanted.map((one) => face(one).key)))
    } catch (cause) {
      this.invalidate()
      throw cause
    } finally {
      this.#looking = new Set()
    }
    return kinds
  }

  /**
   * Takes the wanted endpoints of peers that the kernel showed in a connection, where any endpoint is right. A later
   * change of the wanted endpoint then differs.
   */
  takeEndpoints(want: readonly Resource[]): void {
    const known = this.of('wgpeer')
    for (const one of want) {
      const { key } = face(one)
      const have = known.get(key)?.resource
      if (have?.kind === 'wgpeer' && have.endpoint === undefined && isSamePeer(one as Wgpeer, have))
        known.set(key, face(one))
    }
  }

  /** Forgets the objects on a removed device. */
  forget(dev: string): void {
    const isOn = (resource: Resource) =>
      'dev' in resource ? resource.dev === dev : resource.kind === 'sysctl' && resource.name.split('/').includes(dev)
    for (const known of this.#known.values())
      for (const [key, { resource }] of known) if (isOn(resource)) known.delete(key)
  }

  // Whether an event brings nothing new. It may confirm the agent's own step, or concern an object of another program.
  #agrees({ kind, key, gone, text, resource }: Event): boolean {
    if (resource.kind === 'link') return this.#agreesLink(resource, key, gone, text)
    const entry = this.#known.get(kind)?.get(key)
    if (entry) return !gone && looks(entry) === text
    if (this.waiting.has(key)) return false
    if (gone) return !isLast(resource) || !this.devices.has(resource.dev) || this.#scope.links.includes(resource.dev)
    // The kernel itself learns neighbours and forwarding entries. They come and go.
    return ((kind === 'neigh' || kind === 'tunnel') && text === '') || !this.#owns(resource)
  }

  /**
   * Takes in an event. Gives the milliseconds until the next step has work. Undefined when the event gives it no work.
   */
  note(event: Event): number | undefined {
    const { kind, key, gone, resource } = event
    const isKnown = this.#agrees(event)
    const makingMs = this.#makingMs(deviceOf(resource))
    const agrees = isKnown || makingMs > 0
    if (!agrees && this.held.has(key)) {
      this.pending.add(key)
      // A link event also concerns the objects on the link, so it is not only held back.
      if (kind !== 'link') return undefined
    }
    if (!isKnown && agrees && kind !== 'link') this.#unsure.add(kind)
    const known = this.#known.get(kind)
    const isAsKnown = () => (gone ? !known?.has(key) : textAt(known, key) === event.text)
    const isConfirmed = resource.kind === 'link' && isAsKnown() && this.#making.delete(resource.name)
    if (resource.kind === 'nexthop' && !known?.has(key)) this.#other(resource.id, gone, this.#owns(resource))
    // The first list of this kind is in progress. It may be older than this event.
    const isLooking = this.#looking.has(kind as Kind)
    const isEarly = isLooking && !this.#listed.has(kind) && this.#owns(resource)
    if (agrees && !isEarly) return isConfirmed ? this.#resolve() : isKnown ? undefined : makingMs
    if (isLooking) this.invalidate(kind)
    if (resource.kind === 'link') this.#noteLink(resource, gone)
    else if (gone) this.#noteGone(event)
    else this.invalidate(kind)
    return 0
  }

  // How long the events of this device still count as the agent's own. After that time without a confirmation,
  // everything is listed again: the monitor started too late to see the link, or another program has changed it.
  #makingMs(name: string | undefined): number {
    return name === undefined ? 0 : Math.max(0, (this.#making.get(name) ?? 0) - performance.now())
  }

  // A link of the agent is confirmed.
  #resolve(): number | undefined {
    if (this.#unsure.size === 0) return undefined
    this.invalidate(...this.#unsure)
    this.#unsure.clear()
    return 0
  }

  #agreesLink({ name, up }: Link, key: string, gone: boolean, text: string): boolean {
    const entry = this.of('link').get(key)
    if (entry) return !gone && looks(entry) === text
    const isWanted = this.#scope.links.includes(name) && !this.blocked.has(name)
    if (this.waiting.has(key) || (!gone && isWanted)) return false
    if (!this.devices.has(name)) return true
    return !gone && up && ![...this.waiting.values()].some(({ dev }) => dev === name)
  }

  // The kernel removes the objects on a device that is deleted or set down. It sends few events for this. It sends none
  // at all for IPv4 routes and nexthops.
  #noteLink({ name, up }: Link, gone: boolean): void {
    if (gone || !up) this.invalidate()
    else if (this.#scope.links.includes(name)) this.invalidate('link')
    else this.invalidate('link', 'nexthop', 'route')
  }

  #noteGone({ kind, key, resource }: Event): void {
    if (this.#known.get(kind)?.delete(key)) this.drifted.add(key)
    this.unsettle(kind)
    // Routes go together with their nexthop, and together with the last address of their device.
    if (resource.kind === 'nexthop') this.invalidate('route')
    if (isLast(resource)) this.invalidate('nexthop', 'route')
  }

  #other(id: number, gone: boolean, own: boolean): void {
    if (gone || own) this.others.delete(id)
    else this.others.add(id)
  }

  #take(kinds: ReadonlySet<Kind>, found: readonly ListedResource[], ids: ReadonlySet<string>): void {
    if (kinds.has('link')) this.#block(found)
    if (kinds.has('nexthop')) this.others.clear()
    if (kinds.has('wgpeer')) this.#takeHandshakes(found)
    const mine = new Map<Kind, ListedResource[]>([...kinds].map((kind) => [kind, []]))
    const isWanted = (one: Resource) => one.kind === 'nexthop' && one.proto === PROTO && ids.has(face(one).key)
    for (const one of found) {
      const { resource } = one
      if (!this.#owns(resource) && !isWanted(resource)) {
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

  #takeHandshakes(found: readonly ListedResource[]): void {
    this.handshakes.clear()
    const now = Date.now() / 1000
    for (const { resource } of found)
      if (resource.kind === 'wgpeer') {
        const { publicKey, handshake } = resource
        this.handshakes.set(publicKey, handshake ? Math.max(0, now - handshake) : undefined)
      }
  }

  #compare(before: KernelObjects, now: KernelObjects): void {
    for (const [key, entry] of before) {
      if (textAt(now, key) !== looks(entry)) this.drifted.add(key)
      // Keeps the wanted object instead of an equal copy from the list. Some are an exception, because their text does
      // not show all attributes.
      else if (!entry.odd && !isHalfShown(entry.resource, now.get(key)?.resource)) now.set(key, entry)
    }
    for (const key of now.keys()) if (!before.has(key)) this.drifted.add(key)
  }

  #block(found: readonly ListedResource[]): void {
    this.blocked.clear()
    for (const { resource } of found) {
      if (resource.kind !== 'link' || !this.#scope.links.includes(resource.name)) continue
      if (!isOverlay(resource.type))
        this.blocked.set(resource.name, `a link of that name is there already, of type ${resource.type}`)
      else if (isAnothers(resource.alias, this.#scope))
        this.blocked.set(resource.name, `it belongs to another agent, ${resource.alias}`)
    }
  }
}

// Devices of an agent that no longer runs are taken over. No other program would ever remove them.
function isAnothers(alias: string | undefined, { instance }: Scope): boolean {
  const mark = markOf('' as Scope['instance'])
  if (!alias?.startsWith(mark) || alias === markOf(instance)) return false
  return isRunning(alias.slice(mark.length) as Scope['instance'])
}

// The text of a link lacks attributes. That of a WireGuard peer lacks the endpoint, which only counts for a peer
// without a connection.
function isHalfShown(before: Resource, now: Resource | undefined): boolean {
  return before.kind === 'link' || (now?.kind === 'wgpeer' && now.endpoint !== undefined)
}

function textAt(known: KernelObjects | undefined, key: string): string | undefined {
  const entry = known?.get(key)
  return entry && looks(entry)
}

/** The device that a resource uses. For a link it is the link itself. */
export function deviceOf(resource: Resource): string | undefined {
  return 'dev' in resource ? resource.dev : resource.kind === 'link' ? resource.name : undefined
}

// When a device loses its last IPv4 address, the kernel removes its IPv4 routes.
function isLast(resource: Resource): resource is Resource & { kind: 'addr' } {
  return resource.kind === 'addr' && !isSix(resource.cidr)
}
