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

/** A message of the kernel about a packet, and where it is from. */
export interface TraceMessage {
  readonly place: PlaceName
  readonly traced: Traced
  /** The name of a link there. */
  nameOf(index: number): string
}

/** Reads the kernel's messages as sights of one packet. The messages of a packet come in their order. */
export class Reader {
  readonly #probe: Probe
  readonly #own: string
  readonly #tunnel: number | undefined
  // The headers come with the first message of each base chain. The others follow with the same id.
  readonly #last = new Map<string, Omit<Sight, 'family' | 'table' | 'chain' | 'verdict'>>()

  /** `own` is the name of the trace's tables, `tunnel` the UDP port of VXLAN. */
  constructor(probe: Probe, own: string, tunnel?: number) {
    this.#probe = probe
    this.#own = own
    this.#tunnel = tunnel
  }

  /** The sight in a message. Undefined for a packet of somebody else. */
  read({ place, traced, nameOf }: TraceMessage): Sight | undefined {
    const { id, family, table, chain, verdict, handle, iif, oif, network, transport } = traced
    const isOwn = table === this.#own
    const key = `${place} ${id}`
    if (network) {
      const links = {
        ...(iif !== undefined && { iif: nameOf(iif) }),
        ...(oif !== undefined && { oif: nameOf(oif) }),
      }
      const headers =
        headersOf(this.#probe, network, transport) ??
        this.#carrier(key, network, transport, isOwn && handle !== undefined)
      if (headers) this.#last.set(key, { place, ...headers, ...links })
      else this.#last.delete(key)
    }
    const known = this.#last.get(key)
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
  #carrier(key: string, network: DataView, transport: DataView | undefined, isMatched: boolean) {
    if (this.#tunnel === undefined || !(isMatched || this.#last.get(key)?.isTunnel)) return undefined
    const ends = tunnelIn(network, transport, this.#tunnel)
    return ends && ({ ...ends, direction: 'there', isTunnel: true } as const)
  }
}
