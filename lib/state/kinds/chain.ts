import type { Chain, Handler } from '../resource.ts'

/** Chains of a network in our table, for the few rules that cannot be elements; written anew each time. */
export const chain: Handler<Chain> = {
  tool: 'nft',
  key: ({ ns, name }) => `chain ${ns} ${name}`,
  put: ({ name, rules, kept }) => (kept ? [{ text: `add chain inet plumb ${name}` }] : [{ text: `add chain inet plumb ${name}` }, { text: `flush chain inet plumb ${name}` }, ...rules.map((rule) => ({ text: `add rule inet plumb ${name} ${rule}` }))]),
  drop: () => [],
  ask: ({ name }) => `list chain inet plumb ${name}`,
  // As many rules as there should be: nft prints them in its own words.
  read: (row, want) => (String(row).match(/^\t\t/gm)?.length === want.rules.length || want.kept ? want : undefined),
}
