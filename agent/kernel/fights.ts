/**
 * Detects resources that need a repair again and again, because another program wants another state. Such a resource is
 * left unchanged for a pause that grows each time. All other resources are repaired as usual.
 */
export interface Fights {
  /**
   * Notes repaired resources, with their keys and their titles for people. Gives the longest pause that starts now, in
   * milliseconds.
   */
  note(what: readonly Fought[], now: number): number
  /** The keys of the resources that are left unchanged at this moment. */
  held(now: number): ReadonlySet<string>
  /**
   * The current fights, one sentence each. `isPending` says that a resource was changed again and waits for the end of
   * its pause.
   */
  current(now: number, isPending: (key: string) => boolean): string[]
  /** The number of the current fights. */
  count(now: number, isPending: (key: string) => boolean): number
}
/** A resource that was repaired. */
export interface Fought {
  readonly key: string
  readonly title: string
}

// Deletions by hand are no fight. A program that undoes a change reacts at once, so it reaches 20 repairs in 10 s. The
// pause begins with 200 ms and doubles up to 30 s.
const [MANY, WINDOW_MS, FIRST_MS, LONGEST_MS] = [20, 10_000, 200, 30_000]
/** The number of fights that are described one by one. */
const NAMED = 5

/** Makes a detector without any fights. */
export function watchFights(): Fights {
  const times = new Map<string, { at: number[]; pause: number; readonly title: string }>()
  const last = (at: readonly number[]) => at.at(-1) ?? 0
  const foughtNow = (now: number, isPending: (key: string) => boolean) =>
    [...times].filter(([key, { at, pause }]) => {
      return pause > 0 && now - last(at) <= (isPending(key) ? spanOf(pause) : WINDOW_MS)
    })
  return {
    note(what, now) {
      let longest = 0
      for (const { key, title } of what) {
        const seen = times.get(key) ?? { at: [], pause: 0, title }
        seen.at = [...seen.at.filter((at) => now - at < spanOf(seen.pause)), now]
        const isFight = seen.at.length >= (seen.pause === 0 ? MANY : 2)
        seen.pause = isFight ? Math.min(LONGEST_MS, Math.max(FIRST_MS, seen.pause * 2)) : 0
        times.set(key, seen)
        longest = Math.max(longest, seen.pause)
      }
      for (const [key, { at, pause }] of times) if (now - last(at) > spanOf(pause)) times.delete(key)
      return longest
    },
    held: (now) => new Set([...times].flatMap(([key, { at, pause }]) => (now - last(at) < pause ? [key] : []))),
    count: (now, isPending) => foughtNow(now, isPending).length,
    current(now, isPending) {
      const fought = foughtNow(now, isPending)
      const isChanged = 'changed by another program again and again'
      const texts = fought.slice(0, NAMED).map(([, { pause, title }]) => {
        return `${title} is ${isChanged}; it is put right every ${pause / 1000} s`
      })
      const more = fought.length - NAMED
      return more > 0 ? [...texts, `${more} more things are ${isChanged}`] : texts
    },
  }
}

// The next change comes after the pause, so the window is longer than the pause.
function spanOf(pause: number): number {
  return Math.max(WINDOW_MS, 1.25 * pause)
}
