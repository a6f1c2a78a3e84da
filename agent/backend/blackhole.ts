import type { Route } from '../../lib/state/kinds/route.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'
import { PROTO } from '../kernel/marks.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'

/** The metric that comes after all others. */
const LAST = 2 ** 32 - 1

/** Routes that drop what is for a node's own subnets (`--ip-blackhole-route`), last of all, so that a bridge's own to the whole subnet counts before them. */
export function blackholes(subnets: Both<Cidr>): Route[] {
  return both(subnets).map((dst) => ({ kind: 'route', ns: 'host', dev: parse.ifname('lo'), dst, via: [], priority: LAST, proto: PROTO, blackhole: true }))
}
