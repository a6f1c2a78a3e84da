/** A stretch of time: how much was not as it should be at the worst moment, and how much was put right. */
export interface Bin {
  readonly drift: number
  readonly repairs: number
}
/** What has been seen since a moment, in stretches of one length. */
export interface History {
  /** Milliseconds since 1970. */
  readonly start: number
  readonly binMs: number
  readonly bins: readonly Bin[]
  /** What is not as it should be now: a stretch remembers its worst moment, and that may be over. */
  readonly drift: number
}

const BINS = 120
const FIRST_MS = 1000

/** Nothing seen yet. */
export function begin(start: number): History {
  return { start, binMs: FIRST_MS, bins: [], drift: 0 }
}

/** A history and one moment more. What lasts is carried on: drift is what it was until it is told otherwise. When there are too many stretches, two and two become one. */
export function add(history: History, at: number, { drift, repairs }: Bin): History {
  const { start, binMs, bins } = history
  const index = Math.max(Math.floor((at - start) / binMs), bins.length - 1, 0)
  if (index >= BINS) return add(halved(history), at, { drift, repairs })
  const between = Array.from({ length: Math.max(index - bins.length, 0) }, () => ({ drift: history.drift, repairs: 0 }))
  const here = bins[index] ?? { drift: index > 0 ? history.drift : 0, repairs: 0 }
  return { start, binMs, drift, bins: [...bins.slice(0, index), ...between, { drift: Math.max(here.drift, drift), repairs: here.repairs + repairs }] }
}

function halved({ bins, ...history }: History): History {
  const pairs = bins.flatMap((bin, i) => (i % 2 === 0 ? [{ drift: Math.max(bin.drift, bins[i + 1]?.drift ?? 0), repairs: bin.repairs + (bins[i + 1]?.repairs ?? 0) }] : []))
  return { ...history, binMs: history.binMs * 2, bins: pairs }
}
