import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { PROTO } from '../kernel/marks.ts'
import type { Acceptance } from './acceptance.ts'

/** The number of BIRD's routes in the kernel (rt_protos). */
export const BIRD_PROTO = '12'

interface RouteRow {
  readonly dst: string
  readonly protocol?: string
  /** Absent for a route that leads somewhere. */
  readonly type?: string
}

/** The destinations for which the kernel has a route of the agent and none of BIRD. Throws ExecError. */
export async function withoutBird(run: Run): Promise<ReadonlySet<string>> {
  const all = await Promise.all(
    ['-4', '-6'].map(async (family) => {
      // Without this family in the kernel there is no route of it.
      const shown = await listed(['ip', family, '-N', '-j', 'route', 'show', 'table', '254'], run)
      return JSON.parse(shown.trim() || '[]') as RouteRow[]
    }),
  )
  const by = (program: string) =>
    new Set(all.flat().flatMap(({ dst, protocol, type }) => (protocol === program && !type ? [dst] : [])))
  return by(String(PROTO)).difference(by(BIRD_PROTO))
}

/** Whom `RouteWriter` tells. */
export interface HandoverListener {
  log(text: string): void
  /** Called when another program writes the routes to nodes. */
  programsChanged(): void
  /** Called when other peers are nodes. */
  nodesChanged(): void
}

/** Who writes the routes to other nodes: the agent, until a configuration of BIRD that does so has proved itself. */
export class RouteWriter {
  readonly #acceptance: Acceptance
  readonly #isPossible: boolean
  readonly #listener: HandoverListener
  #programs: 'agent' | 'bird'
  #nodes: readonly Ip[]

  /** `isPossible` says that the backend lets BIRD write the routes. */
  constructor(acceptance: Acceptance, isPossible: boolean, listener: HandoverListener) {
    this.#acceptance = acceptance
    this.#isPossible = isPossible
    this.#listener = listener
    this.#programs = this.next
    this.#nodes = acceptance.nodes
  }

  /** Who writes them now. */
  get programs(): 'agent' | 'bird' {
    return this.#programs
  }

  /** Who is to write them, by the configurations that BIRD has or may have in a moment. */
  get next(): 'agent' | 'bird' {
    return this.#isPossible && this.#acceptance.isByBird ? 'bird' : 'agent'
  }

  /** The peers that are nodes, as they may announce subnets. Their tunnelled packets are taken without a lease. */
  get nodes(): readonly Ip[] {
    return this.#nodes
  }

  /** Hands over to who is to write them. */
  handOver(): void {
    const { next } = this
    if (next === this.#programs) return
    this.#programs = next
    this.#listener.log(`agent: ${next === 'bird' ? 'BIRD' : 'the agent'} writes the routes to nodes from now on`)
    this.#listener.programsChanged()
  }

  /** Takes the peers that are nodes now. */
  learnNodes(): void {
    const { nodes } = this.#acceptance
    if (Bun.deepEquals(nodes, this.#nodes)) return
    this.#nodes = nodes
    this.#listener.nodesChanged()
  }
}
