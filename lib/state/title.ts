import type { Resource } from './resource.ts'

/** What a resource is called in messages, without the words of any tool. */
export function title(resource: Resource): string {
  const where = resource.ns === 'host' ? '' : ' in the pod'
  if (resource.kind === 'setting') return `link ${resource.dev}${where}`
  if (resource.kind === 'rule') return `rule from ${resource.from} to table ${resource.table}${where}`
  if (resource.kind === 'vrf') return `VRF ${resource.name}${where}`
  if (resource.kind === 'rerouted') return `route ${resource.route.dst} in table ${resource.table}${where}`
  if (resource.kind === 'unrouted') return `absence of route ${resource.route.dst}${where}`
  if (resource.kind === 'saved') return `file ${resource.path}`
  if (resource.kind === 'link') return `link ${resource.name}${where}`
  if (resource.kind === 'addr') return `address ${resource.cidr} on ${resource.dev}${where}`
  if (resource.kind === 'route') return `route ${resource.dst}${where}`
  if (resource.kind === 'neigh') return `neighbour ${resource.ip} on ${resource.dev}${where}`
  if (resource.kind === 'tunnel') return `FDB entry ${resource.mac} on ${resource.dev}${where}`
  if (resource.kind === 'nexthop') return `nexthop ${resource.via} on ${resource.dev}${where}`
  if (resource.kind === 'sysctl') return `sysctl net/${resource.name}${where}`
  if (resource.kind === 'element') return `nft element ${resource.key} of ${resource.set}`
  if (resource.kind === 'chain') return `nft chain ${resource.name}`
  if (resource.kind === 'claim') return `claim to host port ${resource.port}/${resource.protocol}`
  if (resource.kind === 'qdisc') return `shaping of ${resource.dev}`
  if (resource.kind === 'redirect') return `redirection of what comes in by ${resource.dev} to ${resource.to}`
  if (resource.kind === 'passage') return `iptables chain PLUMB-PODS, IPv${resource.family}, with ${resource.admin} in it and the jump to it,`
  if (resource.kind === 'zoned') return `source ${resource.source} of zone ${resource.zone} of firewalld`
  if (resource.kind === 'flows') return `connections of host port ${resource.port}`
  return `${resource.kind} of ${resource.dev}${where}`
}
