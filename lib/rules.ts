import type { Run } from './plugin.ts'
import ruleset from './ruleset.nft' with { type: 'text' }

/** Which chains of lib/ruleset.nft have fewer or more rules in the node, or are missing: one phrase each. An element does nothing without the rules that look it up. */
export function lostRules(run: Run): string[] {
  const is = run.rules?.()
  if (!is) return []
  return [...chains(ruleset)].filter(([name, count]) => (is.get(name) ?? 0) !== count).map(([name, count]) => `nft chain ${name} has ${is.get(name) ?? 0} rules, want ${count}`)
}

/** Whether a chain of our table is one of lib/ruleset.nft, this version's or another's: those have names of small letters alone, which networks' chains and an admin's have not. */
export function isOwnChain(name: string): boolean {
  return /^[a-z]+$/.test(name)
}

function chains(text: string): Map<string, number> {
  const found = [...text.matchAll(/^\tchain (\w+) \{\n([^}]*)\}/gm)]
  return new Map(found.map(([, name = '', body = '']) => [name, body.split('\n').filter((line) => line.trim() !== '' && !/^\s*(type|#)/.test(line)).length]))
}
