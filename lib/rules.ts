import type { Run } from './plugin.ts'
import ruleset from './ruleset.nft' with { type: 'text' }

/** Which chains of lib/ruleset.nft have fewer or more rules in the node, or are missing: one phrase each. An element does nothing without the rules that look it up. */
export function lostRules(run: Run): string[] {
  const is = run.rules?.()
  if (!is) return []
  return [...chains(ruleset)].filter(([name, { rules }]) => (is.get(name) ?? 0) !== rules).map(([name, { rules }]) => `nft chain ${name} has ${is.get(name) ?? 0} rules, want ${rules}`)
}

/** Whether nothing of them can be lost, asked in a quarter of the time. False also while another call loads them. */
export function isWhole(run: Run): boolean {
  const is = run.uses?.()
  if (!is) return false
  for (const [name, { uses }] of chains(ruleset)) if (is.get(name) !== uses) return false
  return true
}

/** Whether a chain of our table is one of lib/ruleset.nft, this version's or another's: those have names of small letters alone, which networks' chains and an admin's have not. */
export function isOwnChain(name: string): boolean {
  for (const letter of name) if (letter < 'a' || letter > 'z') return false
  return name !== ''
}

interface Chain {
  rules: number
  /** Those, and the jumps to it. */
  uses: number
}

// Line by line, for to compile an expression takes a plugin longer.
function chains(text: string): Map<string, Chain> {
  const found = new Map<string, Chain>()
  const jumps: string[] = []
  let chain: Chain | undefined
  for (const line of text.split('\n')) {
    if (line.startsWith('\tchain ')) {
      const name = line.slice('\tchain '.length, line.indexOf(' {'))
      chain = { rules: 0, uses: 0 }
      // An admin's has whatever that puts there.
      if (isOwnChain(name)) found.set(name, chain)
    } else if (line === '\t}') chain = undefined
    else if (chain && line.startsWith('\t\t') && !line.startsWith('\t\ttype ') && !line.startsWith('\t\t#')) {
      chain.rules++
      chain.uses++
      if (line.includes('jump ') || line.includes('goto ')) jumps.push(line.slice(line.lastIndexOf(' ') + 1))
    }
  }
  for (const name of jumps) {
    const to = found.get(name)
    if (to) to.uses++
  }
  return found
}
