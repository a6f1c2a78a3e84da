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
  for (const letter of name) if (letter < 'a' || letter > 'z') return false
  return name !== ''
}

// Line by line, for to compile an expression takes a plugin longer.
function chains(text: string): Map<string, number> {
  const found = new Map<string, number>()
  let name = ''
  for (const line of text.split('\n')) {
    if (line.startsWith('\tchain ')) {
      name = line.slice('\tchain '.length, line.indexOf(' {'))
      // An admin's has whatever that puts there.
      if (isOwnChain(name)) found.set(name, 0)
      else name = ''
    } else if (line === '\t}') name = ''
    else if (name !== '' && line.startsWith('\t\t') && !line.startsWith('\t\ttype ') && !line.startsWith('\t\t#')) found.set(name, (found.get(name) as number) + 1)
  }
  return found
}
