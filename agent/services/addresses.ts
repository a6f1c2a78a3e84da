import { isSix, meets, networkOf } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { ServiceCidr } from '../cluster/services.ts'
import type { TableOptions } from './table.ts'

/** What is known of the addresses that the rules of Services ask for. */
export interface KnownAddresses {
  readonly options: Pick<TableOptions, 'nodePortAddresses'> & { readonly serviceCidrs: readonly Cidr[] }
  /** The ServiceCIDR objects. Undefined while nobody knows them, and why. */
  readonly objects: Iterable<ServiceCidr> | undefined
  readonly trouble?: string | undefined
  /** The networks of pods. */
  readonly pods: readonly Cidr[]
  /** The name and the addresses of the Node object, and the addresses of the link to the other nodes. */
  readonly node: { readonly name: string; readonly ips?: readonly Ip[] }
  readonly uplink: readonly Ip[]
}

/**
 * The networks of ClusterIPs, and the addresses with NodePorts for `primary`. Undefined is not known. `problems` has a
 * sentence for each thing that does not work. Pure.
 */
export function addressesOf(known: KnownAddresses): {
  readonly clusterIPs: readonly Cidr[] | undefined
  readonly primary: readonly Ip[] | undefined
  readonly problems: readonly string[]
} {
  const { options, objects, trouble, pods, node } = known
  const given = [...options.serviceCidrs, ...[...(objects ?? [])].flatMap(({ cidrs }) => cidrs)]
  const all = [...new Set(given.map(networkOf))].sort()
  // Packets to pods would be dropped.
  const wrong = all.filter((one) => pods.some((network) => meets(one, network)))
  const clusterIPs = objects || options.serviceCidrs.length > 0 ? all.filter((one) => !wrong.includes(one)) : undefined
  const isPrimary = options.nodePortAddresses === 'primary'
  const primary = isPrimary ? firstOfEach(node.ips?.length ? node.ips : known.uplink) : []
  const pass = 'packets to ClusterIPs of no Service are not dropped'
  return {
    clusterIPs,
    primary: isPrimary && primary.length === 0 ? undefined : primary,
    problems: [
      ...wrong.map(
        (one) => `The network of ClusterIPs ${one} overlaps the network of pods, so ${pass}; want another one`,
      ),
      ...(clusterIPs || trouble === undefined
        ? []
        : [`ServiceCIDR objects are not known, so ${pass}: ${trouble}; want them readable, or --service-cidr`]),
      ...(isPrimary && primary.length === 0
        ? [`No address of Node ${node.name} is known, so NodePorts stay as they were; want one in its status`]
        : []),
    ],
  }
}

// As kube-proxy: one address per family, the first one.
function firstOfEach(all: readonly Ip[]): Ip[] {
  return [false, true].flatMap((six) => all.find((ip) => isSix(ip) === six) ?? [])
}
