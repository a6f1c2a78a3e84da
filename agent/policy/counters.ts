import type { Run } from '../../lib/os/run.ts'
import type { Counted } from './rules.ts'
import { TABLE, UNKNOWN } from './table.ts'

/** A counter of the table: what it counts, and its value. */
export interface Count extends Counted {
  /** First packets of connections: further packets meet no policy. */
  readonly packets: number
  readonly bytes: number
}
/** The counters of the table. */
export interface PolicyCounts {
  readonly counts: readonly Count[]
  /** Packets from and to addresses of the node's subnet that belong to no known pod. */
  readonly unknownAddress: number
}

const LIST = ['nft', '-j', 'list', 'counters', 'table', 'inet', TABLE]
/** Questions within so many milliseconds get the same answer. */
const FRESH_MS = 1000

/** Reads the counters of the table when somebody asks. */
export class Counters {
  readonly #run: Run
  readonly #counted: () => ReadonlyMap<string, Counted>
  #last: { readonly at: number; readonly answer: Promise<PolicyCounts> } | undefined

  constructor(run: Run, counted: () => ReadonlyMap<string, Counted>) {
    this.#run = run
    this.#counted = counted
  }

  /** The counters, at most a second old. Throws Error when nft does not give them. */
  read(): Promise<PolicyCounts> {
    const now = performance.now()
    if (this.#last === undefined || now - this.#last.at >= FRESH_MS) this.#last = { at: now, answer: this.#list() }
    return this.#last.answer
  }

  async #list(): Promise<PolicyCounts> {
    const { status, stdout, stderr } = await this.#run(LIST, '')
    if (status !== 0) throw new Error(`Cannot read the counters of nft table ${TABLE}: ${stderr.split('\n', 1)[0]}`)
    return countsOf(stdout, this.#counted())
  }
}

/** Reads the answer of `nft -j list counters`. Counters that nothing is known of are left out. Throws SyntaxError. */
export function countsOf(answer: string, counted: ReadonlyMap<string, Counted>): PolicyCounts {
  const { nftables } = JSON.parse(answer) as {
    readonly nftables: readonly {
      readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number }
    }[]
  }
  const all = nftables.flatMap(({ counter }) => (counter ? [counter] : []))
  return {
    counts: all.flatMap(({ name, packets, bytes }) => {
      const what = counted.get(name)
      return what ? [{ ...what, packets, bytes }] : []
    }),
    unknownAddress: all.find(({ name }) => name === UNKNOWN)?.packets ?? 0,
  }
}
