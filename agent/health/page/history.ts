/** A period of time, with the highest drift (kernel objects not as wanted) and the number of repairs. */
export interface Bin {
  readonly drift: number
  readonly repairs: number
}
/** The observations since a moment, in periods of equal length. */
export interface History {
  /** Milliseconds since 1970. */
  readonly start: number
  readonly binMs: number
  readonly bins: readonly Bin[]
  /** The current drift. It can be lower than the drift of the last period, because a period keeps its highest value. */
  readonly drift: number
}

const BINS = 120
const FIRST_MS = 1000

/** Makes an empty history. `start` is in milliseconds since 1970. */
export function begin(start: number): History {
  return { start, binMs: FIRST_MS, bins: [], drift: 0 }
}

/**
 * Adds an observation and returns the new history. Periods without an observation get the last known drift.
 * When there are too many periods, it merges them in pairs.
 */
export function add(history: History, at: number, { drift, repairs }: Bin): History {
  const { start, binMs, bins } = history
  const index = Math.max(Math.floor((at - start) / binMs), bins.length - 1, 0)
  if (index >= BINS) return add(halved(history), at, { drift, repairs })
  const between = Array.from({ length: Math.max(index - bins.length, 0) }, () => ({ drift: history.drift, repairs: 0 }))
  const here = bins[index] ?? { drift: index > 0 ? history.drift : 0, repairs: 0 }
  return { start, binMs, drift, bins: [...bins.slice(0, index), ...between, joined(here, { drift, repairs })] }
}

function joined(one: Bin, other: Bin): Bin {
  return { drift: Math.max(one.drift, other.drift), repairs: one.repairs + other.repairs }
}

function halved({ bins, ...history }: History): History {
  const pairs = bins.flatMap((bin, i) => (i % 2 === 0 ? [joined(bin, bins[i + 1] ?? { drift: 0, repairs: 0 })] : []))
  return { ...history, binMs: history.binMs * 2, bins: pairs }
}
