import type { Route } from '../../lib/state/kinds/route.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'
import { PROTO } from '../kernel/marks.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'

/** The highest metric, so that every other route comes first. */
export const LAST_METRIC = 2 ** 32 - 1

/**
 * Routes that drop packets to a node's own subnets (`--ip-blackhole-route`). They have the highest metric. A bridge's
 * route to the whole subnet therefore comes first.
 */
export function blackholes(subnets: Both<Cidr>): Route[] {
  return both(subnets).map((dst) => ({
    kind: 'route',
    ns: 'host',
    dev: parse.ifname('lo'),
    dst,
    via: [],
    priority: LAST_METRIC,
    proto: PROTO,
    blackhole: true,
  }))
}
