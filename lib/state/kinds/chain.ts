import type { Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** An nft chain in table `inet plumb`, with its own rules. Elements of verdict maps jump to it. */
export interface Chain {
  readonly kind: 'chain'
  readonly ns: Netns
  readonly name: string
  readonly rules: readonly string[]
  /** The rules belong to the admin. plumb only makes the chain. */
  readonly kept?: true
}

/**
 * nft chains in the table `inet plumb`, for the few rules that cannot be elements. Each `put` flushes the chain and
 * writes its rules again.
 */
export const chain: Handler<Chain> = {
  tool: 'nft',
  title: ({ name }) => `nft chain ${name}`,
  purpose,
  key: ({ ns, name }) => `chain ${ns} ${name}`,
  put({ name, rules, kept }) {
    const add = { text: `add chain inet plumb ${name}` }
    if (kept) return [add]
    const flush = { text: `flush chain inet plumb ${name}` }
    return [add, flush, ...rules.map((rule) => ({ text: `add rule inet plumb ${name} ${rule}` }))]
  },
  drop: () => [],
  ask: ({ name }) => `list chain inet plumb ${name}`,
  // nft prints rules in other words than plumb wrote them. So only the number of rules is compared.
  read: (row, want) => (String(row).match(/^\t\t/gm)?.length === want.rules.length || want.kept ? want : undefined),
}

function purpose({ name, kept }: Chain, { text }: Line): string {
  if (kept) return "the admin's chain, whose rules are left alone"
  if (text.startsWith('add chain')) return `the chain of the network's conditions`
  return text.startsWith('flush')
    ? 'it is written anew each time'
    : `what meets the conditions is led to its pod, IPv${name.slice('cond'.length)[0]}`
}
