// Made by `npm run tables` from the files in this folder: do not edit.
import type { Handler } from '../handler.ts'
import { type Addr, addr } from './addr.ts'
import { type Admission, admission } from './admission.ts'
import { type Chain, chain } from './chain.ts'
import { type Claim, claim } from './claim.ts'
import { type Element, element } from './element.ts'
import { type Fdb, fdb } from './fdb.ts'
import { type Flows, flows } from './flows.ts'
import { type Link, link } from './link.ts'
import { type Neigh, neigh } from './neigh.ts'
import { type Nexthop, nexthop } from './nexthop.ts'
import { type Passage, passage } from './passage.ts'
import { type Pneigh, pneigh } from './pneigh.ts'
import { type Qdisc, qdisc } from './qdisc.ts'
import { type Redirect, redirect } from './redirect.ts'
import { type Rerouted, rerouted } from './rerouted.ts'
import { type Route, route } from './route.ts'
import { type Rule, rule } from './rule.ts'
import { type Saved, saved } from './saved.ts'
import { type Setting, setting } from './setting.ts'
import { type Sysctl, sysctl } from './sysctl.ts'
import { type Tunnel, tunnel } from './tunnel.ts'
import { type Unrouted, unrouted } from './unrouted.ts'
import { type Vlan, vlan } from './vlan.ts'
import { type Vrf, vrf } from './vrf.ts'
import { type Wgdevice, wgdevice } from './wgdevice.ts'
import { type Wgpeer, wgpeer } from './wgpeer.ts'
import { type Zoned, zoned } from './zoned.ts'

/** An object of the kernel, or a file, that plumb makes: plain data. */
export type Resource =
  | Addr
  | Admission
  | Chain
  | Claim
  | Element
  | Fdb
  | Flows
  | Link
  | Neigh
  | Nexthop
  | Passage
  | Pneigh
  | Qdisc
  | Redirect
  | Rerouted
  | Route
  | Rule
  | Saved
  | Setting
  | Sysctl
  | Tunnel
  | Unrouted
  | Vlan
  | Vrf
  | Wgdevice
  | Wgpeer
  | Zoned

const HANDLERS = {
  addr,
  admission,
  chain,
  claim,
  element,
  fdb,
  flows,
  link,
  neigh,
  nexthop,
  passage,
  pneigh,
  qdisc,
  redirect,
  rerouted,
  route,
  rule,
  saved,
  setting,
  sysctl,
  tunnel,
  unrouted,
  vlan,
  vrf,
  wgdevice,
  wgpeer,
  zoned,
}

/** The handler of a resource's kind. */
export function handler(kind: Resource['kind']): Handler<Resource> {
  return HANDLERS[kind] as unknown as Handler<Resource>
}
