import type { Entry } from '../../lib/journal/journal.ts'
import { type LinkFacts, linksNow } from '../../lib/os/links.ts'
import { proxiesNow } from '../../lib/os/neighbours.ts'
import type { Run } from '../../lib/os/run.ts'
import { readSysctl, writeSysctl } from '../../lib/os/sysctls.ts'
import type { Pneigh } from '../../lib/state/kinds/pneigh.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import { ROUTED } from '../../lib/wiring/routed.ts'
import { dropOf, perform, putOf, sentences } from '../kernel/batch.ts'
import { PROTO } from '../kernel/marks.ts'

// A node whose setting `pods` changed has pods of both kinds. A pod of a bridge looks for its whole subnet on the bridge.
// Routed pods are not there, so the node answers for them.

/** What the decision needs. */
export interface ProxyFacts {
  readonly entries: readonly Entry[]
  readonly links: readonly LinkFacts[]
  /** The addresses of a link by its index, without link-local ones. */
  addressesOf(index: number): readonly Cidr[]
  /** The node's subnets. */
  readonly subnets: readonly Cidr[]
}

/** The bridges of the node that have an address of its subnets, with these addresses. */
function bridgesOf({ links, addressesOf, subnets }: ProxyFacts): { link: LinkFacts; held: readonly Cidr[] }[] {
  const isOurs = (cidr: Cidr) => subnets.some((subnet) => contains(subnet, split(cidr).ip))
  return links
    .filter(({ kind }) => kind === 'bridge')
    .map((link) => ({ link, held: addressesOf(link.index).filter(isOurs) }))
    .filter(({ held }) => held.length > 0)
}

/** The addresses of routed pods for which the node has to answer on its bridges. */
export function proxiesFor(facts: ProxyFacts): Pneigh[] {
  const ips = facts.entries.flatMap((entry) => (entry.parts[ROUTED] ? (entry.ips as readonly Ip[]) : []))
  return bridgesOf(facts).flatMap(({ link, held }) =>
    ips
      .filter((ip) => held.some((cidr) => contains(cidr, ip)))
      .map((ip): Pneigh => ({ kind: 'pneigh', ns: 'host', dev: link.name, ip, proto: PROTO })),
  )
}

/** Keeps the answers for routed pods on the bridges of the node. */
export class PodProxies {
  // An earlier agent may have left some.
  #hasSome = true
  #hasBridge = false

  /** Whether the node has a bridge on which it may have to answer. */
  get hasBridge(): boolean {
    return this.#hasBridge
  }

  /** Adds and removes what differs. Throws ValueError when `ip` refuses. */
  async keep(facts: ProxyFacts, run: Run): Promise<void> {
    const wanted = proxiesFor(facts)
    this.#hasBridge = bridgesOf(facts).length > 0
    if (wanted.length === 0 && !this.#hasSome) return
    // Those of other subnets belong to another agent of the node.
    const there = ownProxies(facts.links).filter(({ ip }) => facts.subnets.some((subnet) => contains(subnet, ip)))
    const isIn = (all: readonly Pneigh[], { dev, ip }: Pneigh) => all.some((one) => one.ip === ip && one.dev === dev)
    const steps = [
      ...there.filter((one) => !isIn(wanted, one)).map(dropOf),
      ...wanted.filter((one) => !isIn(there, one)).map((one) => putOf(one)),
    ]
    for (const { dev, ip } of wanted) answering(dev, isSix(ip))
    if (steps.length > 0) mustWork(await perform('ip', steps, run))
    this.#hasSome = wanted.length > 0
  }
}

/** Removes all answers that agents of this node have made. */
export async function removeProxies(run: Run): Promise<void> {
  const steps = ownProxies(linksNow()).map(dropOf)
  if (steps.length > 0) mustWork(await perform('ip', steps, run))
}

function ownProxies(links: readonly LinkFacts[]): Pneigh[] {
  const names = new Map(links.map(({ index, name }) => [index, name]))
  return proxiesNow().flatMap(({ index, ip, proto }): Pneigh[] => {
    const dev = names.get(index)
    return dev === undefined || proto !== PROTO ? [] : [{ kind: 'pneigh', ns: 'host', dev, ip, proto }]
  })
}

// A bridge that has gone takes its entries along.
function mustWork(failed: Awaited<ReturnType<typeof perform>>): void {
  const others = [...failed].filter(([, said]) => !/^Cannot find/.test(said))
  if (others.length > 0) throw new ValueError(sentences(new Map(others)).join('; '))
}

// The kernel answers for others after up to 0.8 s (proxy_delay), and for IPv6 only when it is allowed to.
function answering(dev: string, isForSix: boolean): void {
  const family = isForSix ? 'ipv6' : 'ipv4'
  set(`${family}/neigh/${dev}/proxy_delay`, '0')
  if (isForSix) set(`ipv6/conf/${dev}/proxy_ndp`, '1')
}

function set(name: string, value: string): void {
  if (readSysctl(name) !== value) writeSysctl(name, value)
}
