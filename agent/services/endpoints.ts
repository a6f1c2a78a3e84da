import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Endpoint, Service, ServicePort, Slice } from '../cluster/services.ts'

// Which endpoints of a port serve clients (kube-proxy's CategorizeEndpoints): readiness, termination, hints, and what
// is on this node.

/** What the choice depends on besides the Service. */
export interface NodeFacts {
  readonly name: string
  /** The label `topology.kubernetes.io/zone` of the Node. */
  readonly zone?: string
  /** The addresses of the Node. */
  readonly ips?: readonly Ip[]
}

/** The endpoints of one port and family, as nft's text `10.1.0.2 . 8080`. */
export interface Endpoints {
  /** For all clients. */
  readonly cluster: readonly string[]
  /** For policies Local: those of this node. */
  readonly local: readonly string[]
  /** All that serve: those that terminate, and those for clients elsewhere, too. `servingLocal`: of this node. */
  readonly serving: readonly string[]
  readonly servingLocal: readonly string[]
  /** All of this node, whether they are ready or not. */
  readonly everyLocal: readonly Endpoint[]
  /** Those that may be a client of themselves here: no other node is named as theirs. */
  readonly everyHere: readonly Endpoint[]
  /** Whether any node has an endpoint that can serve. */
  readonly isAny: boolean
  /** Each endpoint with the reason why it is left out. No reason: clients reach it. */
  listed(): readonly { readonly endpoint: Endpoint; readonly address: string; readonly why?: string }[]
}

/** Chooses the endpoints of one port. Pure. */
export function endpointsOf(
  service: Service,
  port: ServicePort,
  family: 4 | 6,
  slices: readonly Slice[],
  node: NodeFacts,
): Endpoints {
  const merged = merge(service, port, family, slices)
  const all = [...merged]
  const ready = all.filter(([, { isReady }]) => isReady)
  const ending = all.filter(([, { isServing, isTerminating }]) => isServing && isTerminating)
  const readyEndpoints = ready.map(([, one]) => one)
  const hint = hintOf(readyEndpoints, node)
  const isLocal = ([, one]: readonly [string, Endpoint]) => one.node === node.name
  const near = ready.filter(([, one]) => hint === undefined || one[hint.by].includes(hint.name))
  const cluster = near.length > 0 ? near : ending
  const localReady = ready.filter(isLocal)
  const local = localReady.length > 0 ? localReady : ending.filter(isLocal)
  const serving = all.filter(([, { isReady, isServing }]) => isReady || isServing)
  const addresses = (those: readonly (readonly [string, Endpoint])[]) => those.map(([address]) => address)
  return {
    cluster: addresses(cluster),
    local: addresses(local),
    serving: addresses(serving),
    servingLocal: addresses(serving.filter(isLocal)),
    everyLocal: all.filter(isLocal).map(([, one]) => one),
    everyHere: all.filter(([, { node: at }]) => at === undefined || at === node.name).map(([, one]) => one),
    isAny: ready.length + ending.length > 0,
    listed() {
      const chosen = new Set(cluster.map(([address]) => address))
      return all.map(([address, endpoint]) => ({
        endpoint,
        address,
        ...(!chosen.has(address) && { why: whyOut(endpoint, ready.length, hint) }),
      }))
    },
  }
}

// The slices of one Service may hold an address twice while it moves from one to another. The one that is ready counts.
function merge(service: Service, port: ServicePort, family: 4 | 6, slices: readonly Slice[]): Map<string, Endpoint> {
  const found = new Map<string, Endpoint>()
  for (const { ports, endpoints } of slices) {
    const numbers = ports.filter(({ name, protocol }) => name === port.name && protocol === port.protocol)
    for (const one of endpoints) {
      if (isSix(one.ip) !== (family === 6)) continue
      const endpoint = service.publishesNotReady ? { ...one, isReady: true } : one
      for (const { port: number } of numbers) {
        const address = `${one.ip} . ${number}`
        const had = found.get(address)
        if (!had || (endpoint.isReady && !had.isReady)) found.set(address, endpoint)
      }
    }
  }
  return found
}

interface Hint {
  readonly by: 'nodes' | 'zones'
  readonly name: string
}

// Hints count only where every ready endpoint has them, and one is for this node or zone.
function hintOf(ready: readonly Endpoint[], { name, zone }: NodeFacts): Hint | undefined {
  const isUsable = (by: Hint['by'], own: string) =>
    ready.length > 0 && ready.every((one) => one[by].length > 0) && ready.some((one) => one[by].includes(own))
  if (isUsable('nodes', name)) return { by: 'nodes', name }
  return zone !== undefined && isUsable('zones', zone) ? { by: 'zones', name: zone } : undefined
}

function whyOut(endpoint: Endpoint, ready: number, hint: Hint | undefined): string {
  const { isReady, isServing, isTerminating, nodes, zones } = endpoint
  if (isReady && hint?.by === 'nodes') return `it is for clients on node ${nodes.join(', ')}`
  if (isReady) return `it is for clients of zone ${zones.join(', ')}`
  if (!isTerminating) return 'it is not ready'
  if (!isServing) return 'it is terminating and no longer serves'
  return `it is terminating, and ${ready === 1 ? '1 other is' : `${ready} others are`} ready`
}
