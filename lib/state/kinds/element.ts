import type { Element, Handler } from '../resource.ts'

/** Elements of the sets and maps in lib/nft/sets.nft. Adding one that is there is no error; removing one that is not there is one, as nft 1.0.6 has no `destroy`. */
export const element: Handler<Element> = {
  tool: 'nft',
  key: ({ ns, set, key }) => `element ${ns} ${set} ${key}`,
  put: (want) => (want.moment === 'removed' ? [] : [{ text: addition(want) }]),
  drop: (want) => (want.moment === 'made' ? [] : [{ text: want.moment ? addition(want) : removal(want), unless: /No such file/ }]),
  ask: ({ set, key, moment }) => (moment ? '' : `get element inet plumb ${set} { ${key} }`),
  // `elements = { KEY comment "…" : VALUE }`
  read: (row, want) => (want.value === undefined ? want : { ...want, value: /elements = \{ .*? : ([^{}]*?) \}/.exec(String(row))?.[1] ?? '' }),
}

/** The line that adds an element: no error when it is there. */
export function addition({ set, key, value, owner, moment }: Element): string {
  // Said outright the second begins anew for one that is there (Linux 6.12; before, it stays what is left of its first).
  return `add element inet plumb ${set} { ${key}${moment ? ' timeout 1s expires 1s' : ''} comment "${owner}"${value === undefined ? '' : ` : ${value}`} }`
}

/** The line that removes an element: an error, for the whole script, when it is not there. */
export function removal({ set, key }: Element): string {
  return `delete element inet plumb ${set} { ${key} }`
}
