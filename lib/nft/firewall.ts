import { partName } from '../journal/journal.ts'
import type { Chain } from '../state/kinds/chain.ts'
import type { Element } from '../state/kinds/element.ts'
import type { Passage } from '../state/kinds/passage.ts'
import { isSix } from '../text/cidr.ts'
import { shown, ValueError } from '../text/errors.ts'
import { type Cidr, split } from '../text/ip.ts'
import { commentOf, type Owner } from '../text/owner.ts'
import { brief, type IfName } from '../text/values.ts'
import { isOwnChain, markBit } from './ruleset.ts'

/**
 * Who may open connections to a network's pods. `open`: every sender that the other rules of the node allow.
 * `same-bridge`: not pods on another bridge with such a policy. `isolated`: not pods on the same bridge either.
 */
export type Policy = 'open' | 'same-bridge' | 'isolated'

/** The chain with the admin's own rules. The configuration can name another chain. */
export const ADMIN = 'CNI-ADMIN'

/**
 * The elements of an attachment: its addresses, the jumps to an admin's chain with another name than CNI-ADMIN, and the
 * policy of its bridge. Other attachments may have the same elements.
 */
export function guarded(
  owner: Owner,
  addresses: readonly Cidr[],
  admin: string,
  policy: Policy,
  bridge: IfName | undefined,
): Element[] {
  const part = partName('firewall', owner)
  const element = (set: string, key: string, value?: string, of = commentOf(owner)): Element => ({
    kind: 'element',
    ns: 'host',
    set,
    key,
    ...(value === undefined ? {} : { value }),
    owner: of,
    part,
  })
  const own = addresses.flatMap((address) => {
    const { ip } = split(address)
    const family = isSix(address) ? 6 : 4
    return [element(`pods${family}`, ip), ...(admin === ADMIN ? [] : [element(`admin${family}`, ip, `jump ${admin}`)])]
  })
  if (policy === 'open' || bridge === undefined) return own
  // The comment of the element names the network alone, because the element outlives the pod that adds it.
  const shared = (set: string, key: string) => element(set, key, undefined, brief(owner.network))
  return [
    ...own,
    shared('isolating', `"${bridge}"`),
    shared(policy === 'isolated' ? 'apart' : 'together', `"${bridge}" . "${bridge}"`),
  ]
}

/** The passages through the FORWARD chain of iptables, one for each family of the addresses. All pods share them. */
export function passages(addresses: readonly Cidr[], admin: string, always: boolean): Passage[] {
  const families = ([4, 6] as const).filter((family) => addresses.some((address) => isSix(address) === (family === 6)))
  return families.map((family) => ({
    kind: 'passage',
    ns: 'host',
    family,
    admin,
    bit: markBit('firewall'),
    ...(always && { always }),
  }))
}

/** The admin's chain, when its name is not CNI-ADMIN. The elements of pods jump to it. */
export function adminChain(addresses: readonly Cidr[], admin: string): Chain[] {
  return admin === ADMIN || addresses.length === 0
    ? []
    : [{ kind: 'chain', ns: 'host', name: admin, rules: [], kept: true }]
}

/**
 * Reads `iptablesAdminChainName`: a chain name that nft and iptables accept. Empty means CNI-ADMIN. Throws ValueError.
 */
export function readAdmin(value: unknown): string {
  if (value === '' || value === ADMIN) return ADMIN
  // iptables takes at most 28 characters.
  if (typeof value !== 'string' || !/^[A-Za-z_][\w.-]{0,27}$/.test(value))
    throw new ValueError(
      `${shown(value)}: want the name of a chain: a letter, then letters, digits, "_", "." or "-", 28 at most`,
    )
  // Refuses names of small letters only, because plumb's own chains and the words of the nft language look like that.
  if (isOwnChain(value) || TAKEN.test(value))
    throw new ValueError(
      `${shown(value)}: it has another meaning to nft or iptables; want a name such as ${ADMIN} or my-admin`,
    )
  return value
}
const TAKEN =
  /^(INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING|ACCEPT|DROP|RETURN|REJECT|QUEUE|PLUMB-.*|CNI-FORWARD|CNI-ISOLATION-.*|cond[46]_.*)$/
