import type { Result } from '../../lib/cni/result.ts'

/** Merges the results of the leases of all IP versions, in the given order. */
export function merged(all: readonly Result[]): Result {
  const routes = all.flatMap(({ routes = [] }) => routes)
  const nameservers = all.flatMap(({ dns }) => dns?.nameservers ?? [])
  const search = [...new Set(all.flatMap(({ dns }) => dns?.search ?? []))]
  const domain = all.find(({ dns }) => dns?.domain)?.dns?.domain
  const dns = {
    ...(nameservers.length > 0 ? { nameservers } : {}),
    ...(domain ? { domain } : {}),
    ...(search.length > 0 ? { search } : {}),
  }
  return {
    ips: all.flatMap(({ ips = [] }) => ips),
    ...(routes.length > 0 ? { routes } : {}),
    ...(Object.keys(dns).length > 0 ? { dns } : {}),
  }
}
