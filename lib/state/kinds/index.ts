import type { Handler, Kind, Resource } from '../resource.ts'
import { addr } from './addr.ts'
import { chain } from './chain.ts'
import { claim, flows } from './claim.ts'
import { element } from './element.ts'
import { link } from './link.ts'
import { neigh } from './neigh.ts'
import { nexthop } from './nexthop.ts'
import { passage } from './passage.ts'
import { fdb, vlan } from './port.ts'
import { qdisc, redirect } from './qdisc.ts'
import { rerouted } from './rerouted.ts'
import { route } from './route.ts'
import { rule } from './rule.ts'
import { saved } from './saved.ts'
import { setting } from './setting.ts'
import { sysctl } from './sysctl.ts'
import { tunnel } from './tunnel.ts'
import { unrouted } from './unrouted.ts'
import { vrf } from './vrf.ts'
import { zoned } from './zoned.ts'

const HANDLERS = { link, addr, route, neigh, tunnel, nexthop, sysctl, fdb, vlan, element, chain, claim, flows, setting, saved, passage, rule, unrouted, qdisc, redirect, rerouted, vrf, zoned }

/** The handler of a resource's kind. */
export function handler(kind: Kind): Handler<Resource> {
  return HANDLERS[kind] as unknown as Handler<Resource>
}
