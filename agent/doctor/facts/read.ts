import { run } from '../../../lib/os/exec.ts'
import { type Fact, type FactSources, factsOf, NotRead, type Reading } from './facts.ts'
import { FACTS, type Facts } from './index.ts'

/**
 * Reads the facts of this node and changes nothing. Takes about a second, because counters are read twice. Never
 * throws: a fact that cannot be read throws NotRead at its use.
 */
export async function readFacts(places: FactSources): Promise<Facts> {
  const all = Object.values<Fact<unknown>>(FACTS)
  const found = new Map<Fact<unknown>, Promise<PromiseSettledResult<unknown>>>()
  const made = new Map<() => unknown, Promise<unknown>>()
  const others = Promise.withResolvers<void>()
  const settledOf = (fact: Fact<unknown>) => once(found, fact, () => settled(() => fact.read(reading)))
  const reading: Reading = {
    run,
    places,
    of: async (fact) => known(await settledOf(fact)) as never,
    maybe: async (fact) => valueIn(await settledOf(fact)) as never,
    once: (read) => once(made, read, async () => read()) as never,
    others: others.promise,
  }
  // The counters are the first to be read, and the last.
  const last = all.filter(({ isLast }) => isLast).map(settledOf)
  await Promise.all(all.filter(({ isLast }) => !isLast).map(settledOf))
  others.resolve()
  await Promise.all(last)
  const results = new Map<Fact<unknown>, PromiseSettledResult<unknown>>()
  for (const fact of all) results.set(fact, await settledOf(fact))
  return factsOf<Facts>(Object.keys(FACTS) as (keyof Facts)[], (name) => known(results.get(FACTS[name]) as never))
}

function once<Key, Value>(made: Map<Key, Value>, key: Key, make: () => Value): Value {
  const value = made.get(key) ?? make()
  made.set(key, value)
  return value
}

async function settled(work: () => unknown): Promise<PromiseSettledResult<unknown>> {
  const [one] = await Promise.allSettled([Promise.resolve().then(work)])
  return one
}

function valueIn(found: PromiseSettledResult<unknown>): unknown {
  return found.status === 'fulfilled' ? found.value : undefined
}

// Throws NotRead for what could not be read.
function known(found: PromiseSettledResult<unknown>): unknown {
  if (found.status === 'fulfilled') return found.value
  const cause = found.reason as Error
  throw new NotRead(cause.message, { cause })
}
