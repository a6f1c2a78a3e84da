import type { Run } from '../../lib/os/run.ts'
import type { Nexthop } from '../../lib/state/kinds/nexthop.ts'
import type { Route } from '../../lib/state/kinds/route.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { NetworkName } from '../../lib/text/values.ts'
import { PROTO } from './marks.ts'

// People and routing daemons use small ids, so these ids begin at 2^30. The last PROBES ids stay free for ids that
// collisions move.
const [FIRST, PROBES] = [2 ** 30, 64]
const SPACE = 2 ** 32 - FIRST - PROBES

/**
 * A route through a nexthop object, and the object. The object's id derives from the agent, the gateway and the device.
 * It is the same after a restart.
 */
export function throughNexthop(
  route: Route & { readonly via: readonly [Route['via'][number]] },
  instance: NetworkName,
): [Nexthop, Route] {
  const [via] = route.via
  const { ns, dev, onlink } = route
  const id = idOf(instance, via, dev)
  return [
    { kind: 'nexthop', ns, id, via, dev, ...(onlink ? { onlink } : {}), proto: PROTO },
    { ...route, nhid: id },
  ]
}

/**
 * Resolves ids that two gateways share. The first gateway in text order keeps the id, and the others get the next free
 * ids. Without a collision it returns the given list.
 */
export function settleIds(resources: readonly Resource[]): readonly Resource[] {
  const taken = new Map<number, Nexthop>()
  const rivals: Nexthop[] = []
  for (const one of resources) {
    if (one.kind !== 'nexthop') continue
    const first = taken.get(one.id)
    if (!first) taken.set(one.id, one)
    else if (first.via !== one.via || first.dev !== one.dev) rivals.push(one)
  }
  if (rivals.length === 0) return resources
  const moved = new Map<string, number>()
  const colliding = [...rivals, ...new Set(rivals.map(({ id }) => taken.get(id) as Nexthop))].sort(
    (a, b) => a.id - b.id || (gatewayOf(a) < gatewayOf(b) ? -1 : 1),
  )
  const keeps = new Map<number, string>()
  for (const one of colliding) {
    const gateway = gatewayOf(one)
    if (moved.has(gateway) || keeps.get(one.id) === gateway) continue
    if (!keeps.has(one.id)) keeps.set(one.id, gateway)
    else {
      let id = one.id + 1
      while (taken.has(id)) id++
      taken.set(id, one)
      moved.set(gateway, id)
    }
  }
  const movedTo = (one: Resource) => {
    if (one.kind === 'nexthop') return moved.get(gatewayOf(one))
    return one.kind === 'route' && one.nhid !== undefined ? moved.get(`${one.via[0]} ${one.dev}`) : undefined
  }
  return resources.map((one) => {
    const id = movedTo(one)
    if (id === undefined) return one
    return one.kind === 'nexthop' ? { ...one, id } : { ...(one as Route), nhid: id }
  })
}

/** Whether this agent would have given this id to the nexthop. */
export function isOwnId(instance: NetworkName, { id, via, dev }: Pick<Nexthop, 'id' | 'via' | 'dev'>): boolean {
  const off = id - idOf(instance, via, dev)
  return off >= 0 && off < PROBES
}

/** Whether this kernel and this iproute2 support nexthop objects. */
export async function hasNexthops(run: Run): Promise<boolean> {
  const { status, stderr } = await run(['ip', 'nexthop', 'show'], '')
  return status === 0 && stderr === ''
}

function idOf(instance: string, via: string, dev: string): number {
  return FIRST + (Bun.hash.xxHash32(`${instance} ${via} ${dev}`) % SPACE)
}

function gatewayOf({ via, dev }: Nexthop): string {
  return `${via} ${dev}`
}
