import { run } from '../../lib/os/exec.ts'
import type { Netns } from '../../lib/text/values.ts'
import { refusals } from './seen.ts'
import type { Sight } from './sights.ts'
import type { TracedNamespace } from './watch.ts'

/**
 * The text of a rule, as nft lists it without the elements of sets. Without the values of its counter, which differ
 * from call to call. Undefined when the rule is gone.
 */
export async function ruleTextOf(
  { family, table, chain, handle }: Pick<Sight, 'family' | 'table' | 'chain' | 'handle'>,
  ns: Netns,
): Promise<string | undefined> {
  if (handle === undefined) return undefined
  const { status, stdout } = await run(['nft', '-t', '-a', 'list', 'chain', family, table, chain], '', ns)
  if (status !== 0) return undefined
  const line = stdout.split('\n').find((one) => one.endsWith(` # handle ${handle}`))
  return line
    ?.replace(/ # handle \d+$/, '')
    .replace(/\bcounter packets \d+ bytes \d+ ?/, '')
    .trim()
}

/** The texts of the rules that dropped something. Throws ExecError. */
export async function ruleTexts(
  sights: readonly Sight[],
  places: readonly TracedNamespace[],
): Promise<Map<Sight, string>> {
  const texts = new Map<Sight, string>()
  for (const one of refusals(sights)) {
    const text = await ruleTextOf(one, places.find(({ name }) => name === one.place)?.ns ?? 'host')
    if (text !== undefined) texts.set(one, text)
  }
  return texts
}
