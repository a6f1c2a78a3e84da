// lane: quick
// Tests agent/services/wanted-elements.ts: which Service has an address that several Services name.
import assert from 'node:assert/strict'
import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { type CompiledService, compile } from '../../../agent/services/compile.ts'
import { ReachedAddresses } from '../../../agent/services/reached.ts'
import { WantedElements } from '../../../agent/services/wanted-elements.ts'
import { generator } from '../../support/random.ts'

const NODE = { name: 'n1' }
/** Few addresses, so that Services collide: of the range of ClusterIPs, and of the outside. */
const [INSIDE, OUTSIDE] = [
  ['10.96.0.10', '10.96.0.11', '10.96.0.12', 'fd00:96::a'],
  ['192.0.2.1', '192.0.2.2', '2001:db8::1'],
]
const [NAMES, PORTS, NODE_PORTS] = [
  ['a', 'b', 'c', 'd', 'e', 'f'],
  [53, 80],
  [30_053, 30_080],
]
/** Some were made in the same second. A manifest may say no time. */
const BIRTHS = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z', '2026-01-03T00:00:00Z', undefined]

interface Objects {
  readonly service: Service
  readonly slices: readonly Slice[]
}

// A Service as a tenant may write it: any of the addresses in any of the fields.
function anyService(name: string, random: () => number): Objects {
  const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T
  const some = <T>(all: readonly T[], share: number): T[] => all.filter(() => random() < share)
  const born = pick(BIRTHS)
  const clusterIPs = [pick(INSIDE), ...(random() < 0.2 ? [pick(INSIDE)] : [])]
  const type = pick(['ClusterIP', 'NodePort', 'LoadBalancer'])
  const ports = some(PORTS, 0.7).map((port, i) => ({
    name: `p${port}`,
    port,
    protocol: pick(['TCP', 'UDP']),
    ...(type !== 'ClusterIP' && { nodePort: i === 0 ? pick(NODE_PORTS) : 30_100 }),
  }))
  const service = serviceOf({
    metadata: { namespace: 'x', name, ...(born && { creationTimestamp: born }) },
    spec: {
      type,
      clusterIPs: [...new Set(clusterIPs)],
      ports,
      externalIPs: some([...INSIDE, ...OUTSIDE], 0.2),
      ...(random() < 0.3 && { externalTrafficPolicy: 'Local', healthCheckNodePort: pick([30_200, 30_201]) }),
      ...(random() < 0.3 && { loadBalancerSourceRanges: some(['10.0.0.0/8', '172.16.0.0/12'], 0.8) }),
    },
    status: { loadBalancer: { ingress: some([...INSIDE, ...OUTSIDE], 0.2).map((ip) => ({ ip })) } },
  }) as Service
  const slices = some(['10.1.0.2', 'fd01::2'], 0.6).map(
    (ip) =>
      sliceOf({
        metadata: { namespace: 'x', name: `${name}-${ip[0]}`, labels: { 'kubernetes.io/service-name': name } },
        addressType: ip.includes(':') ? 'IPv6' : 'IPv4',
        ports: service.ports.map(({ name: port, protocol }) => ({
          name: port,
          protocol,
          port: 8000 + name.charCodeAt(0),
        })),
        endpoints: [{ addresses: [ip], nodeName: pick(['n1', 'n2']) }],
      }) as Slice,
  )
  return { service, slices }
}

function shuffled<T>(all: readonly T[], random: () => number): T[] {
  return all
    .map((one) => ({ one, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one)
}

/** The elements of nft that a history of changes leaves. */
class Kernel {
  readonly elements = new Map<string, string>()

  put(set: string, key: string, value = ''): void {
    this.elements.set(`${set} ${key}`, value)
  }

  remove(set: string, key: string): void {
    this.elements.delete(`${set} ${key}`)
  }
}

/** What a node makes of Services. */
class Node {
  readonly kernel = new Kernel()
  readonly wanted = new WantedElements(this.kernel)
  readonly reached = new ReachedAddresses()

  update(changes: ReadonlyMap<string, CompiledService | undefined>): void {
    this.reached.note(this.wanted.update(changes).values(), true)
    this.reached.shrink()
    this.reached.grow()
  }
}

// Everything that the result is about, in an order of its own.
function stateOf({ wanted, reached, kernel: { elements } }: Node): object {
  const sorted = <T>(all: Iterable<readonly [string, T]>) => [...all].sort(([a], [b]) => (a < b ? -1 : 1))
  return {
    served: sorted(wanted.served),
    elements: sorted(elements),
    sources: sorted(wanted.sources()),
    health: sorted(wanted.health),
    reached: sorted([...(reached.all ?? [])].map(([ip, of]) => [ip, [...of]] as const)),
    conflicts: wanted.conflicts,
    shapes: wanted
      .shapes()
      .map((shape) => JSON.stringify(shape))
      .sort(),
  }
}

// All Services from nothing, each with a step of its own.
function fromNothing(all: readonly Objects[]): object {
  const node = new Node()
  for (const { service, slices } of all) node.update(new Map([[`x/${service.name}`, compile(service, slices, NODE)]]))
  return stateOf(node)
}

describe('an address that several Services name', () => {
  for (const seed of [1, 2, 3, 4, 5, 6, 7, 8])
    it(`the same Services have it after any history as after a start, in whatever order they come (seed ${seed})`, () => {
      const random = generator(seed)
      const [node, living] = [new Node(), new Map<string, Objects>()]
      const { wanted } = node
      for (let step = 0; step < 60; step++) {
        const changes = new Map<string, CompiledService | undefined>()
        for (const name of NAMES.filter(() => random() < 0.3)) {
          const key = `x/${name}`
          const next = random() < 0.25 ? undefined : anyService(name, random)
          if (next) living.set(name, next)
          else living.delete(name)
          changes.set(key, next && compile(next.service, next.slices, NODE, wanted.of(key)))
        }
        node.update(changes)
        assert.deepEqual(stateOf(node), fromNothing(shuffled([...living.values()], random)), `step ${step}`)
        for (const [name, { cluster }] of wanted.served) {
          const [, ip = ''] = /^vip[46] (\S+) /.exec(name) ?? []
          const owners = [...living.values()].filter(({ service }) => service.clusterIPs.some((one) => one === ip))
          if (owners.length === 0) continue
          const own = owners.map(({ service }) => `8${service.name.charCodeAt(0).toString().padStart(3, '0')}`)
          for (const endpoint of cluster)
            assert.ok(
              own.some((port) => endpoint.endsWith(` . ${port}`)),
              `step ${step}: ${name} leads to ${endpoint}`,
            )
        }
      }
    })
})
