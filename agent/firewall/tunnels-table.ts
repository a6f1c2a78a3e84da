import { countedPackets, isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { ExecError } from '../../lib/text/errors.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { textOfBytes } from '../kernel/element-bytes.ts'
import { dumpElements } from '../kernel/element-dump.ts'
import { Elements, type Stepped } from '../kernel/elements.ts'
import { removal } from './masquerade.ts'
import { REFUSED, SHAPES, STRANGERS, setOf } from './tunnels.ts'
import type { Refused } from './unknown-senders.ts'

/** The number of attempts to load the rules while no other program commits a transaction. */
const TRIES = 5

/** The table of `tunnels.ts` in the kernel, with the addresses that may send. It stays when the agent ends. */
export class TunnelsTable {
  readonly #name: string
  readonly #run: Run
  readonly #elements: Elements
  /** The rules that the kernel has: as they were loaded, and as nft printed them afterwards. */
  #loaded: { readonly text: string; readonly shown: string } | undefined

  constructor(name: string, run: Run) {
    this.#name = name
    this.#run = run
    this.#elements = new Elements(name, SHAPES)
  }

  /** This run has loaded the rules. */
  get isLoaded(): boolean {
    return this.#loaded !== undefined
  }

  /** The table is one of an earlier run. */
  get isInherited(): boolean {
    return !this.isLoaded && isThere('inet', this.#name)
  }

  /** The number of addresses that may send. */
  get size(): number {
    return Object.keys(SHAPES).reduce((sum, set) => sum + this.#elements.size(set), 0)
  }

  /** Notes that another program may have changed the table. */
  invalidate(): void {
    this.#elements.invalidate()
  }

  /** Whether an address may send. */
  has(ip: Ip): boolean {
    return this.#elements.wanted(setOf(ip)).has(ip)
  }

  /** Sets the addresses that may send. The next `update` takes them to the kernel. */
  want(addresses: readonly Ip[]): void {
    const wanted = new Set(addresses)
    for (const set of Object.keys(SHAPES))
      for (const ip of this.#elements.wanted(set).keys()) if (!wanted.has(ip as Ip)) this.#elements.remove(set, ip)
    for (const ip of wanted) this.#elements.put(setOf(ip), ip)
  }

  /** Gives the kernel these rules, and the wanted addresses. Returns what another program had changed. Throws ExecError. */
  async update(lines: readonly string[]): Promise<string[]> {
    const text = lines.join('\n')
    const before = this.#loaded
    const isForeign = before?.text === text && this.#elements.mayDiffer && (await this.#shown()) !== before.shown
    const isLoaded = before?.text === text && !isForeign
    const { repaired } = isLoaded ? await this.#elements.step(this.#run) : await this.#load(lines)
    return [
      ...(isForeign ? [`nft table ${this.#name}`] : []),
      ...repaired.map((what) => `nft table ${this.#name}, ${what}`),
    ]
  }

  /** Removes the table, if it is there. Throws ExecError. */
  async remove(): Promise<void> {
    this.#loaded = undefined
    if (!isThere('inet', this.#name)) return
    const argv = ['nft', '-f', '-']
    const { status, stderr } = await this.#run(argv, removal(this.#name))
    if (status !== 0) throw new ExecError(argv, `table inet ${this.#name}`, stderr.split('\n', 1)[0] ?? '')
  }

  /** The number of refused packets since the table was loaded. Throws Error when the kernel refuses to answer. */
  refusedPackets(): number {
    return countedPackets('inet', this.#name, REFUSED) ?? 0
  }

  /** The same, with the addresses that sent them. Throws Error as well. */
  refused(): Refused {
    const packets = this.refusedPackets()
    const addresses = Object.entries(STRANGERS).flatMap(([set, type]) =>
      [...dumpElements(this.#name, set).keys()].map((bytes) => textOfBytes(bytes, [type]) as Ip),
    )
    return { addresses, packets }
  }

  // One transaction has the rules and all elements, so that no packet of a node meets the rules without its address.
  async #load(lines: readonly string[]): Promise<Stepped> {
    this.#loaded = undefined
    for (let tries = 1; ; tries++) {
      const stepped = await this.#elements.step(this.#run, { before: lines }).catch((cause: unknown) => {
        if (!(cause instanceof ExecError) || !isThere('inet', this.#name)) throw cause
        // The table has another shape.
        this.#elements.forget()
        return this.#elements.step(this.#run, { before: [...removal(this.#name).trimEnd().split('\n'), ...lines] })
      })
      const shown = await this.#shown()
      // When no other program changed rules in between, nft shows what was loaded.
      this.#elements.invalidate()
      if (this.#elements.mayDiffer && tries < TRIES) continue
      // Another program has removed the table already. The next step must load it.
      this.#loaded = shown === '' ? undefined : { text: lines.join('\n'), shown }
      return stepped
    }
  }

  // The rules as nft prints them, without elements and counts. Empty when there is no such table.
  #shown(): Promise<string> {
    return listed(['nft', '-s', '-t', 'list', 'table', 'inet', this.#name], this.#run)
  }
}
