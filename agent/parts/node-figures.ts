import { readFileSync } from 'node:fs'
import { listFiles } from '../../lib/os/reading.ts'
import { maybeSysctl } from '../../lib/os/sysctls.ts'
import { reservedIn } from '../../lib/pools/reservations.ts'
import { bitsOf, type Cidr, parseIp, split } from '../../lib/text/ip.ts'
import { type Access, accessOf } from '../cluster/access.ts'
import { periodOf } from '../doctor/facts/certificates.ts'
import { readCounters } from '../doctor/facts/counters.ts'
import { POOLS } from '../doctor/facts/pools.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import type { Settings } from '../settings/settings.ts'
import type { Certificate, NodeFigures } from '../telemetry/metric.ts'

/** The addresses of a subnet that no pod gets: those of the network and the gateway, and of IPv4 the broadcast. */
const [OTHERS4, OTHERS6] = [3n, 2n]
/** The pool of a larger subnet never ends. */
const COUNTED = 1n << 32n

/**
 * Makes the reader of what metrics tell of the node: some small files of /proc, the names of reservations, and the
 * certificates. It starts no process. Give it the subnets of this node.
 */
export function figuresReader(
  settings: Pick<Settings, 'store' | 'policy' | 'services'>,
): (subnets: Both<Cidr>) => Promise<NodeFigures> {
  // A credential program is asked once, and not at each reading.
  const access = accessTo(settings)
  return async (subnets) => {
    const counters = readCounters()
    const [entries, limit] = [maybeSysctl('netfilter/nf_conntrack_count'), maybeSysctl('netfilter/nf_conntrack_max')]
    const isTracking = entries !== undefined && limit !== undefined
    const conntrack = isTracking && {
      entries: Number(entries),
      limit: Number(limit),
      insertFailed: counters.get('conntrack.insert_failed') ?? 0,
      dropped: counters.get('conntrack.drop') ?? 0,
    }
    return {
      ...(conntrack && { conntrack }),
      reversePathDrops: counters.get('TcpExt.IPReversePathFilter') ?? 0,
      pools: poolsOf(both(subnets)),
      certificates: await certificatesOf(settings.store, access),
    }
  }
}

function poolsOf(subnets: readonly Cidr[]): NodeFigures['pools'] {
  const reservations = listFiles(POOLS).flatMap((network) => reservedIn(`${POOLS}/${network}`))
  const names = reservations.map((ip) => bitsOf(parseIp(ip)))
  return subnets.flatMap((subnet) => {
    const { family, first, last } = split(subnet)
    const size = last - first + 1n
    if (size > COUNTED) return []
    const reserved = names.filter((one) => one.family === family && one.bits >= first && one.bits <= last).length
    const usable = Number(size - (family === 4 ? OTHERS4 : OTHERS6))
    return { family: family === 4 ? 'ipv4' : 'ipv6', reserved, free: Math.max(0, usable - reserved) }
  })
}

function accessTo({ store, policy, services }: Pick<Settings, 'store' | 'policy' | 'services'>): Access | undefined {
  const objects = [policy, services?.objects].find((one) => one?.from === 'api')
  const wish = store.kind === 'kube' ? store : objects?.from === 'api' ? objects : undefined
  try {
    return wish && accessOf(wish)
  } catch {
    return undefined
  }
}

// A certificate that cannot be read is for the store to report.
async function certificatesOf(store: Settings['store'], access: Access | undefined): Promise<Certificate[]> {
  const found: Certificate[] = []
  const add = (server: Certificate['server'], role: Certificate['role'], pem: string | undefined) => {
    if (pem) found.push({ server, role, expires: periodOf(pem).until })
  }
  const textOf = (path: string | undefined) => (path === undefined ? undefined : readFileSync(path, 'utf8'))
  try {
    if (store.kind === 'etcd') {
      add('etcd', 'client', textOf(store.tls.certificate))
      add('etcd', 'authority', textOf(store.tls.authority))
    }
    const { cert, ca } = (await access?.tls()) ?? {}
    add('api', 'client', cert)
    add('api', 'authority', ca)
  } catch {
    return found
  }
  return found
}
