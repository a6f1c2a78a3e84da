import type { Json } from '../lib/runtime/network-list.ts'

/** The addresses of a result of any version, with their prefix lengths: `ips` from 0.3.0, before that one per family. */
export function addressesOf(result: Json | undefined): string[] {
  const { ips, ip4, ip6 } = (result ?? {}) as { ips?: { address: string }[]; ip4?: { ip: string }; ip6?: { ip: string } }
  return [...(Array.isArray(ips) ? ips.map(({ address }) => address) : []), ...[ip4, ip6].flatMap((one) => one?.ip ?? [])]
}
