/** How long steps of a kind took. `buckets[i]` counts those of at most `bounds[i]` seconds. `sum` is in seconds. */
export interface Durations {
  readonly count: number
  readonly sum: number
  readonly buckets: readonly number[]
}

/** No durations yet, for these bounds. */
export function noDurations(bounds: readonly number[]): Durations {
  return { count: 0, sum: 0, buckets: bounds.map(() => 0) }
}

/** Adds a duration in seconds to a histogram with these bounds. Returns the new histogram. */
export function withDuration(
  { count, sum, buckets }: Durations,
  seconds: number,
  bounds: readonly number[],
): Durations {
  return {
    count: count + 1,
    sum: sum + seconds,
    buckets: buckets.map((n, i) => n + (seconds <= (bounds[i] as number) ? 1 : 0)),
  }
}
