import { contains, isSix } from '../../../lib/text/cidr.ts'
import { type Ip, parseCidr } from '../../../lib/text/ip.ts'
import type { Scope } from './suspect.ts'

/** Whether a text that selects packets may be about the lost ones: each address in it is one of theirs. Pure. */
export function isAbout(text: string, { ips, portNumbers }: Scope): boolean {
  for (const [, number] of text.matchAll(/\b(?:dport|sport|--dport|--sport)\s+(?:!= )?(\d+)/g))
    if (!portNumbers.includes(Number(number))) return false
  for (const [found] of text.matchAll(
    /\b\d+\.\d+\.\d+\.\d+(?:\/\d+)?|\b[0-9a-f]*:[0-9a-f:]*:[0-9a-f.:]*(?:\/\d+)?/gi,
  )) {
    if (/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(found)) continue
    if (!ips.some((ip) => isIn(ip, found))) return false
  }
  const families = new Set(ips.map((ip) => (isSix(ip) ? 6 : 4)))
  if (/nfproto ipv4|ether type ip\b|protocol ip\b|\bip (saddr|daddr|ttl)/.test(text) && !families.has(4)) return false
  if (/nfproto ipv6|ether type ip6|protocol ipv6|\bip6 /.test(text) && !families.has(6)) return false
  return true
}

/** Whether the text is the address, or a network with it. Pure. */
export function isIn(ip: Ip, text: string): boolean {
  try {
    const cidr = parseCidr(text.includes('/') ? text : `${text}/${text.includes(':') ? 128 : 32}`)
    return isSix(ip) === text.includes(':') && contains(cidr, ip)
  } catch {
    return false
  }
}
