import { generator } from '../../support/random.ts'
import { type Choice, KEYS, makesSense, OF_LOOPBACK } from './keys.ts'

const NAMES = Object.keys(KEYS) as (keyof Choice)[]
/** So many scenes are drawn to see which pairs of values there can be. */
const DRAWN = 5000

/**
 * Scenes in which every value of every key meets every value of every other key that it makes sense with, at least
 * once, few of them. The same for the same seed. `newer` lets keys in that came after release 1.1.1 of the reference.
 */
export function pairwise(seed: number, newer: boolean): Choice[] {
  const drawn = draw(seed, newer)
  const left = new Map(drawn.flatMap((choice) => pairsOf(choice).map((pair) => [pair, choice] as const)))
  const chosen: Choice[] = []
  for (let next = left.values().next(); !next.done; next = left.values().next()) {
    const choice = climbed(next.value, newer, (pair) => left.has(pair))
    chosen.push(choice)
    for (const pair of pairsOf(choice)) left.delete(pair)
  }
  return chosen
}

// Changes one value after the other for one that brings more, as long as there is one.
function climbed(start: Choice, newer: boolean, isLeft: (pair: string) => boolean): Choice {
  let best = start
  for (let before: Choice | undefined; before !== best; ) {
    before = best
    for (const key of NAMES) {
      const others = valuesOf(key, newer).map((value) => ({ ...best, [key]: value }) as Choice)
      const gain = (choice: Choice) => pairsWith(choice, key).filter(isLeft).length
      for (const other of others.filter(makesSense)) if (gain(other) > gain(best)) best = other
    }
  }
  return best
}

/** The pairs of values that a scene holds. */
export function pairsOf(choice: Choice): string[] {
  return NAMES.flatMap((one, i) => NAMES.slice(i + 1).map((other) => pair(choice, one, other)))
}

function pairsWith(choice: Choice, key: keyof Choice): string[] {
  const at = NAMES.indexOf(key)
  return NAMES.flatMap((other, i) => (i === at ? [] : i < at ? pair(choice, other, key) : pair(choice, key, other)))
}

function pair(choice: Choice, one: keyof Choice, other: keyof Choice): string {
  return `${one} ${choice[one]}, ${other} ${choice[other]}`
}

function valuesOf(key: keyof Choice, newer: boolean): readonly string[] {
  return (KEYS[key] as readonly string[]).filter((value) => newer || !value.endsWith('+'))
}

/** Scenes drawn at random, the same for the same seed. */
export function draw(seed: number, newer: boolean, count = DRAWN): Choice[] {
  const next = generator(seed)
  const found: Choice[] = []
  while (found.length < count) {
    const drawn = NAMES.map((key) => {
      const values = valuesOf(key, newer)
      // Often what a scene without the key has, else hardly any would make sense.
      return [key, next() < 0.4 ? values[0] : values[Math.floor(next() * values.length)]] as const
    })
    const isLoopback = drawn.some(([, value]) => value === 'loopback')
    const choice = Object.fromEntries(
      drawn.map(([key, value]) => [key, isLoopback && !OF_LOOPBACK.includes(key) ? KEYS[key][0] : value]),
    ) as unknown as Choice
    if (makesSense(choice)) found.push(choice)
  }
  return found
}
