import type { LinkRow } from './kinds/link.ts'
import { readSysctl } from './sysctls.ts'

/** The switches, as sysctls below net/, that keep the node from forwarding what pods of these links send: of each family that the links have an address of for them, link-local ones aside. */
export function notForwarding(links: readonly Pick<LinkRow, 'addr_info'>[]): string[] {
  const held = new Set(links.flatMap(({ addr_info }) => addr_info.filter(({ scope }) => scope !== 'link').map(({ family }) => family)))
  return [...(held.has('inet') ? ['ipv4/ip_forward'] : []), ...(held.has('inet6') ? ['ipv6/conf/all/forwarding'] : [])].filter((sysctl) => readSysctl(sysctl) === '0')
}
