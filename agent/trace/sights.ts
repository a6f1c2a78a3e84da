import type { Traced } from '../../lib/os/nft-trace.ts'
import { type Headers, headersOf, type Probe, tunnelIn } from './packet.ts'
import type { Hook } from './table.ts'

/** Where a packet was seen: the namespace of the sender, of the node, or of the receiving pod. */
export type PlaceName = 'source' | 'node' | 'target'
/** The packet, or its answer, at one rule or at the end of a chain. */
export interface Sight extends Headers {
  readonly place: PlaceName
  readonly family: string
  readonly table: string
  readonly chain: string
  /** The hook of a chain of the trace's own table. */
  readonly hook?: Hook
  readonly verdict: string
  readonly handle?: bigint
  readonly iif?: string
  readonly oif?: string
  /** The sight is of the packet that carries the packet through a tunnel. */
  readonly isTunnel?: true
}

/** Reads the kernel's messages of one namespace as sights. The messages of one packet come in their order. */
export class Reader {
  readonly #place: PlaceName
  readonly #probe: Probe
  readonly #own: string
  readonly #nameOf: (index: number) => string
  readonly #tunnel: number | undefined
  // The headers come with the first message of each base chain. The others follow with the same id.
  readonly #last = new Map<number, Omit<Sight, 'family' | 'table' | 'chain' | 'verdict'>>()

  /** `own` is the name of the trace's table, `tunnel` the UDP port of VXLAN. */
  constructor(place: PlaceName, probe: Probe, own: string, nameOf: (index: number) => string, tunnel?: number) {
    this.#tunnel = tunnel
    this.#place = place
    this.#probe = probe
    this.#own = own
    this.#nameOf = nameOf
  }

  /** The sight in a message. Undefined for a packet of somebody else. */
  read({ id, family, table, chain, verdict, handle, iif, oif, network, transport }: Traced): Sight | undefined {
    const isOwn = table === this.#own
    if (network) {
      const links = {
        ...(iif !== undefined && { iif: this.#nameOf(iif) }),
        ...(oif !== undefined && { oif: this.#nameOf(oif) }),
      }
      const headers =
        headersOf(this.#probe, network, transport) ??
        this.#carrier(id, network, transport, isOwn && handle !== undefined)
      if (headers) this.#last.set(id, { place: this.#place, ...headers, ...links })
      else this.#last.delete(id)
    }
    const known = this.#last.get(id)
    if (known === undefined) return undefined
    return {
      ...known,
      family,
      table,
      chain,
      verdict,
      ...(isOwn && { hook: chain as Hook }),
      ...(handle !== undefined && { handle }),
    }
  }

  // The headers do not show what a tunnel carries. A rule of the own table knows it.
  #carrier(id: number, network: DataView, transport: DataView | undefined, isMatched: boolean) {
    if (this.#tunnel === undefined || !(isMatched || this.#last.get(id)?.isTunnel)) return undefined
    const ends = tunnelIn(network, transport, this.#tunnel)
    return ends && ({ ...ends, direction: 'there', isTunnel: true } as const)
  }
}
