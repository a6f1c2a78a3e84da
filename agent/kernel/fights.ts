/** Notices that the same things have to be put right again and again: another program wants them otherwise. Each is then left as it is for a while, longer each time; all else goes on. */
export interface Fights {
  /** These had to be put right, named by their keys and for people. How long the one that is left longest is left as it is from now on, in milliseconds. */
  note(what: readonly Fought[], now: number): number
  /** What is left as it is at this moment. */
  held(now: number): ReadonlySet<string>
  /** What is fought over, one sentence each. `isPending` says that something has been changed again, and a pause is waited for. */
  current(now: number, isPending: (key: string) => boolean): string[]
}
/** What had to be put right. */
export interface Fought {
  readonly key: string
  readonly title: string
}

// Somebody who deletes things by hand is no fight: a program that undoes what it sees is there again at once.
const [MANY, WINDOW_MS, FIRST_MS, LONGEST_MS] = [20, 10_000, 200, 30_000]
/** So many are told of one by one. */
const TOLD = 5

/** Makes one. */
export function watchFights(): Fights {
  const times = new Map<string, { at: number[]; pause: number; readonly title: string }>()
  const last = (at: readonly number[]) => at.at(-1) ?? 0
  return {
    note(what, now) {
      let longest = 0
      for (const { key, title } of what) {
        const seen = times.get(key) ?? { at: [], pause: 0, title }
        seen.at = [...seen.at.filter((at) => now - at < spanOf(seen.pause)), now]
        seen.pause = seen.at.length < MANY && seen.pause === 0 ? 0 : seen.at.length < 2 ? 0 : Math.min(LONGEST_MS, Math.max(FIRST_MS, seen.pause * 2))
        times.set(key, seen)
        longest = Math.max(longest, seen.pause)
      }
      for (const [key, { at, pause }] of times) if (now - last(at) > spanOf(pause)) times.delete(key)
      return longest
    },
    held: (now) => new Set([...times].flatMap(([key, { at, pause }]) => (now - last(at) < pause ? [key] : []))),
    current(now, isPending) {
      const fought = [...times].flatMap(([key, { at, pause, title }]) =>
        pause > 0 && now - last(at) <= (isPending(key) ? spanOf(pause) : WINDOW_MS) ? [`${title} is changed by another program again and again; it is put right every ${pause / 1000} s`] : [],
      )
      return fought.length > TOLD ? [...fought.slice(0, TOLD), `${fought.length - TOLD} more things are changed by another program again and again`] : fought
    },
  }
}

// The next time comes when the pause is over.
function spanOf(pause: number): number {
  return Math.max(WINDOW_MS, 1.25 * pause)
}
