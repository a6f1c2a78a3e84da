import { networkOf } from '../../lib/text/cidr.ts'
import type { Facts } from './facts/index.ts'
import type { Chain } from './facts/ruleset.ts'
import type { Forwarded } from './forward-chains.ts'

/** The table of firewalld in nftables. */
export const FIREWALLD = 'firewalld'

/** Whether a chain is in a table that has the chains of ufw. */
export function isUfw(chains: readonly Chain[], { family, table }: Pick<Chain, 'family' | 'table'>): boolean {
  return chains.some((one) => one.family === family && one.table === table && /^ufw6?-user-input$/.test(one.name))
}

/** What nodes send to the port of this node's tunnel: a packet for each network of the uplink. Empty for other ways. */
export function tunnelled({ agent, links }: Pick<Facts, 'agent' | 'links'>): (Forwarded & { readonly udp: number })[] {
  const uplink = links.find(({ name }) => name === agent?.uplink?.name)
  const udp = links.find(({ name, vxlan }) => name.startsWith('flannel') && vxlan !== undefined)?.vxlan?.port
  if (agent?.backend !== 'vxlan' || !uplink || udp === undefined) return []
  const { tunnel } = agent.uplink ?? {}
  const own = uplink.addresses.filter(({ ip }) => ip === tunnel?.v4 || ip === tunnel?.v6)
  return own.map(({ cidr }) => ({ from: networkOf(cidr), to: networkOf(cidr), iif: [uplink.name], oif: [], udp }))
}
