// This folder makes the kernel equal to a wanted list of links, addresses, routes, neighbours, nexthops and tunnel
// entries. Begin here. `listing.ts` reads the kernel. `monitor.ts` and `events.ts` follow its changes. `memory.ts`
// keeps the known state. `elements.ts` does the same for the elements of nft sets and maps.
import { isRunning } from '../../lib/os/link-state.ts'
import { inside } from '../../lib/os/netns.ts'
import type { Run } from '../../lib/os/run.ts'
import { txChecksum } from '../../lib/os/sockets.ts'
import { readSysctl, writeSysctl } from '../../lib/os/sysctls.ts'
import { handler } from '../../lib/state/kinds/index.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import { isSameOverlay } from '../../lib/state/kinds/overlay.ts'
import type { Sysctl } from '../../lib/state/kinds/sysctl.ts'
import type { Change, Kind, Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { ExecError, ValueError } from '../../lib/text/errors.ts'
import type { Netns } from '../../lib/text/values.ts'
import { changeOf, dropOf, perform, putOf, type Step, type Tool } from './batch.ts'
import { type Difference, diff, face, isOther, knownOf, looks } from './diff.ts'
import type { Event } from './events.ts'
import { openPort } from './fou.ts'
import { list } from './listing.ts'
import { deviceOf, KernelState, KINDS } from './memory.ts'
import { type Group, type Outcome, Tally } from './outcome.ts'
import type { Scope } from './ownership.ts'

// These kinds have few objects, and all other kinds depend on them. They are listed and repaired first.
const BASE: readonly Kind[] = ['link', 'sysctl', 'addr']
const WIREGUARD: readonly Kind[] = ['wgdevice', 'wgpeer']

/** A wanted resource, and the object that the kernel has in its place. */
export interface Looked {
  readonly want: Resource
  readonly have?: Resource
  readonly isRight?: boolean
}

/**
 * Makes the kernel equal to the wanted resources, step by step, and remembers its state. A step lists only the kinds
 * that may differ. It changes only resources that do. It never changes objects of other programs.
 */
export class Converger {
  readonly #scope: Scope
  readonly #run: Run
  readonly #ns: Netns
  readonly #state: KernelState
  /** The checksum offload that each device was last given. */
  readonly #offloads = new Map<string, boolean>()

  /** `ns` is the namespace to work in. It is the namespace of this process, unless `run` can enter other namespaces. */
  constructor(scope: Scope, run: Run, ns: Netns = 'host') {
    this.#scope = scope
    this.#run = Object.assign((argv: readonly string[], stdin: string) => run(argv, stdin, ns), {
      link: (name: string) => run.link?.(name, ns) ?? true,
    })
    this.#ns = ns
    this.#state = new KernelState(scope)
  }

  /** The next step lists these kinds again. Without arguments it lists all kinds. */
  invalidate(...kinds: readonly Kind[]): void {
    this.#state.invalidate(...kinds)
  }

  /**
   * Takes in an event of a monitor. Gives 0 when the event differs from the result of the last step, so that the next
   * step has work. Gives the milliseconds until the next step can tell, when the event may come from the agent's own
   * step. Otherwise undefined.
   */
  note(event: Event): number | undefined {
    return this.#state.note(event)
  }

  /** Leaves the resources with these keys unchanged until a later call omits them. */
  hold(keys: ReadonlySet<string>): void {
    this.#state.hold(keys)
  }

  /** Whether another program has changed a held resource since. */
  isPending(key: string): boolean {
    return this.#state.pending.has(key)
  }

  /**
   * Reads the objects that the kernel has now under the keys of these resources. It changes nothing, and a step may run
   * meanwhile. Throws ExecError.
   */
  async look(want: readonly Resource[]): Promise<readonly Looked[]> {
    const known = knownOf(await list(new Set(want.map(({ kind }) => kind)), this.#scope, this.#run))
    return want.map((one) => {
      const have = known.get(face(one).key)
      return { want: one, ...(have && { have: have.resource, isRight: !isOther(one, have) }) }
    })
  }

  /**
   * Makes the kernel equal to `want`. Calls must not overlap. Throws ExecError when a tool fails as a whole. The next
   * step then lists everything.
   */
  async step(want: readonly Resource[]): Promise<Outcome> {
    try {
      const group = grouped(want)
      const tally = new Tally(this.#state)
      if (group.link.some((one) => this.#isFailing(one as Link))) this.#state.invalidate()
      const looked = await this.#state.look(this.#run, BASE)
      tally.notice()
      const unusable = await this.#links(group.link, looked.has('link'), tally)
      inside(this.#ns, () => this.#sysctls(group.sysctl, tally))
      await this.#addresses(group.addr, unusable, tally)
      // Without a WireGuard device, `wg` need not be installed.
      const kinds = group.wgdevice.length > 0 ? KINDS : KINDS.filter((kind) => !WIREGUARD.includes(kind))
      await this.#state.look(this.#run, kinds, group.nexthop)
      tally.notice()
      await this.#rest(group, unusable, tally)
      return tally.outcome(group, unusable)
    } catch (cause) {
      this.#state.distrust()
      throw cause
    }
  }

  /**
   * Makes changes that the caller found in objects of the plugins, stage by stage. It removes nothing and remembers
   * nothing. Gives the failed steps, each with the message of the tool. Throws ExecError.
   */
  async mend(stages: readonly (readonly Change[])[]): Promise<ReadonlyMap<Step, string>> {
    const failed = new Map<Step, string>()
    for (const stage of stages) {
      const steps = stage.map(({ want, have }) => (have ? changeOf(want, have) : putOf(want)))
      const tools = new Set(stage.map(({ want }) => handler(want.kind).tool as Tool))
      for (const tool of tools) {
        const own = steps.filter(({ resource }) => handler(resource.kind).tool === tool)
        for (const [step, message] of await perform(tool, own, this.#run)) failed.set(step, message)
      }
    }
    return failed
  }

  // Whether another program is removing this link at this moment. The kernel first removes the objects on the link,
  // with one event each. The list of links then waits until the link is gone.
  #isFailing(link: Link): boolean {
    const have = this.#state.of('link').get(face(link).key)?.resource as Link | undefined
    return link.up && have?.up === true && !isRunning(link.name, this.#ns)
  }

  // Links come first, in a batch of their own. The kernel removes the objects on a link together with the link.
  async #links(want: readonly Resource[], looked: boolean, tally: Tally): Promise<Set<string>> {
    const { add, ...there } = diff(want, this.#state.of('link'))
    const { change, drop } = this.#free({ add: [], ...there }, tally)
    const renewed = change.filter(({ want, have }) => !isSameOverlay(want as Link, have as Link))
    const made = [...add, ...renewed.map(({ want }) => want)] as readonly Link[]
    const refused = new Set<Resource>(made.filter((one) => this.#refuse(one, tally)))
    for (const one of want as readonly Link[])
      if (!refused.has(one) && !(await this.#isReceiving(one, looked || made.includes(one), tally))) refused.add(one)
    const changes = change.filter(({ want }) => !refused.has(want))
    const steps: Step[] = [
      ...drop.map((one) => dropOf(one)),
      ...changes.map(({ want, have }) => changeOf(want, have)),
      ...add.filter((one) => !refused.has(one)).map((one) => putOf(one)),
    ]
    const replaced = renewed.filter(({ want }) => !refused.has(want)).map(({ have }) => have)
    for (const one of [...drop, ...replaced]) this.#state.forget((one as Link).name)
    await tally.perform('ip', steps, this.#run)
    for (const one of want as readonly Link[]) {
      const wanted = offloadOf(one)
      const isDue = looked || steps.length > 0 || this.#offloads.get(one.name) !== wanted
      if (wanted === undefined || !isDue || tally.hasFailed(one)) continue
      inside(this.#ns, () => offload(one, wanted, tally))
      this.#offloads.set(one.name, wanted)
    }
    // A link whose in-place change failed still carries its objects. Only a link that could not be made is unusable.
    return new Set(made.filter((one) => tally.hasFailed(one)).map(({ name }) => name))
  }

  // Fails a link that must not be tried. Without its underlay X, `type vxlan … dev X` ends the whole batch.
  #refuse(link: Link, tally: Tally): boolean {
    const why = this.#whyRefused(link)
    if (why !== undefined) tally.fail(putOf(link), why)
    return why !== undefined
  }

  // Opens the UDP port at which a device gets its packets. The kernel sends no event when a program closes such a port,
  // so it is looked at together with the links. Gives false when it cannot be opened.
  async #isReceiving(link: Link, isDue: boolean, tally: Tally): Promise<boolean> {
    const port = link.ipip?.port
    if (port === undefined || !(isDue || this.#state.waiting.has(face(link).key))) return true
    try {
      if (await openPort(port, this.#run)) tally.done(link)
      return true
    } catch (cause) {
      if (!(cause instanceof ExecError)) throw cause
      tally.fail(putOf(link), cause.said)
      return false
    }
  }

  #whyRefused(link: Link): string | undefined {
    if (this.#state.held.has(face(link).key))
      return 'another program removes it again and again; it is made again after a pause'
    const blocked = this.#state.blocked.get(link.name)
    if (blocked !== undefined) return blocked
    const dev = link.vxlan?.dev
    const isMissing = dev !== undefined && this.#run.link?.(dev, 'host') === false
    return isMissing ? `there is no link ${dev}` : undefined
  }

  #sysctls(want: readonly Resource[], tally: Tally): void {
    const known = this.#state.of('sysctl')
    for (const one of want as readonly Sysctl[]) {
      const entry = face(one)
      const before = known.get(entry.key)
      if (before && looks(before) === looks(entry)) continue
      const is = readSysctl(one.name)
      if (is === undefined && one.optional) continue
      if (is !== one.value) setSysctl(one, tally)
      known.set(entry.key, entry)
    }
  }

  // Runs before kinds with up to ten thousand entries are listed. When a device loses its last address, the kernel also
  // removes much else.
  async #addresses(want: readonly Resource[], unusable: ReadonlySet<string>, tally: Tally): Promise<void> {
    const { add } = this.#free(diff(want, this.#state.of('addr'), this.#state.settled('addr')), tally)
    const puts = add.filter((one) => !unusable.has(deviceOf(one) ?? '')).map((one) => putOf(one))
    await tally.perform('ip', puts, this.#run)
  }

  /** The ages of the last handshakes with WireGuard peers at the last list, by public key. Undefined: never. Seconds. */
  handshakes(): ReadonlyMap<string, number | undefined> {
    return this.#state.handshakes
  }

  // A new peer's entries exist before a route leads there. A route to a removed peer goes before the peer's entries.
  async #rest(group: Group, unusable: Set<string>, tally: Tally): Promise<void> {
    const { others } = this.#state
    const isUsable = (one: Resource) => unusable.size === 0 || !unusable.has(deviceOf(one) ?? '')
    const wanted = (kind: (typeof KINDS)[number]) => (unusable.size === 0 ? group[kind] : group[kind].filter(isUsable))
    const differ = (kind: (typeof KINDS)[number], want = wanted(kind)) => {
      const found = diff(want, this.#state.of(kind), this.#state.settled(kind))
      this.#state.settle(kind, want)
      return this.#free(found, tally)
    }
    const nexthops = others.size === 0 ? differ('nexthop') : differ('nexthop', withoutOthers(wanted('nexthop'), others))
    for (const one of others.size === 0 ? [] : wanted('nexthop'))
      if (one.kind === 'nexthop' && others.has(one.id)) tally.awaits(one, 'its id is taken')
    if (this.#absent([...nexthops.add, ...nexthops.change.map(({ want }) => want)], unusable, tally))
      return this.#rest(group, unusable, tally)
    const [addr, neigh, tunnel] = [differ('addr'), differ('neigh'), differ('tunnel')]
    const [device, peer] = [differ('wgdevice'), differ('wgpeer')]
    this.#state.takeEndpoints(wanted('wgpeer'))
    const route = others.size === 0 ? differ('route') : differ('route', withoutOthers(wanted('route'), others))
    const puts = ({ add, change }: ReturnType<typeof diff>) => [
      ...change.map(({ want, have }) => changeOf(want, have)),
      ...add.map((one) => putOf(one, this.#scope.takeOver)),
    ]
    await tally.perform('bridge', puts(tunnel), this.#run)
    await tally.perform('wg', [...puts(device), ...peer.drop.map((one) => dropOf(one)), ...puts(peer)], this.#run)
    const early = route.change.filter(({ want, have }) => leadsAway(want, have))
    const moved = {
      add: [...route.add, ...early.map(({ want }) => want)],
      change: route.change.filter((one) => !early.includes(one)),
      drop: [],
    }
    const steps = [
      ...early.map(({ have }) => dropOf(have)),
      ...[addr, nexthops, neigh, moved].flatMap(puts),
      ...[...route.drop, ...neigh.drop, ...nexthops.drop, ...addr.drop].map((one) => dropOf(one)),
    ]
    await tally.perform('ip', steps, this.#run)
    const drops = tunnel.drop.map((one) => dropOf(one))
    await tally.perform('bridge', drops, this.#run)
  }

  // Removes the held resources from a difference, and notes them as pending.
  #free(found: Difference, tally: Tally): Difference {
    const { held, pending } = this.#state
    if (held.size === 0) return found
    const isFree = (one: Resource) => {
      const { key } = face(one)
      if (!held.has(key)) return true
      pending.add(key)
      tally.holdBack(one)
      return false
    }
    return {
      add: found.add.filter(isFree),
      change: found.change.filter(({ want }) => isFree(want)),
      drop: found.drop.filter(isFree),
    }
  }

  // `nexthop add … dev X` without X ends the whole batch, so such a nexthop is not tried.
  #absent(add: readonly Resource[], unusable: Set<string>, tally: Tally): boolean {
    const before = unusable.size
    const firstOn = new Map([...add].reverse().map((one) => [deviceOf(one) ?? '', one]))
    for (const [dev, one] of firstOn) {
      if (this.#run.link?.(dev, 'host') !== false) continue
      unusable.add(dev)
      tally.fail(putOf(one), `there is no link ${dev}`)
    }
    return unusable.size > before
  }
}

function grouped(want: readonly Resource[]): Group {
  type Lists = Record<(typeof KINDS)[number], Resource[]>
  const group = Object.fromEntries(KINDS.map((kind) => [kind, [] as Resource[]])) as Lists
  for (const one of want) {
    const list = group[one.kind as keyof Lists]
    if (!list) throw new TypeError(`Cannot converge a resource of kind ${one.kind}`)
    list.push(one)
  }
  return group
}

// The old IPv6 route must go first. The kernel refuses an onlink gateway while a route to that gateway leads over
// another link (ip6_route_check_nh_onlink).
function leadsAway(want: Resource, have: Resource): boolean {
  if (want.kind !== 'route' || have.kind !== 'route') return false
  return want.onlink === true && isSix(want.dst) && want.dev !== have.dev
}

// Another program may own the id of a nexthop. The route then uses its gateway without a nexthop object.
function withoutOthers(resources: readonly Resource[], others: ReadonlySet<number>): Resource[] {
  return resources.flatMap((one): Resource[] => {
    if (one.kind === 'nexthop') return others.has(one.id) ? [] : [one]
    if (one.kind !== 'route' || one.nhid === undefined || !others.has(one.nhid)) return [one]
    const { nhid: _, ...plain } = one
    return [plain]
  })
}

// A program that reads the UDP port, such as flanneld, gets the inner packets as the sender's kernel left them. A link
// between namespaces or virtual machines completes no checksums on the way.
function offloadOf({ vxlan, ipip }: Link): boolean | undefined {
  return ipip?.port === undefined ? vxlan?.offload : false
}

function offload(link: Link, wanted: boolean, tally: Tally): void {
  if (txChecksum(link.name) === wanted) return
  if (txChecksum(link.name, wanted) === wanted) tally.done(link)
  else tally.fail(putOf(link), `its checksum offload cannot be switched ${wanted ? 'on' : 'off'}`)
}

function setSysctl(sysctl: Sysctl, tally: Tally): void {
  try {
    if (!writeSysctl(sysctl.name, sysctl.value)) throw new ValueError('this kernel has no such setting')
    tally.done(sysctl)
  } catch (cause) {
    tally.fail(putOf(sysctl), (cause as Error).message)
  }
}
