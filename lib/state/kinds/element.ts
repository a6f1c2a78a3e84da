import type { PartName } from '../../text/owner.ts'
import type { Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** An element of a set or map of lib/nft/sets.nft. `owner` becomes its comment. */
export interface Element {
  readonly kind: 'element'
  readonly ns: Netns
  readonly set: string
  readonly key: string
  readonly value?: string
  readonly owner: string
  /** Its set forgets it after a moment: it is added when what it belongs to is made, or when that is removed, and never looked for. */
  readonly moment?: 'made' | 'removed'
  /** Whose it is, for one that several attachments may have at once: it goes with the last of them. */
  readonly part?: PartName
}

/** Elements of the sets and maps in lib/nft/sets.nft. Adding one that is there is no error; removing one that is not there is one, as nft 1.0.6 has no `destroy`. */
export const element: Handler<Element> = {
  tool: 'nft',
  title: ({ set, key }) => `nft element ${key} of ${set}`,
  purpose,
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

function purpose({ set, key, value, moment }: Element, _: Line, gone: boolean): string {
  const about = ELEMENTS.find(([prefix]) => set.startsWith(prefix))?.[1](key.split(' . '), value) ?? `an element of ${set}`
  return gone && !moment ? `no longer: ${about}` : about
}

function hostPort(key: readonly string[]): string {
  return `host port ${key.at(-1)}/${key.at(-2)}${key.length > 2 ? ` of ${key[0]}` : ''}`
}

// By the beginning of the set's name in lib/nft/sets.nft.
const ELEMENTS: readonly (readonly [string, (key: readonly string[], value: string | undefined) => string])[] = [
  ['masqall', ([protocol, ip, port]) => `every client of ${ip} port ${port}/${protocol} takes the node's address (masqAll)`],
  ['masq', ([ip]) => `what ${ip} sends out of its subnet takes the node's address (ipMasq)`],
  ['local', ([subnet]) => `within ${subnet} packets are left as they are, but to reach a host port`],
  ['self', ([ip]) => `${ip} is its own only neighbour, for the host ports that lead to it`],
  ['snat', ([protocol, ip, port]) => `clients beside ${ip} port ${port}/${protocol}, and the node's own, take the node's address where no answer would come back`],
  ['given', ([port]) => `for a second: what a process of the node still sends from UDP port ${port} makes no new connection`],
  ['left', ([ip, port]) => `for a second: what ${ip} still sends from UDP port ${port} makes no new connection`],
  ['ports', (key, value) => `${hostPort(key)} leads to ${value?.replace(' . ', ' port ')}`],
  ['pods', ([ip]) => `what ${ip} sends passes the node, and so do the answers`],
  ['admin', ([ip], value) => `an admin's chain, ${value?.replace('jump ', '')}, looks at packets of ${ip} first`],
  ['isolating', ([bridge]) => `nothing passes between ${bridge} and other bridges with such a policy`],
  ['together', ([bridge]) => `pods on ${bridge} reach each other`],
  ['apart', ([bridge]) => `pods on ${bridge} do not reach each other`],
  ['conditional', (key) => `${hostPort(key)} leads there on the network's conditions`],
]
