// What should happen to a packet, hop by hop: a pure function over facts of the node, the agent's objects and the
// kernel's own answers about routes.

import type { Link } from '../../agent/doctor/facts/links.ts'
import { type Chain, rulesIn } from '../../agent/doctor/facts/ruleset.ts'
import { drops, type Forwarded } from '../../agent/doctor/forward-chains.ts'
import type { Decision } from '../../agent/policy/view.ts'
import type { ServiceView } from '../../agent/services/view.ts'
import { sysctlName } from '../../lib/os/sysctls.ts'
import { contains, hostCidr, isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { failing, type HopName, type Outcome, type Outcomes, passing } from './hops.ts'
import type { Protocol } from './packet.ts'

/** A packet to foresee. */
export interface Attempt {
  readonly protocol: Protocol
  readonly source: Ip
  readonly destination: Ip
  /** 0 for ICMP. */
  readonly port: number
  /** Its bytes from the IP header on, where no router may divide it. */
  readonly size?: number
  /** The endpoint that the packet took, where a Service has several. */
  readonly chosen?: { readonly ip: Ip; readonly port: number }
}
/** Where a route leads, or why there is none. */
export type Routed =
  | { readonly dev: string; readonly type: string; readonly via?: Ip; readonly mtu?: number }
  | { readonly errno: number }
/** A namespace on this node that has an address: a pod's, or the node's own. */
export interface Local {
  readonly isNode: boolean
  /** The pod's link on the node, and the bridge that it is a port of. */
  readonly link?: string
  /** Whether a program listens. Undefined when that was not read, and for ICMP. */
  listens(protocol: Protocol, port: number): boolean | undefined
}
/** What the oracle knows. */
export interface TraceFacts {
  readonly links: readonly Link[]
  readonly chains: readonly Chain[]
  /** The value of a sysctl below /proc/sys/net. */
  sysctl(name: string): string | undefined
  /** The kernel's route in the sender's namespace, or on the node for what comes in by a link. */
  route(at: 'sender' | 'node', to: Ip, from: Ip | undefined, iif?: string): Routed
  /** Whose address it is on this node. Undefined for an address of another machine. */
  at(ip: Ip): Local | undefined
  /** The Services of the agent. Undefined when no agent serves them. */
  readonly services: readonly ServiceView[] | undefined
  /** What the agent says of policy. Undefined when no agent enforces it. */
  readonly decision: Decision | undefined
  /** The node of a pod of another node, by the leases, and the links that may lead there: the usual one first. */
  peer(ip: Ip): { readonly name: string; readonly devs?: readonly string[]; readonly problem?: string } | undefined
  /** The networks of pods. Undefined when nobody knows them. */
  readonly networks: readonly string[] | undefined
}

const [EINVAL, EXDEV, ENETUNREACH, EHOSTUNREACH] = [22, 18, 101, 113]
/** What the kernel answers for a route that refuses packets (fib_props of net/ipv4/fib_semantics.c, ip6_route_info_create). */
const REFUSALS: Readonly<Record<number, string>> = { 13: 'prohibit', 22: 'blackhole', 113: 'unreachable' }
/** The tables with the rules of plumb. */
const OURS = /^plumb(_|-|$)/
/** The agent's table, that of a second agent too. Its chain gives packets of pods to the world the node's address. */
const MASQUERADE = /^plumb_agent/

/** What should happen to a packet, up to the first hop that loses it. Pure. */
export function foresee(attempt: Attempt, facts: TraceFacts): Outcomes {
  const found = new Map<HopName, Outcome>()
  for (const [hop, outcome] of walk(attempt, facts)) {
    if (outcome === undefined) continue
    found.set(hop, outcome)
    if (!outcome.passes) break
  }
  return found
}

/** What should happen to a packet on the node of its receiver, to which another node has sent it. Pure. */
export function foreseeFar(attempt: Attempt, facts: TraceFacts): Outcomes {
  const found = new Map<HopName, Outcome>()
  for (const [hop, outcome] of walkFar(attempt, facts)) {
    if (outcome === undefined) continue
    found.set(hop, outcome)
    if (!outcome.passes) break
  }
  return found
}

function* walkFar(attempt: Attempt, facts: TraceFacts): Generator<readonly [HopName, Outcome | undefined]> {
  const { source, destination, protocol, port } = attempt
  // What comes from an address should come by the link that leads to it.
  const back = facts.route('sender', source, undefined)
  const iif = 'errno' in back ? undefined : back.dev
  yield ['far link', 'errno' in back ? failing(`the node has no route back to ${source}`) : passing(`by ${iif}`, iif)]
  const receiver = facts.at(destination)
  const way = facts.route('node', destination, source, iif)
  yield ['far route', routing(way, destination, source, iif, facts)]
  if ('errno' in way) return
  const isToNode = way.type === 'local'
  const passage = { attempt, to: destination, port, iif, oif: way.dev, isNode: false, isToNode }
  yield ['far rules', othersRules(passage, facts)]
  yield ['far policy', policy(facts)]
  const out = facts.links.find(({ name }) => name === receiver?.link)
  if (!isToNode) yield ['far exit', leaving(out?.master === way.dev ? out.name : way.dev, {}, destination, facts)]
  yield ['receiver', receiving(receiver, protocol, port)]
}

function* walk(attempt: Attempt, facts: TraceFacts): Generator<readonly [HopName, Outcome | undefined]> {
  const { source, protocol } = attempt
  const local = facts.at(source)
  const isNode = local?.isNode ?? true
  const first = facts.route('sender', attempt.destination, source)
  yield ['sender', sending(first, attempt, facts)]
  const link = facts.links.find(({ name }) => name === local?.link)
  if (!isNode) yield ['link', entering(local, link)]
  if (!isNode && hasTable(facts, /^plumb_guard$/)) yield ['guard', passing('the address belongs to the link')]
  const service = serviceOf(attempt, facts)
  if (service) yield ['service', service.outcome]
  // Another program may have translated the packet: kube-proxy, or the rules of a host port.
  const to = service?.to ?? attempt.chosen ?? { ip: attempt.destination, port: attempt.port }
  const receiver = facts.at(to.ip)
  const out = facts.links.find(({ name }) => name === receiver?.link)
  const isBridged = !isNode && link?.master !== undefined && out?.master === link.master && link !== out
  const iif = isNode ? undefined : (link?.master ?? link?.name)
  const way = isBridged
    ? { dev: link.master ?? '', type: 'unicast' }
    : isNode && service === undefined
      ? first
      : facts.route('node', to.ip, source, iif)
  const large = isBridged ? undefined : tooLarge(attempt.size, way)
  if (large !== undefined) yield ['route', failing(large)]
  yield ['route', routing(way, to.ip, source, iif, facts)]
  if ('errno' in way) return
  const isToNode = way.type === 'local'
  if (!(isBridged && skipsRules(to.ip, facts)) && (!isNode || !isToNode))
    yield ['rules', othersRules({ attempt, to: to.ip, port: to.port, iif, oif: way.dev, isNode, isToNode }, facts)]
  yield ['policy', policy(facts)]
  if (!isNode && !isToNode) yield ['source', sourceKept(to.ip, receiver !== undefined, facts)]
  if (!isToNode)
    yield ['exit', leaving(isBridged || out?.master === way.dev ? (out?.name ?? way.dev) : way.dev, way, to.ip, facts)]
  const other = facts.peer(to.ip)
  if (other && facts.links.some(({ name, kind }) => name === way.dev && kind === 'vxlan'))
    yield ['tunnel', passing(`to node ${other.name}`)]
  yield ['receiver', receiving(receiver, protocol, to.port)]
}

function sending(first: Routed, { destination, size }: Attempt, { sysctl }: TraceFacts): Outcome {
  const large = tooLarge(size, first)
  if (large !== undefined) return failing(large)
  if (!('errno' in first))
    return passing(`by ${first.dev}${first.via === undefined ? '' : ` to ${first.via}`}`, first.dev)
  const refusal = REFUSALS[first.errno]
  if (refusal !== undefined) return failing(`the sender has a route of type ${refusal} to ${destination}`)
  return failing(
    `the sender has no route to ${destination}${isSix(destination) && sysctl('ipv6/conf/all/disable_ipv6') === '1' ? ': IPv6 is disabled' : ''}`,
  )
}

// Why the link of a route does not take a packet of this size. Undefined when it does.
function tooLarge(size: number | undefined, way: Routed): string | undefined {
  if (size === undefined || 'errno' in way || way.type !== 'unicast' || size <= (way.mtu ?? size)) return undefined
  return `it is too large: it has ${size} bytes, and ${way.dev} takes ${way.mtu}`
}

function entering(local: Local | undefined, link: Link | undefined): Outcome | undefined {
  if (local?.link === undefined) return undefined
  if (link === undefined) return undefined
  const where = link.master === undefined ? link.name : `${link.name}, a port of ${link.master}`
  return link.isUp ? passing(where, link.name) : failing(`${where}, is down`)
}

/** A Service that the packet asks for. */
interface Asked {
  readonly outcome: Outcome
  /** Where it leads. Undefined when it is refused. */
  readonly to?: { readonly ip: Ip; readonly port: number }
}

function serviceOf({ destination, port, protocol, chosen }: Attempt, { services, at }: TraceFacts): Asked | undefined {
  const asked = `${isSix(destination) ? `[${destination}]` : destination}:${port}/${protocol}`
  const isNodes = at(destination)?.isNode === true
  for (const { namespace, name, ports } of services ?? [])
    for (const one of ports) {
      const isOfFamily = one.addresses.some((text) => text.startsWith('[') === isSix(destination))
      const isPort = isNodes && one.nodePort === port && isOfFamily && one.addresses[0]?.endsWith(`/${protocol}`)
      if (!one.addresses.includes(asked) && !isPort) continue
      const ends = one.endpoints
        .filter(({ leftOut }) => leftOut === undefined)
        .map(({ address }) => endpointOf(address))
      const what = `${namespace}/${name}`
      const [only] = ends
      if (only === undefined) return { outcome: failing(`${what} has no endpoint that is ready`) }
      const isAmong = chosen && ends.some(({ ip, port }) => ip === chosen.ip && port === chosen.port)
      const to = isAmong ? chosen : only
      const listed = ends.map(({ text }) => text).join(', ')
      const says = ends.length === 1 ? `${what} → ${listed}` : `${what} → one of ${ends.length}: ${listed}`
      return { outcome: passing(says, endText(to)), to }
    }
  return undefined
}

/** Reads an endpoint as the agent writes it: `10.1.0.2:80`, or `[fd00::2]:80`. */
export function endpointOf(text: string): { readonly ip: Ip; readonly port: number; readonly text: string } {
  const [, ip = '', port] = /^\[?(.*?)\]?:(\d+)$/.exec(text) ?? []
  return { ip: ip as Ip, port: Number(port), text }
}

/** An address and port as the agent writes them. */
export function endText({ ip, port }: { readonly ip: Ip; readonly port: number }): string {
  return isSix(ip) ? `[${ip}]:${port}` : `${ip}:${port}`
}

function routing(way: Routed, to: Ip, from: Ip, iif: string | undefined, facts: TraceFacts): Outcome {
  const six = isSix(to)
  const forwarding = six ? 'ipv6/conf/all/forwarding' : 'ipv4/ip_forward'
  if ('errno' in way) {
    if (way.errno === EHOSTUNREACH && iif !== undefined) {
      const ofLink = `${six ? 'ipv6' : 'ipv4'}/conf/${iif}/forwarding`
      for (const name of [forwarding, ofLink]) if (facts.sysctl(name) === '0') return notForwarding(name)
    }
    // Without the link that it comes in by, no filter has a part in the answer: what is left is the route's own type.
    const plain = iif === undefined ? way : facts.route('node', to, undefined)
    const refusal = 'errno' in plain ? REFUSALS[plain.errno] : undefined
    if (refusal !== undefined) return failing(`the node has a route of type ${refusal} to ${to}`)
    if (way.errno === EINVAL || way.errno === EXDEV)
      return failing(`the reverse path filter of ${iif} drops it: answers to ${from} leave by another link`)
    const why = way.errno === ENETUNREACH || way.errno === EHOSTUNREACH ? '' : ` (errno ${way.errno})`
    return failing(`the node has no route to ${to}${why}`)
  }
  if (way.type === 'local') return passing('to the node itself', 'local')
  if (way.type !== 'unicast') return failing(`the node has a route of type ${way.type} to ${to}`)
  // The kernel's answer about a route of IPv6 does not look at this setting.
  const isForwarded = iif !== undefined && iif !== way.dev
  if (six && isForwarded && facts.sysctl(forwarding) === '0') return notForwarding(forwarding)
  const { devs = [] } = facts.peer(to) ?? {}
  const [dev] = devs
  if (dev !== undefined && !devs.includes(way.dev))
    return passing(`by ${dev}: the leases say so, and the kernel's route leads to ${way.dev}`, dev)
  return passing(`by ${way.dev}${way.via === undefined ? '' : ` to ${way.via}`}`, way.dev)
}

// Without br_netfilter, frames between ports of a bridge do not meet the rules of IP.
function skipsRules(to: Ip, { sysctl }: TraceFacts): boolean {
  return sysctl(`bridge/bridge-nf-call-${isSix(to) ? 'ip6' : 'ip'}tables`) !== '1'
}

function notForwarding(name: string): Outcome {
  return failing(`the node does not forward: ${sysctlName(name)} is 0`)
}

interface Way {
  readonly attempt: Attempt
  readonly to: Ip
  /** The port after translation. */
  readonly port: number
  readonly iif: string | undefined
  readonly oif: string
  readonly isNode: boolean
  readonly isToNode: boolean
}

function othersRules(
  { attempt, to, port, iif, oif, isNode, isToNode }: Way,
  { chains }: TraceFacts,
): Outcome | undefined {
  const hook = isNode ? 'output' : isToNode ? 'input' : 'forward'
  const packet: Forwarded = {
    from: hostCidr(attempt.source),
    to: hostCidr(to),
    iif: iif === undefined ? [] : [iif],
    oif: [oif],
    ...(attempt.protocol === 'TCP' && { tcp: port }),
    ...(attempt.protocol === 'UDP' && { udp: port }),
  }
  const others = chains.filter((one) => one.hook === hook && one.type === 'filter' && !OURS.test(one.table))
  const refusing = others.find((one) => drops(one, packet, rulesIn(chains, one)))
  if (refusing === undefined) return others.length === 0 ? undefined : passing('')
  const { family, table, name, policy: last } = refusing
  return failing(`the chain ${family} ${table} ${name} drops it${last === 'drop' ? ' (policy drop)' : ''}`)
}

function policy({ decision }: TraceFacts): Outcome | undefined {
  if (decision === undefined || decision.isRefusedByService) return undefined
  const { here, isAudit } = decision
  if (isAudit && !here.passes) return passing(`audit mode lets it pass: ${here.reason}`)
  return { passes: here.passes, says: here.reason }
}

function sourceKept(to: Ip, isLocal: boolean, { networks, chains }: TraceFacts): Outcome | undefined {
  if (isLocal) return undefined
  if (networks?.some((one) => isSix(to) === isSix(one as Ip) && contains(one as never, to)))
    return passing('kept', 'kept')
  const isMasquerading = chains.some(({ table, hook }) => MASQUERADE.test(table) && hook === 'postrouting')
  return isMasquerading ? passing("the node's address", 'changed') : undefined
}

function leaving(dev: string, { via }: { readonly via?: Ip }, to: Ip, { links, peer }: TraceFacts): Outcome {
  const link = links.find(({ name }) => name === dev)
  const other = peer(to)
  const target = other === undefined ? (via === undefined ? '' : ` to ${via}`) : ` to node ${other.name}`
  if (link && !link.isUp) return failing(`${dev} is down`)
  if (other?.problem !== undefined) return failing(`by ${dev}${target}: ${other.problem}`)
  return passing(`by ${dev}${target}`, dev)
}

function receiving(receiver: Local | undefined, protocol: Protocol, port: number): Outcome | undefined {
  if (receiver === undefined) return undefined
  if (protocol === 'ICMP') return passing('the kernel answers')
  const listens = receiver.listens(protocol, port)
  if (listens === undefined) return undefined
  return listens
    ? passing(`a program listens on ${protocol} port ${port}`)
    : failing(`no program listens on ${protocol} port ${port}`)
}

function hasTable({ chains }: TraceFacts, name: RegExp): boolean {
  return chains.some(({ table }) => name.test(table))
}
