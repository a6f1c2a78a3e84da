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

/** Who may open connections to a network's pods: anybody whom the node's other rules let, or nobody on another bridge with such a policy; with `isolated` nor anybody on the same bridge. */
export type Policy = 'open' | 'same-bridge' | 'isolated'

/** Where an admin's own rules stand unless the configuration names another chain. */
export const ADMIN = 'CNI-ADMIN'

/** The elements of an attachment: its addresses, what a chain of an admin of another name than usual looks at, and the policy of its bridge. Each may be another attachment's, too. */
export function guarded(owner: Owner, addresses: readonly Cidr[], admin: string, policy: Policy, bridge: IfName | undefined): Element[] {
  const part = partName('firewall', owner)
  const element = (set: string, key: string, value?: string, of = commentOf(owner)): Element => ({ kind: 'element', ns: 'host', set, key, ...(value === undefined ? {} : { value }), owner: of, part })
  const own = addresses.flatMap((address) => {
    const { ip } = split(address)
    const family = isSix(address) ? 6 : 4
    return [element(`pods${family}`, ip), ...(admin === ADMIN ? [] : [element(`admin${family}`, ip, `jump ${admin}`)])]
  })
  if (policy === 'open' || bridge === undefined) return own
  // It outlives the pod that brought it.
  const shared = (set: string, key: string) => element(set, key, undefined, brief(owner.network))
  return [...own, shared('isolating', `"${bridge}"`), shared(policy === 'isolated' ? 'apart' : 'together', `"${bridge}" . "${bridge}"`)]
}

/** The way through iptables' FORWARD chain for each family of the addresses, which all pods share. */
export function passages(addresses: readonly Cidr[], admin: string, always: boolean): Passage[] {
  const families = ([4, 6] as const).filter((family) => addresses.some((address) => isSix(address) === (family === 6)))
  return families.map((family) => ({ kind: 'passage', ns: 'host', family, admin, bit: markBit('firewall'), ...(always && { always }) }))
}

/** An admin's chain of another name than usual: pods' elements lead to it. */
export function adminChain(addresses: readonly Cidr[], admin: string): Chain[] {
  return admin === ADMIN || addresses.length === 0 ? [] : [{ kind: 'chain', ns: 'host', name: admin, rules: [], kept: true }]
}

/** `iptablesAdminChainName`: a name that a chain may have in nft and in iptables alike; empty is the usual one. Throws ValueError. */
export function readAdmin(value: unknown): string {
  if (value === '' || value === ADMIN) return ADMIN
  // 28 characters are the most that iptables takes.
  if (typeof value !== 'string' || !/^[A-Za-z_][\w.-]{0,27}$/.test(value)) throw new ValueError(`${shown(value)}: want the name of a chain: a letter, then letters, digits, "_", "." or "-", 28 at most`)
  // Our own chains have names of small letters alone, as words of nft's language are.
  if (isOwnChain(value) || TAKEN.test(value)) throw new ValueError(`${shown(value)}: it has another meaning to nft or iptables; want a name such as ${ADMIN} or my-admin`)
  return value
}
const TAKEN = /^(INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING|ACCEPT|DROP|RETURN|REJECT|QUEUE|PLUMB-.*|CNI-FORWARD|CNI-ISOLATION-.*|cond[46]_.*)$/
