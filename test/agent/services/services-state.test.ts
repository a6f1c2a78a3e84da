// lane: quick
// Tests agent/services/state.ts and view.ts: objects in, what is wanted out.
import assert from 'node:assert/strict'
import type { KindName, Values } from '../../../agent/cluster/kinds.ts'
import { clusterNodeOf } from '../../../agent/cluster/objects.ts'
import { serviceCidrOf, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { noObjects } from '../../../agent/cluster/source.ts'
import { ServicesState } from '../../../agent/services/state.ts'
import { SHAPES } from '../../../agent/services/table.ts'
import { addressProblems, objectProblems, translationOf, viewsOf } from '../../../agent/services/view.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'
import { generator } from '../../support/random.ts'

const POD_NETWORKS = [parseCidr('10.244.0.0/16')]

/** The objects of a cluster, and the state that follows them. `get` counts how often each object was read. */
class World {
  readonly #objects = noObjects() as unknown as Record<KindName, Map<string, unknown>>
  readonly #read = new Map<string, number>()
  #changed = new Map<KindName, Set<string>>()
  isComplete: (kinds: readonly KindName[]) => boolean = () => true
  trouble: string | undefined
  readonly state: ServicesState

  constructor(nodePortAddresses: 'primary' | [] = []) {
    const services = this.#objects.services
    const { get } = services
    services.get = (key) => {
      this.#read.set(key, (this.#read.get(key) ?? 0) + 1)
      return get.call(services, key)
    }
    const known = {
      objects: this.#objects as never,
      isComplete: (kinds: readonly KindName[]) => this.isComplete(kinds),
      trouble: () => this.trouble,
      refused: () => ['Service x/wrong: spec.ports 0: want a port'],
    }
    const options = { nodePortAddresses, serviceCidrs: [], clusterCidrs: [] }
    this.state = new ServicesState(known, 'n1', options, POD_NETWORKS)
  }

  /** An object comes, changes, or goes when there is no value. The state does not see it before `step`. */
  set<K extends KindName>(kind: K, key: string, value?: Values[K]): this {
    if (value === undefined) this.#objects[kind].delete(key)
    else this.#objects[kind].set(key, value)
    this.#changed.set(kind, (this.#changed.get(kind) ?? new Set()).add(key))
    return this
  }

  service(name: string, spec: object = {}): this {
    const { createdAt, ...rest } = { clusterIP: VIPS[name], ports: [{ port: 80 }], ...spec } as Record<string, unknown>
    const meta = { namespace: 'x', name, ...(createdAt !== undefined && { creationTimestamp: createdAt }) }
    return this.set('services', `x/${name}`, serviceOf({ metadata: meta, spec: rest }))
  }

  /** Endpoints are addresses on another node, or on this one with `@n1`. `service` is the label of the slice. */
  slice(name: string, service: string, ...endpoints: readonly string[]): this {
    return this.set('slices', `x/${name}`, sliceOf(sliceManifest(name, service, endpoints)))
  }

  node(labels: Readonly<Record<string, string>>, ...ips: readonly string[]): this {
    const addresses = ips.map((address) => ({ type: 'InternalIP', address }))
    return this.set('nodes', 'n1', clusterNodeOf({ metadata: { name: 'n1', labels }, status: { addresses } }))
  }

  /** The names of the frontends that changed. */
  step(): string[] {
    const changed = this.#changed
    this.#changed = new Map()
    return [...this.state.apply(changed).keys()].sort()
  }

  /** The Services whose objects were read since the last call. */
  takeRead(): string[] {
    const all = [...this.#read.keys()].sort()
    this.#read.clear()
    return all
  }

  /** The wanted elements: `svc4 10.96.0.1 . tcp . 80 : goto vip4_tcp_1`. */
  elements(): string[] {
    const { elements } = this.state
    return Object.keys(SHAPES)
      .flatMap((set) => [...elements.wanted(set)].map(([key, value]) => `${set} ${key}${value && ` : ${value}`}`))
      .sort()
  }
}

const VIPS: Readonly<Record<string, string>> = { a: '10.96.0.1', b: '10.96.0.2', c: '10.96.0.3' }
function sliceManifest(name: string, service: string, endpoints: readonly string[], more: object = {}): object {
  return {
    metadata: { namespace: 'x', name, labels: { 'kubernetes.io/service-name': service }, ...more },
    addressType: 'IPv4',
    ports: [{ name: '', port: 8080 }],
    endpoints: endpoints.map((one) => {
      const [ip, nodeName = 'n2'] = one.split('@')
      return { addresses: [ip], nodeName }
    }),
  }
}
const served = (ip: string, ...endpoints: readonly string[]) => [
  ...endpoints.map((endpoint, slot) => `eps4tcp ${ip} . 80 . ${slot} : ${endpoint} . 8080`),
  `svc4 ${ip} . tcp . 80 : goto vip4_tcp_${endpoints.length}`,
  `vips4 ${ip}`,
]
const refused = (ip: string) => [`none4 ${ip} . tcp . 80`, `vips4 ${ip}`]

describe('the state of Services', () => {
  it('slices of a Service that is not known yet want nothing, and serve it as soon as it comes', () => {
    const world = new World().slice('a-1', 'a', '10.1.0.2')
    assert.deepEqual([world.step(), world.elements()], [[], []])
    world.service('a')
    assert.deepEqual(world.step(), ['vip4 10.96.0.1 . tcp . 80'])
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.2'))
  })

  it('a Service without slices refuses its clients until the first endpoint comes', () => {
    const world = new World().service('a')
    world.step()
    assert.deepEqual(world.elements(), refused('10.96.0.1'))
    world.slice('a-1', 'a', '10.1.0.2').step()
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.2'))
    world.slice('a-1', 'a').step()
    assert.deepEqual(world.elements(), refused('10.96.0.1'))
  })

  it('an endpoint that goes leaves its slot to the last one, and the others keep theirs', () => {
    const world = new World().service('a').slice('a-1', 'a', '10.1.0.2', '10.1.0.3', '10.1.0.4')
    world.step()
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.2', '10.1.0.3', '10.1.0.4'))
    world.slice('a-1', 'a', '10.1.0.3', '10.1.0.4')
    assert.deepEqual(world.step(), ['vip4 10.96.0.1 . tcp . 80'])
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.4', '10.1.0.3'))
  })

  it('endpoints of several slices count together, and a slice that goes takes its own', () => {
    const world = new World().service('a').slice('a-1', 'a', '10.1.0.2').slice('a-2', 'a', '10.1.0.3')
    world.step()
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.2', '10.1.0.3'))
    world.set('slices', 'x/a-1').step()
    assert.deepEqual(world.elements(), served('10.96.0.1', '10.1.0.3'))
  })

  it('a Service that is deleted and made again is served by the slices that stayed', () => {
    const world = new World().service('a').slice('a-1', 'a', '10.1.0.2')
    world.step()
    world.set('services', 'x/a').step()
    assert.deepEqual(world.elements(), [])
    assert.deepEqual(world.state.counts(), { services: 0, frontends: 0, endpoints: 0 })
    world.service('a', { clusterIP: '10.96.0.9' }).step()
    assert.deepEqual(world.elements(), served('10.96.0.9', '10.1.0.2'))
    assert.deepEqual(world.state.counts(), { services: 1, frontends: 1, endpoints: 1 })
  })

  it('a slice that is deleted while its Service is away does not come back with it', () => {
    const world = new World().service('a').slice('a-1', 'a', '10.1.0.2')
    world.step()
    world.set('services', 'x/a').step()
    world.set('slices', 'x/a-1').step()
    world.service('a').step()
    assert.deepEqual(world.elements(), refused('10.96.0.1'))
  })

  it('a deletion and a new object of the same name within one step are a change', () => {
    const world = new World().service('a').slice('a-1', 'a', '10.1.0.2')
    world.step()
    world
      .set('services', 'x/a')
      .set('slices', 'x/a-1')
      .service('a', { ports: [{ port: 81 }] })
    world.step()
    assert.deepEqual(world.elements(), ['none4 10.96.0.1 . tcp . 81', 'vips4 10.96.0.1'])
  })

  it('a slice that gets the label of another Service leaves the first one', () => {
    const world = new World().service('a').service('b').slice('one', 'a', '10.1.0.2')
    world.step()
    world.slice('one', 'b', '10.1.0.2')
    assert.deepEqual(world.step(), ['vip4 10.96.0.1 . tcp . 80', 'vip4 10.96.0.2 . tcp . 80'])
    assert.deepEqual(world.elements(), [...refused('10.96.0.1'), ...served('10.96.0.2', '10.1.0.2')].sort())
  })

  it('a change looks at its own Service alone, and a change of the Node that matters looks at all', () => {
    const world = new World().service('a').service('b').service('c').slice('a-1', 'a', '10.1.0.2')
    world.step()
    world.takeRead()
    world.slice('a-1', 'a', '10.1.0.3').step()
    assert.deepEqual(world.takeRead(), ['x/a'])
    world.node({}, '192.0.2.1').step()
    assert.deepEqual(world.takeRead(), ['x/a', 'x/b', 'x/c'])
    world.node({ unrelated: 'yes' }, '192.0.2.1').step()
    assert.deepEqual(world.takeRead(), [])
  })

  it('hints for a zone count from the moment when the Node of this name tells its zone', () => {
    const zones = (ip: string, zone: string) => ({ addresses: [ip], hints: { forZones: [{ name: zone }] } })
    const manifest = sliceManifest('a-1', 'a', [])
    const endpoints = [zones('10.1.0.2', 'east'), zones('10.1.0.3', 'west')]
    const world = new World().service('a').set('slices', 'x/a-1', sliceOf({ ...manifest, endpoints }))
    world.step()
    assert.deepEqual(world.elements(), [
      ...['eps4tcp 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080', 'eps4tcp 10.96.0.1 . 80 . 1 : 10.1.0.3 . 8080'],
      ...['hairpin4 10.1.0.2 . 10.1.0.2', 'hairpin4 10.1.0.3 . 10.1.0.3'],
      ...['svc4 10.96.0.1 . tcp . 80 : goto vip4_tcp_2', 'vips4 10.96.0.1'],
    ])
    world.node({ 'topology.kubernetes.io/zone': 'west' }).step()
    assert.ok(world.elements().includes('eps4tcp 10.96.0.1 . 80 . 0 : 10.1.0.3 . 8080'))
    assert.deepEqual(world.state.counts(), { services: 1, frontends: 1, endpoints: 1 })
  })

  it('a node serves clients from outside unless its Node says otherwise, also while the Node is not known', () => {
    const world = new World()
    assert.deepEqual([world.state.isForOutside, world.state.isLeaving], [true, false])
    world.node({ 'node.kubernetes.io/exclude-from-external-load-balancers': '' })
    assert.equal(world.state.isForOutside, false)
    const taints = [{ key: 'ToBeDeletedByClusterAutoscaler' }]
    world.set('nodes', 'n1', clusterNodeOf({ metadata: { name: 'n1' }, spec: { taints } }))
    assert.deepEqual([world.state.isForOutside, world.state.isLeaving], [true, true])
  })

  it('the first change of a slice since the last call is when the wait for the kernel began', () => {
    const at = (name: string, time: string) => {
      const annotations = { 'endpoints.kubernetes.io/last-change-trigger-time': time }
      return sliceOf(sliceManifest(name, 'a', ['10.1.0.2'], { annotations }))
    }
    const [first, second, third] = ['2026-01-01T00:00:01Z', '2026-01-01T00:00:02Z', '2026-01-01T00:00:03Z'] as const
    const world = new World().service('a').set('slices', 'x/a-1', at('a-1', first))
    world.step()
    world.set('slices', 'x/a-1', at('a-1', second)).set('slices', 'x/a-2', at('a-2', third))
    world.step()
    assert.deepEqual(world.state.takeTriggered(), [first, third].map(Date.parse))
    assert.deepEqual(world.state.takeTriggered(), [])
    world.set('slices', 'x/a-1', at('a-1', second)).step()
    // A slice that is gone waits for nothing.
    world.set('slices', 'x/a-1').step()
    assert.deepEqual(world.state.takeTriggered(), [])
  })

  for (const seed of [1, 2, 3, 4, 5, 6])
    it(`the same objects want the same elements, whatever came before and in whatever steps (seed ${seed})`, () => {
      const random = generator(seed)
      const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T
      const world = new World()
      const objects = new Map<string, (one: World) => World>()
      const change = () => {
        const [name, ip] = [pick(['a', 'b', 'c']), `10.1.0.${2 + Math.floor(random() * 4)}`]
        const key = pick([`services x/${name}`, `slices x/${pick(['one', 'two', 'three'])}`])
        const [kind, id] = key.split(' ') as ['services' | 'slices', string]
        const make = (one: World) =>
          kind === 'services' ? one.service(name) : one.slice(id.slice(2), name, ip, '10.1.0.9@n1')
        if (random() < 0.3) {
          objects.delete(key)
          world.set(kind, id)
        } else {
          objects.set(key, make)
          make(world)
        }
      }
      for (let i = 0; i < 200; i++) {
        change()
        if (random() < 0.5) world.step()
      }
      world.step()
      const fresh = new World()
      for (const make of objects.values()) make(fresh).step()
      // Endpoints that stay keep their slots, so that the order of slots is a history's own.
      const withoutSlots = (one: World) =>
        one
          .elements()
          .map((text) => text.replace(/^(eps4tcp \S+ \. 80) \. \d+/, '$1'))
          .sort()
      assert.deepEqual(withoutSlots(world), withoutSlots(fresh))
      assert.deepEqual(viewsOf(world.state), viewsOf(fresh.state))
    })
})

describe('what is not known of Services', () => {
  it('is known when Services, slices and Nodes are; ServiceCIDRs may come later', () => {
    const world = new World()
    world.isComplete = (kinds) => kinds.every((kind) => kind === 'services' || kind === 'slices')
    assert.equal(world.state.isKnown, false)
    world.isComplete = (kinds) => !kinds.includes('serviceCidrs')
    assert.equal(world.state.isKnown, true)
    assert.equal(world.state.addresses().clusterIPs, undefined)
  })

  it('networks of ClusterIPs that nobody could read are not known, and the reason is named once they are asked for', () => {
    const world = new World()
    world.isComplete = (kinds) => !kinds.includes('serviceCidrs')
    world.trouble = 'the API refuses it'
    const { clusterIPs, problems } = world.state.addresses()
    assert.equal(clusterIPs, undefined)
    assert.match(problems.join(), /^ServiceCIDR objects are not known.*the API refuses it/)
    world.isComplete = () => true
    world.set('serviceCidrs', 'k', serviceCidrOf({ metadata: { name: 'k' }, spec: { cidrs: ['10.96.0.0/12'] } }))
    assert.deepEqual(world.state.addresses().clusterIPs, ['10.96.0.0/12'])
  })

  it('addresses of NodePorts are those of the Node, without it those of the uplink, and without both not known', () => {
    const world = new World('primary')
    assert.equal(world.state.addresses().primary, undefined)
    const subnets = { v4: parseCidr('10.244.3.0/24') }
    const tunnel = { v4: parseIp('198.51.100.1') }
    const { own, inside, primary } = world.state.addresses(subnets, tunnel)
    assert.deepEqual([own, inside], [['10.244.3.0/24'], ['10.244.3.0/24', '10.244.0.0/16']])
    assert.deepEqual(primary, ['198.51.100.1'])
    world.node({}, '192.0.2.1').step()
    assert.deepEqual(world.state.addresses(subnets, tunnel).primary, ['192.0.2.1'])
  })

  it('objects that may be out of date and those that nobody can read are named, twenty at most', () => {
    const { state } = new World()
    assert.deepEqual(objectProblems(state), [
      'Service x/wrong: spec.ports 0: want a port; the other objects are programmed',
    ])
    const many = Array.from({ length: 30 }, (_, n) => `Service x/${n}: wrong`)
    const texts = objectProblems({ trouble: 'the API does not answer', refused: many })
    assert.equal(texts.length, 21)
    assert.equal(texts[0], 'the API does not answer; the last known objects are programmed')
  })
})

describe('what people see of Services', () => {
  const world = new World()
    .service('a', { ports: [{ port: 80, nodePort: 30_080 }], type: 'NodePort' })
    .slice('a-1', 'a', '10.1.0.2', '10.1.0.3')
  world.step()
  const to = (ip: string, port: number, isOfNode = false) =>
    translationOf(world.state.wanted, { ip: parseIp(ip), protocol: 'TCP', port }, isOfNode, [parseCidr('10.96.0.0/12')])
  const endpoints = [
    { ip: '10.1.0.2', port: 8080 },
    { ip: '10.1.0.3', port: 8080 },
  ]

  it('packets to a ClusterIP and to a NodePort of this node go to the endpoints', () => {
    assert.deepEqual(to('10.96.0.1', 80), { what: "10.96.0.1 port 80/TCP is a Service's", endpoints })
    assert.deepEqual(to('192.0.2.1', 30_080, true), { what: '192.0.2.1 port 30080/TCP is a NodePort', endpoints })
  })

  it('packets to another port of a ClusterIP and to a ClusterIP of no Service go nowhere, and all others are left alone', () => {
    assert.deepEqual(to('10.96.0.1', 81), { what: '10.96.0.1 port 81/TCP is no port of the Service', endpoints: [] })
    assert.deepEqual(to('10.97.0.1', 80), { what: '10.97.0.1 is a ClusterIP of no Service', endpoints: [] })
    assert.equal(to('192.0.2.9', 30_080), undefined)
    assert.equal(to('192.0.2.1', 30_081, true), undefined)
  })

  it('of more than twenty addresses that another Service has, the rest is counted', () => {
    const crowd = new World()
    const externalIPs = Array.from({ length: 25 }, (_, n) => `192.0.2.${n + 1}`)
    crowd.service('a', { externalIPs }).service('b', { externalIPs }).step()
    const texts = addressProblems(crowd.state, { problems: ['and one more thing'] })
    assert.match(
      texts[0] ?? '',
      /^Service x\/b does not get 192\.0\.2\.\d+ port 80\/TCP of its externalIPs: Service x\/a has it/,
    )
    assert.deepEqual(texts.slice(20), ['5 more: plumb services names them', 'and one more thing'])
    assert.deepEqual(
      viewsOf(crowd.state).map(({ name, lost }) => [name, lost?.length]),
      [
        ['a', undefined],
        ['b', 25],
      ],
    )
  })
})
