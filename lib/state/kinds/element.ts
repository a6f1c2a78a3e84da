import type { PartName } from '../../text/owner.ts'
import type { Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** An element of a set or map of lib/nft/sets.nft. `owner` becomes the comment of the element. */
export interface Element {
  readonly kind: 'element'
  readonly ns: Netns
  readonly set: string
  readonly key: string
  readonly value?: string
  readonly owner: string
  /**
   * The set forgets the element after 1 s. It is added when its attachment is made (`made`) or removed (`removed`).
   * Nobody looks for it afterwards.
   */
  readonly moment?: 'made' | 'removed'
  /** The part of the journal that owns an element. Several may own the same element. The last one removes it. */
  readonly part?: PartName
}

/**
 * Elements of the sets and maps in lib/nft/sets.nft. Adding an existing element is no error. Removing a missing element
 * is an error, because nft 1.0.6 has no `destroy`.
 */
export const element: Handler<Element> = {
  tool: 'nft',
  title: ({ set, key }) => `nft element ${key} of ${set}`,
  purpose,
  key: ({ ns, set, key }) => `element ${ns} ${set} ${key}`,
  put: (want) => (want.moment === 'removed' ? [] : [{ text: addition(want) }]),
  drop: (want) =>
    want.moment === 'made' ? [] : [{ text: want.moment ? addition(want) : removal(want), unless: /No such file/ }],
  ask: ({ set, key, moment }) => (moment ? '' : `get element inet plumb ${set} { ${key} }`),
  // `elements = { KEY comment "…" : VALUE }`
  read: (row, want) =>
    want.value === undefined
      ? want
      : { ...want, value: /elements = \{ .*? : ([^{}]*?) \}/.exec(String(row))?.[1] ?? '' },
}

/** The line that adds an element. An existing element is no error. */
export function addition({ set, key, value, owner, moment }: Element): string {
  // With `expires 1s` the second starts again for an existing element (Linux 6.12). Older kernels keep the time left.
  const timeout = moment ? ' timeout 1s expires 1s' : ''
  const data = value === undefined ? '' : ` : ${value}`
  return `add element inet plumb ${set} { ${key}${timeout} comment "${owner}"${data} }`
}

/** The line that removes an element. A missing element fails the whole script. */
export function removal({ set, key }: Element): string {
  return `delete element inet plumb ${set} { ${key} }`
}

function purpose({ set, key, value, moment }: Element, _: Line, gone: boolean): string {
  const about =
    ELEMENTS.find(([prefix]) => set.startsWith(prefix))?.[1](key.split(' . '), value) ?? `an element of ${set}`
  return gone && !moment ? `no longer: ${about}` : about
}

function hostPort(key: readonly string[]): string {
  return `host port ${key.at(-1)}/${key.at(-2)}${key.length > 2 ? ` of ${key[0]}` : ''}`
}

function podPort([protocol, ip, port]: readonly string[]): string {
  return `${ip} port ${port}/${protocol}`
}

function late(sender: string, port: string | undefined): string {
  return `for a second: what ${sender} still sends from UDP port ${port} makes no new connection`
}

const SNAT = "take the node's address where no answer would come back"

// The phrases for `purpose`, by the prefix of a set's name in lib/nft/sets.nft. The first match counts.
const ELEMENTS: readonly (readonly [string, (key: readonly string[], value: string | undefined) => string])[] = [
  ['masqall', (key) => `every client of ${podPort(key)} takes the node's address (masqAll)`],
  ['masq', ([ip]) => `what ${ip} sends out of its subnet takes the node's address (ipMasq)`],
  ['local', ([subnet]) => `within ${subnet} packets are left as they are, but to reach a host port`],
  ['self', ([ip]) => `${ip} is its own only neighbour, for the host ports that lead to it`],
  ['snat', (key) => `clients beside ${podPort(key)}, and the node's own, ${SNAT}`],
  ['gateways', ([ip]) => `only pods reach ${ip}, the gateway on the link of each routed pod`],
  ['given', ([port]) => late('a process of the node', port)],
  ['left', ([ip, port]) => late(`${ip}`, port)],
  ['ports', (key, value) => `${hostPort(key)} leads to ${value?.replace(' . ', ' port ')}`],
  ['pods', ([ip]) => `what ${ip} sends passes the node, and so do the answers`],
  ['admin', ([ip], value) => `an admin's chain, ${value?.replace('jump ', '')}, looks at packets of ${ip} first`],
  ['isolating', ([bridge]) => `nothing passes between ${bridge} and other bridges with such a policy`],
  ['together', ([bridge]) => `pods on ${bridge} reach each other`],
  ['apart', ([bridge]) => `pods on ${bridge} do not reach each other`],
  ['conditional', (key) => `${hostPort(key)} leads there on the network's conditions`],
]
