import { log } from '../../lib/os/log.ts'
import { chainUses, isInForce, isThere, ruleCounts } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { readSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import type { Stepped } from '../kernel/elements.ts'
import type { Fought } from '../kernel/fights.ts'
import { IntervalSets } from './interval-sets.ts'
import type { ServicesState } from './state.ts'
import {
  type Addresses,
  addition,
  baseChains,
  type Chain,
  declaration,
  LOCALNET,
  MARTIANS,
  shapeChains,
  TABLE,
  type TableOptions,
} from './table.ts'

/** The lines that take the table away, if it is there. */
const AWAY = [`table inet ${TABLE}`, `delete table inet ${TABLE}`]
/** Chains that no element leads to are removed when there are more. */
const SPARE = 100
const TOOL = ['nft', '-f', '-']

/** The way to add lines to a broken or unknown table: over the existing one, or after its removal. */
type Way = 'step' | 'over' | 'anew'

/** What one step found in the kernel. */
export interface FoundInKernel {
  /** What another program had changed, in words, and the sysctls among it. */
  readonly repaired: readonly string[]
  readonly settings: readonly Fought[]
  /** The elements that an earlier run left and nobody wants so. */
  readonly inherited: readonly string[]
  /** Why chains that nobody needs are still there. Empty when there are none. */
  readonly unremoved: readonly string[]
}

/** The nft tables of Services in the kernel, with the sysctl that NodePorts on 127.0.0.1 need. */
export class KernelTables {
  readonly #state: ServicesState
  readonly #run: Run
  readonly #base: ReadonlyMap<string, Chain>
  readonly #intervals: IntervalSets
  /** The chains that the kernel has. Undefined before the first step. */
  #chains: Map<string, Chain> | undefined
  #isStale = true
  #unremoved: readonly string[] = []
  /** The transaction that nft refused last. */
  #refused: string | undefined

  constructor(state: ServicesState, options: TableOptions, run: Run) {
    this.#state = state
    this.#run = run
    this.#base = baseChains(options)
    this.#intervals = new IntervalSets(state.wanted, run)
  }

  /** No step was completed yet. */
  get isFirst(): boolean {
    return this.#chains === undefined
  }

  /** Notes that another program may have changed the tables. */
  invalidate(): void {
    this.#isStale = true
    this.#state.elements.invalidate()
  }

  /**
   * Takes the changes since the last step to the kernel in one transaction, with chains and addresses where they are not
   * as the last one left them. Throws ExecError when nft refuses.
   */
  async update(addresses: Addresses): Promise<FoundInKernel> {
    const { isFirst } = this
    const wanted = new Map(this.#base)
    for (const shape of this.#state.wanted.shapes())
      for (const [name, chain] of shapeChains(shape)) wanted.set(name, chain)
    const wasStale = this.#isStale
    const wrong = wasStale ? this.#look() : undefined
    const way: Way = isFirst || wrong !== undefined ? 'over' : 'step'
    this.#isStale = false
    const { repaired, inherited } = await this.#commit(wanted, addresses, way).catch(async (cause) => {
      this.#isStale = true
      if (way === 'step' || !(await this.#isTableWrong(wanted))) throw cause
      return this.#commit(wanted, addresses, 'anew')
    })
    // The kernel never takes packets for 127.0.0.0/8 from other links without the chain that drops them.
    const settings = wanted.has(MARTIANS) && (isFirst || wasStale) ? takeLocalnet(isFirst) : []
    await this.#removeUnused(wanted, way)
    return {
      repaired: [
        ...(wrong !== undefined && !isFirst ? [wrong] : []),
        ...repaired.map((text) => `nft table ${TABLE}, ${text}`),
      ],
      settings,
      inherited,
      unremoved: this.#unremoved,
    }
  }

  // The table of another version may have sets of other types. nft then refuses the same transaction again, and takes
  // the declaration instead of that table. Any other failure, such as a lack of memory, leaves the table that works.
  // Both are checks, which change nothing.
  async #isTableWrong(wanted: ReadonlyMap<string, Chain>): Promise<boolean> {
    const isTaken = async (script: string) => (await this.#run(['nft', '-c', '-f', '-'], script)).status === 0
    const script = this.#refused
    this.#refused = undefined
    if (script === undefined || (await isTaken(script))) return false
    return isTaken([...AWAY, ...declaration(wanted), ''].join('\n'))
  }

  // What is wrong with tables and chains, by the kernel's count of rules.
  #look(): string | undefined {
    if (!isInForce('inet', TABLE)) return `nft table ${TABLE}`
    const wrongSets = this.#intervals.wrong(this.#state.elements.mayDiffer)
    if (wrongSets !== undefined) return wrongSets
    const counts = ruleCounts('inet', TABLE)
    const wrong = [...(this.#chains ?? [])].find(([name, { rules }]) => (counts.get(name) ?? 0) !== rules.length)
    return wrong && `nft table ${TABLE}, chain ${wrong[0]}`
  }

  async #commit(wanted: Map<string, Chain>, addresses: Addresses, way: Way): Promise<Stepped> {
    const { elements } = this.#state
    const fresh = new Map([...wanted].filter(([name]) => !this.#chains?.has(name)))
    const isWhole = way !== 'step'
    const before = [
      ...(way === 'anew' ? AWAY : []),
      ...(isWhole ? declaration(wanted) : addition(fresh)),
      ...this.#intervals.lines(addresses, isWhole),
    ]
    if (way === 'anew' || (isWhole && !isThere('inet', TABLE))) elements.forget()
    this.#refused = undefined
    const run: Run = async (argv, script) => {
      const output = await this.#run(argv, script)
      if (output.status !== 0) this.#refused = script
      return output
    }
    const stepped = await elements.step(run, { before })
    // A chain that no element leads to costs nothing, and the next change may need it.
    this.#chains = new Map([...(isWhole ? [] : (this.#chains ?? [])), ...wanted])
    await this.#intervals.settle(() => elements.isLast)
    return stepped
  }

  // Chains of an earlier run, and those of shapes that Services once had. In a transaction of their own: nothing leads
  // to them any more. A failure holds back nothing, and the next time is another try.
  async #removeUnused(wanted: ReadonlyMap<string, Chain>, way: Way): Promise<void> {
    const isKnown = way === 'step' && this.#unremoved.length === 0
    const there = isKnown ? this.#chains : chainUses('inet', TABLE)
    const unused = [...(there?.keys() ?? [])].filter((name) => !wanted.has(name))
    if (unused.length <= (isKnown ? SPARE : 0)) return
    if (unused.includes(MARTIANS)) writeSysctl(LOCALNET, '0')
    const lines = [
      ...unused.map((name) => `flush chain inet ${TABLE} ${name}`),
      ...unused.map((name) => `delete chain inet ${TABLE} ${name}`),
    ]
    const { status, stderr } = await this.#run(TOOL, `${lines.join('\n')}\n`)
    const text = `Cannot remove unused chains of nft table ${TABLE}: ${stderr.split('\n', 1)[0]}`
    this.#unremoved = status === 0 ? [] : [text]
    if (status === 0) this.#chains = new Map([...(this.#chains ?? [])].filter(([name]) => wanted.has(name)))
  }
}

// Gives the setting when another program had changed it.
function takeLocalnet(isFirst: boolean): Fought[] {
  if (readSysctl(LOCALNET) === '1' || !writeSysctl(LOCALNET, '1')) return []
  const name = sysctlName(LOCALNET)
  if (!isFirst) return [{ key: name, title: name }]
  log(`agent: set ${name} to 1 for NodePorts on 127.0.0.1; other links are kept from 127.0.0.0/8 by nft`)
  return []
}
