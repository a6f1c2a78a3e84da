import { generation, isThere, ruleCounts } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { dumpElements } from '../kernel/element-dump.ts'
import { ADDRESS_SETS, type Addresses, addressLines, SOURCES, sources, TABLE } from './table.ts'
import type { WantedElements } from './wanted-elements.ts'

const SETS = [4, 6].flatMap((family) => [
  ...ADDRESS_SETS.map((set) => [TABLE, `${set}${family}`] as const),
  ...['restricted', 'allowed'].map((set) => [SOURCES, `${set}${family}`] as const),
])
/** How often the sets are written again while other programs have their turns. */
const TRIES = 5

/** What the kernel has: the text for the addresses, the version of the source ranges, and whether there are any. */
interface Written {
  readonly addresses: string
  readonly version: number
  readonly isAny: boolean
}

/** The sets with intervals, which `Elements` does not have: addresses of pods and of the node, and source ranges. */
export class IntervalSets {
  readonly #wanted: Pick<WantedElements, 'sources' | 'sourcesVersion'>
  readonly #run: Run
  #written: Written = { addresses: '', version: 0, isAny: false }
  /** What the last `lines` write. Undefined when they are none. */
  #next: Written | undefined
  /** What the kernel had of the sets and their rules after this agent wrote them. */
  #content: string | undefined

  constructor(wanted: Pick<WantedElements, 'sources' | 'sourcesVersion'>, run: Run) {
    this.#wanted = wanted
    this.#run = run
  }

  /** The lines for the next transaction: of what changed, or of all when the tables are made as a whole. */
  lines(addresses: Addresses, isWhole: boolean): string[] {
    const before = this.#written
    const [text, version] = [addressLines(addresses).join('\n'), this.#wanted.sourcesVersion]
    const restricted = isWhole || version !== before.version ? this.#wanted.sources() : undefined
    const isOther = isWhole || text !== before.addresses
    const isAny = restricted ? restricted.size > 0 : before.isAny
    this.#next = isOther || restricted ? { addresses: text, version, isAny } : undefined
    return [...(isOther ? [text] : []), ...(restricted ? sources(restricted) : [])]
  }

  /**
   * Notes that the kernel has the last `lines`. `isLast` says whether no program has committed a transaction since. What
   * another program does before the look would count as this agent's own. So after any transaction in between, the sets
   * are written again.
   */
  async settle(isLast: () => boolean): Promise<void> {
    const next = this.#next
    if (!next) return
    let [content, isOwn] = [contentNow(), isLast()]
    for (let tries = 0; !isOwn && tries < TRIES; tries++) {
      const before = generation()
      const lines = [next.addresses, ...sources(this.#wanted.sources()), '']
      const { status } = await this.#run(['nft', '-f', '-'], lines.join('\n'))
      content = contentNow()
      isOwn = status === 0 && (before === undefined || generation() === before + 1)
    }
    this.#content = content
    this.#written = next
  }

  /** What is wrong with the sets in the kernel. `mayDiffer`: another program may have changed the table. */
  wrong(mayDiffer: boolean): string | undefined {
    if (this.#written.isAny && !isThere('inet', SOURCES)) return `nft table ${SOURCES}`
    // Without transactions of others nobody changed them.
    if (this.#content !== undefined && mayDiffer && contentNow() !== this.#content)
      return `nft table ${SOURCES}, or addresses of pods in nft table ${TABLE}`
    return undefined
  }
}

// The sets, and the rules that use source ranges, as the kernel gives them.
function contentNow(): string {
  const linesOf = (pairs: Iterable<readonly unknown[]>) => [...pairs].map((pair) => pair.join(' ')).sort()
  const sets = SETS.map(([table, set]) => linesOf(dumpElements(table, set)))
  return JSON.stringify([...sets, linesOf(ruleCounts('inet', SOURCES))])
}
