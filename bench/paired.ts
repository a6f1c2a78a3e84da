/** What one run of a program took: time from start to end, CPU of it and its children, both in milliseconds. */
export interface Sample {
  readonly ms: number
  readonly cpuMs: number
}

/** The middle of some figures; of an even number, the mean of the two in the middle. */
export function median(figures: readonly number[]): number {
  const sorted = [...figures].sort((a, b) => a - b)
  const at = (sorted.length - 1) / 2
  return ((sorted[Math.floor(at)] ?? Number.NaN) + (sorted[Math.ceil(at)] ?? Number.NaN)) / 2
}

/**
 * Where the median of all that could be measured lies, 95 % sure, by these figures: the sign test. Of fewer than six
 * figures, their ends.
 */
export function medianRange(figures: readonly number[]): [least: number, most: number] {
  const sorted = [...figures].sort((a, b) => a - b)
  const { length } = sorted
  const rank = Math.max(Math.floor((length - 1.96 * Math.sqrt(length)) / 2), 0)
  return [sorted[rank] ?? Number.NaN, sorted[length - 1 - rank] ?? Number.NaN]
}

/**
 * The pause after each piece of work. A removed link and a removed element of nft keep the kernel busy for some 20 ms
 * after the DEL has ended, which the next side would pay.
 */
const PAUSE_MS = 40

/**
 * Measures things against each other: `times` rounds, in each every thing once, each round beginning with another. A
 * thing with a `share` below 1 sits out the rest of the rounds. What the machine does meanwhile meets all alike.
 */
export function paired<T extends object>(
  things: readonly (T & { readonly share?: number })[],
  times: number,
  work: (thing: T, round: number) => readonly Sample[],
): Map<T, Sample[][]> {
  const samples = new Map<T, Sample[][]>(things.map((thing) => [thing, []]))
  const paused = (thing: T, round: number) => {
    const done = work(thing, round)
    Bun.sleepSync(PAUSE_MS)
    return done
  }
  // One round that does not count: code and data come into the caches, an index is built.
  for (const thing of things) paused(thing, 0)
  for (let round = 1; round <= times; round++) {
    for (let i = 0; i < things.length; i++) {
      const thing = things[(i + round) % things.length] as (typeof things)[number]
      const { share = 1 } = thing
      if (Math.floor(round * share) > Math.floor((round - 1) * share))
        samples.get(thing)?.push([...paused(thing, round)])
    }
  }
  return samples
}
