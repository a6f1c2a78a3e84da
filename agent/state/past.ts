// The last hour of each peer and the last day of this node, a value per minute, in memory only.
import type { Row } from './rows.ts'

/** The minutes that are kept of a peer, and those of the node. */
const HOUR = 60
const DAY = 1440
/** The values that are kept of the node. */
const SERIES = ['lost', 'drift', 'repairs', 'refused'] as const
/** The values of the node at one minute: peers that are lost, objects not as wanted, repairs and refused packets in it. */
export type Figures = Readonly<Record<(typeof SERIES)[number], number>>
/** How the node was: a letter per minute, `r` ready, `d` degraded, `n` not ready, `-` unknown. */
type Letter = 'r' | 'd' | 'n' | '-'

/** The past of this node, oldest first. The last value is of the minute `end`. `null` is unknown. */
export interface NodePast {
  /** The minute of the last value, in milliseconds since 1970. */
  readonly end: number
  readonly states: string
  readonly series: Readonly<Record<keyof Figures, readonly (number | null)[]>>
}
/** The past of a peer, oldest first. `lost` is the share of lost probes in percent, `ms` the round trip. */
export interface PeerPast {
  readonly end: number
  readonly lost: readonly (number | null)[]
  readonly ms: readonly (number | null)[]
}

// One byte per value. 255 is unknown. A round trip is kept with a precision of 5 %, from 10 µs to 40 s.
const UNKNOWN = 255
const [LEAST_MS, STEP] = [0.01, 1.062]

/** The byte of a round trip in milliseconds. */
export function byteOf(ms: number): number {
  return Math.min(Math.max(Math.round(Math.log(ms / LEAST_MS) / Math.log(STEP)), 0), UNKNOWN - 1)
}

/** The round trip of a byte in milliseconds, with two digits. Null for an unknown one. */
export function msOf(byte: number): number | null {
  return byte === UNKNOWN ? null : Number((LEAST_MS * STEP ** byte).toPrecision(2))
}

/** Keeps what was. A minute is the whole part of milliseconds since 1970 by 60,000. */
export class Past {
  /** 60 bytes of loss, then 60 bytes of round trips. The place in them is the minute modulo 60. */
  #peers = new Map<string, Uint8Array>()
  #states: Letter[] = Array.from({ length: DAY }, () => '-')
  #series = Object.fromEntries(SERIES.map((name) => [name, new Float32Array(DAY).fill(Number.NaN)])) as Record<
    keyof Figures,
    Float32Array
  >
  #minute: number | undefined

  /** Writes a minute down. Minutes between the last one and this one are unknown, such as those of a sleeping machine. */
  write(minute: number, state: Letter, figures: Figures, peers: ReadonlyMap<string, Row>): void {
    const before = this.#minute ?? minute - 1
    for (let gone = Math.max(before + 1, minute - DAY); gone <= minute; gone++) {
      this.#states[gone % DAY] = '-'
      for (const name of SERIES) this.#series[name][gone % DAY] = Number.NaN
      for (const bytes of this.#peers.values()) for (const at of placesOf(gone)) bytes[at] = UNKNOWN
    }
    this.#minute = minute
    this.#states[minute % DAY] = state
    for (const name of SERIES) this.#series[name][minute % DAY] = figures[name]
    for (const key of this.#peers.keys()) if (!peers.has(key)) this.#peers.delete(key)
    for (const [key, { sent = 0, lost = 0, ms }] of peers) {
      if (sent === 0) continue
      const bytes = this.#peers.get(key) ?? new Uint8Array(2 * HOUR).fill(UNKNOWN)
      this.#peers.set(key, bytes)
      const [atLost, atMs] = placesOf(minute)
      bytes[atLost] = Math.round((lost / sent) * 100)
      if (ms !== undefined && lost < sent) bytes[atMs] = byteOf(ms)
    }
  }

  /** The past of the node. Undefined in the first minute. */
  node(): NodePast | undefined {
    const last = this.#minute
    if (last === undefined) return undefined
    const places = Array.from({ length: DAY }, (_, i) => (last + 1 + i) % DAY)
    const values = (series: Float32Array) =>
      places.map((at) => (Number.isNaN(series[at]) ? null : (series[at] as number)))
    return {
      end: last * 60_000,
      states: places.map((at) => this.#states[at]).join(''),
      series: Object.fromEntries(
        SERIES.map((name) => [name, values(this.#series[name])]),
      ) as unknown as NodePast['series'],
    }
  }

  /** The sum of a value over the last whole minutes. Undefined when none of them is known. */
  sum(name: keyof Figures, minutes: number): number | undefined {
    const last = this.#minute
    if (last === undefined) return undefined
    const values = Array.from({ length: minutes }, (_, i) => this.#series[name][(last - i + DAY) % DAY] as number)
    const known = values.filter((value) => !Number.isNaN(value))
    return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : undefined
  }

  /** The past of a peer by its key. Undefined for a peer that was not probed. */
  peer(key: string): PeerPast | undefined {
    const [last, bytes] = [this.#minute, this.#peers.get(key)]
    if (last === undefined || !bytes) return undefined
    const minutes = Array.from({ length: HOUR }, (_, i) => placesOf(last + 1 + i))
    return {
      end: last * 60_000,
      lost: minutes.map(([at]) => (bytes[at] === UNKNOWN ? null : (bytes[at] as number))),
      ms: minutes.map(([, at]) => msOf(bytes[at] as number)),
    }
  }
}

function placesOf(minute: number): readonly [number, number] {
  return [minute % HOUR, HOUR + (minute % HOUR)]
}
