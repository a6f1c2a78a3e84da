import { chainUses, isInForce, isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import type { Stepped } from '../kernel/elements.ts'
import { jointly } from '../kernel/jointly.ts'
import type { Endpoints } from './endpoints.ts'
import { Guard } from './guard.ts'
import { mayBeBridged, type PodPlaces, placesOf } from './places.ts'
import { type Cluster, PolicyState } from './state.ts'
import { fixed, NAME, SHAPES, TABLE, type TableOptions } from './table.ts'

const NO_STEP = 'nft has not answered yet'

/** The lines of all items and elements of a state, for a whole table. */
export function tableText({ elements, items }: PolicyState): string[] {
  const lines = items.anew()
  for (const set of elements.names()) {
    const all = [...elements.wanted(set)].map(([key, value]) => (value === '' ? key : `${key} : ${value}`))
    if (all.length > 0) lines.push(`add element ${NAME} ${set} { ${all.join(', ')} }`)
  }
  return lines
}

/** Makes the whole table in one transaction, so that no packet meets half of it. Throws ExecError when nft refuses. */
export async function load({ elements, items }: PolicyState, options: TableOptions, run: Run): Promise<Stepped> {
  elements.forget()
  const stepped = await elements.step(run, { before: [...fixed(options), ...items.anew()] })
  items.settleAll()
  return stepped
}

/**
 * Brings the changes since the last transaction into the kernel, in one transaction. Throws ExecError when nft refuses.
 */
export async function update({ elements, items }: PolicyState, run: Run): Promise<Stepped> {
  const stepped = await elements.step(run, items.changes())
  items.settle()
  return stepped
}

/** Brings a state into the kernel: the table of policy, and the tables that say which pod may send from which address. */
export class PolicyProgram {
  readonly #state: PolicyState
  readonly #guard = new Guard()
  /** The options of the table that the last transaction left in the kernel. Undefined when it may have others. */
  #loaded: string | undefined
  readonly #endpoints: Endpoints
  #places: PodPlaces
  #trouble = NO_STEP

  constructor(state: PolicyState, endpoints: Endpoints) {
    this.#state = state
    this.#endpoints = endpoints
    this.#places = placesOf(endpoints, state.locals, true)
  }

  /** Looks where the pods are. With `isAudit` nobody counts as isolated. */
  look(isAudit: boolean): void {
    this.#places = placesOf(this.#endpoints, this.#state.locals, isAudit)
  }

  /** Whether pods of this node are, or may be, ports of a bridge. */
  get mayBeBridged(): boolean {
    return mayBeBridged(this.#places)
  }

  /** Why the last step failed. */
  get trouble(): string {
    return this.#trouble
  }

  /** The next step compares the tables with the kernel. */
  invalidate(): void {
    this.#state.elements.invalidate()
    this.#guard.invalidate()
  }

  /**
   * Brings all changes into the kernel, and gives what it had to repair. While another program changes the table again
   * and again (`isFought`), it is not compared. The first transaction of `besides` is a part of the same one. Throws
   * ExecError when nft refuses.
   */
  async step(
    options: TableOptions,
    run: Run,
    isFought: boolean,
    besides: readonly ((run: Run) => Promise<void>)[] = [],
  ): Promise<readonly string[]> {
    this.look(options.isAudit)
    const others = besides.map((work) => (own: Run) => work(own).then((): readonly string[] => []))
    const works = [(own: Run) => this.#table(options, own, isFought), ...this.#guard.works(this.#places), ...others]
    // After a failure each work is by itself, so that one that cannot be done holds back no other.
    const singly = () => Promise.all(works.map((work) => work(run)))
    try {
      const repaired = (await (this.#trouble === NO_STEP ? jointly(run, works) : singly())).flat()
      this.#trouble = NO_STEP
      return repaired
    } catch (cause) {
      this.#trouble = (cause as Error).message
      throw cause
    }
  }

  async #table(options: TableOptions, run: Run, isFought: boolean): Promise<readonly string[]> {
    const state = this.#state
    const key = JSON.stringify([options.subnets, options.log !== undefined])
    const mayDiffer = state.elements.mayDiffer && !isFought
    const before = this.#loaded
    // A failed transaction leaves what was there. The next step makes the whole table again.
    this.#loaded = undefined
    if (before === key && !(mayDiffer && !isThere('inet', TABLE))) {
      const { repaired } = await update(state, run)
      const wrong = mayDiffer ? foreign(state, options) : undefined
      if (wrong !== undefined) {
        await load(state, options, run)
        // Meanwhile connections may have begun that no policy allows.
        state.tightenAll()
      }
      this.#loaded = key
      return [...repaired, ...(wrong === undefined ? [] : [wrong])]
    }
    await load(state, options, run)
    state.tightenAll()
    this.#loaded = key
    return before === key ? [`nft table ${TABLE}`] : []
  }
}

/**
 * Closes the pods of this node before the objects are known, unless the table of an earlier run does it. Throws
 * ExecError when nft refuses.
 */
export async function closeUnknown(cluster: Cluster, options: TableOptions, run: Run): Promise<void> {
  if (options.subnets.length > 0 && !isThere('inet', TABLE)) await load(new PolicyState(cluster, ''), options, run)
}

/**
 * Why the chains in the kernel are not those of the last transaction. Undefined when they are. Compares how often the
 * kernel says that each chain is in use: by its rules, and by jumps from rules and elements.
 */
export function foreign(state: PolicyState, options: TableOptions): string | undefined {
  if (!isInForce('inet', TABLE)) return `nft table ${TABLE}`
  const [wanted, found] = [usesOf(state, options), chainUses('inet', TABLE)]
  for (const name of new Set([...wanted.keys(), ...found.keys()]))
    if ((wanted.get(name) ?? -1) !== (found.get(name) ?? -1)) return `nft chain ${TABLE} ${name}`
  return undefined
}

const JUMP = /\b(?:jump|goto) (\w+)/

function usesOf({ elements, items }: PolicyState, options: TableOptions): ReadonlyMap<string, number> {
  const uses = new Map<string, number>()
  const add = (name: string, count: number) => uses.set(name, (uses.get(name) ?? 0) + count)
  const rule = (chain: string, line: string) => {
    add(chain, 1)
    const target = JUMP.exec(line)?.[1]
    if (target !== undefined) add(target, 1)
  }
  let chain = ''
  for (const line of fixed(options)) {
    const name = /^ {2}chain (\w+) \{$/.exec(line)?.[1]
    if (name !== undefined) [chain] = [name, add(name, 0)]
    else if (chain !== '' && line.startsWith('    ') && !line.startsWith('    type ')) rule(chain, line)
  }
  for (const { name, kind, make } of items.all()) {
    if (kind !== 'chain') continue
    add(name, 0)
    for (const line of make.slice(1)) rule(name, line)
  }
  for (const [map, { value }] of Object.entries(SHAPES)) {
    if (value !== 'verdict') continue
    for (const verdict of elements.wanted(map).values()) {
      const target = JUMP.exec(verdict)?.[1]
      if (target !== undefined) add(target, 1)
    }
  }
  return uses
}
