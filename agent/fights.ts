/** Notices that the same things have to be put right again and again: another program wants them otherwise. */
export interface Fights {
  /** Something had to be put right; how long to wait before the next time, in milliseconds. */
  note(keys: readonly string[], now: number): number
  /** What is fought over at the moment, one sentence each. `waits` says that something has to be put right, and a pause is waited for first. */
  current(now: number, waits: boolean): string[]
}

// Somebody who deletes things by hand is no fight: a program that undoes what it sees is there again at once.
const [MANY, WINDOW_MS, FIRST_MS, LONGEST_MS] = [20, 10_000, 200, 30_000]

/** Makes one. */
export function watchFights(): Fights {
  const times = new Map<string, { at: number[]; pause: number }>()
  return {
    note(keys, now) {
      let longest = 0
      for (const key of keys) {
        const seen = times.get(key) ?? { at: [], pause: 0 }
        seen.at = [...seen.at.filter((at) => now - at < spanOf(seen.pause)), now]
        seen.pause = seen.at.length < MANY && seen.pause === 0 ? 0 : seen.at.length < 2 ? 0 : Math.min(LONGEST_MS, Math.max(FIRST_MS, seen.pause * 2))
        times.set(key, seen)
        longest = Math.max(longest, seen.pause)
      }
      for (const [key, { at, pause }] of times) if (now - (at.at(-1) ?? 0) > spanOf(pause)) times.delete(key)
      return longest
    },
    current(now, waits) {
      return [...times].flatMap(([key, { at, pause }]) => (pause > 0 && now - (at.at(-1) ?? 0) <= (waits ? spanOf(pause) : WINDOW_MS) ? [`${key} is changed by another program again and again; it is put right every ${pause / 1000} s`] : []))
    },
  }
}

// The next time comes when the pause is over.
function spanOf(pause: number): number {
  return Math.max(WINDOW_MS, 1.25 * pause)
}
