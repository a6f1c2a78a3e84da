import type { Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** A chain of a network, for rules of its own; its elements lead there. */
export interface Chain {
  readonly kind: 'chain'
  readonly ns: Netns
  readonly name: string
  readonly rules: readonly string[]
  /** Its rules are somebody else's: it is only made. */
  readonly kept?: true
}

/** Chains of a network in our table, for the few rules that cannot be elements; written anew each time. */
export const chain: Handler<Chain> = {
  tool: 'nft',
  title: ({ name }) => `nft chain ${name}`,
  purpose,
  key: ({ ns, name }) => `chain ${ns} ${name}`,
  put: ({ name, rules, kept }) => (kept ? [{ text: `add chain inet plumb ${name}` }] : [{ text: `add chain inet plumb ${name}` }, { text: `flush chain inet plumb ${name}` }, ...rules.map((rule) => ({ text: `add rule inet plumb ${name} ${rule}` }))]),
  drop: () => [],
  ask: ({ name }) => `list chain inet plumb ${name}`,
  // As many rules as there should be: nft prints them in its own words.
  read: (row, want) => (String(row).match(/^\t\t/gm)?.length === want.rules.length || want.kept ? want : undefined),
}

function purpose({ name, kept }: Chain, { text }: Line): string {
  if (kept) return "the admin's chain, whose rules are left alone"
  if (text.startsWith('add chain')) return `the chain of the network's conditions`
  return text.startsWith('flush') ? 'it is written anew each time' : `what meets the conditions is led to its pod, IPv${name.slice('cond'.length)[0]}`
}
