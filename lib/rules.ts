import ruleset from './ruleset.nft' with { type: 'text' }

/** The nft line that shows what `lostRules` reads. With `nft -t` it is without the elements of sets, of which there may be many. */
export const SHOW_RULES = 'list table inet plumb'

/** Which chains of lib/ruleset.nft have fewer or more rules, or are missing, in what nft printed of the table: one phrase each. An element does nothing without the rules that look it up. */
export function lostRules(printed: string): string[] {
  const is = chains(printed)
  return [...chains(ruleset)].filter(([name, count]) => is.get(name) !== count).map(([name, count]) => `nft chain ${name} has ${is.get(name) ?? 0} rules, want ${count}`)
}

// Each chain's number of rules, in our file and in what nft prints alike.
function chains(text: string): Map<string, number> {
  const found = [...text.matchAll(/^\tchain (\w+) \{\n([^}]*)\}/gm)]
  return new Map(found.map(([, name = '', body = '']) => [name, body.split('\n').filter((line) => line.trim() !== '' && !/^\s*(type|#)/.test(line)).length]))
}
