import type { Json } from '../lib/runtime/network-list.ts'

/**
 * Returns the addresses of a CNI result of any version, with their prefix lengths. Results from version 0.3.0 on list
 * them in `ips`. Older results have one address per family, in `ip4` and `ip6`.
 */
export function addressesOf(result: Json | undefined): string[] {
  const { ips, ip4, ip6 } = (result ?? {}) as {
    ips?: { address: string }[]
    ip4?: { ip: string }
    ip6?: { ip: string }
  }
  return [
    ...(Array.isArray(ips) ? ips.map(({ address }) => address) : []),
    ...[ip4, ip6].flatMap((one) => one?.ip ?? []),
  ]
}
