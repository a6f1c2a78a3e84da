// Scenarios of Services, on the agent's node.
import type { Changes } from '../../../agent/cluster/changes.ts'
import type { Slice } from '../../../agent/cluster/services.ts'
import { Elements } from '../../../agent/kernel/elements.ts'
import { networksOf } from '../../../agent/lease/network-configuration.ts'
import { addressesOf } from '../../../agent/services/addresses.ts'
import { compile } from '../../../agent/services/compile.ts'
import type { NodeFacts } from '../../../agent/services/endpoints.ts'
import { ReachedAddresses } from '../../../agent/services/reached.ts'
import { SERVICE_KINDS } from '../../../agent/services/state.ts'
import {
  addressLines,
  baseChains,
  declaration,
  SHAPES,
  shapeChains,
  sources,
  TABLE,
} from '../../../agent/services/table.ts'
import { viewOf } from '../../../agent/services/view.ts'
import { WantedElements } from '../../../agent/services/wanted-elements.ts'
import type { ServicesSettings } from '../../../agent/settings/settings.ts'
import { detailText, servicesText } from '../../../cli/services.ts'
import { frontendsIn } from './frontends.ts'
import type { Run, Subject } from './run.ts'
import { Wrong } from './run.ts'
import type { Section } from './scenario.ts'
import { GIVEN, World } from './world.ts'

/** Scenarios of Services. */
export const services: Subject = {
  given: GIVEN,
  wanted: ['frontends', 'elements', 'nft', 'reached', 'plumb services', 'plumb services '],
  start: () => new ServicesRun(),
}

const ZONE = 'topology.kubernetes.io/zone'

/** What the agent's node makes of Services. */
export class NodeServices {
  readonly elements = new Elements(TABLE, SHAPES)
  readonly wanted = new WantedElements(this.elements)
  readonly reached = new ReachedAddresses()
  readonly #world: World
  readonly #changes: Changes

  constructor(world: World) {
    this.#world = world
    this.#changes = world.changes(SERVICE_KINDS)
  }

  /** The node as far as Services depend on it. */
  get node(): NodeFacts {
    const name = this.#world.node
    const { labels, ips } = this.#world.objects.nodes.get(name) ?? {}
    return { name, ...(labels?.[ZONE] !== undefined && { zone: labels[ZONE] }), ...(ips && { ips }) }
  }

  /** The slices of a Service, by `namespace/name`. */
  slicesOf(service: string): Slice[] {
    const all = [...this.#world.objects.slices].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, slice]) => slice)
    return all.filter((one) => `${one.namespace}/${one.service}` === service)
  }

  /** Takes what has changed. All Services are compiled again: they keep their slots. */
  follow(): void {
    const gone = this.#changes.take().get('services') ?? []
    const { services } = this.#world.objects
    const next = [...new Set([...gone, ...services.keys()])].map((key) => {
      const service = services.get(key)
      return [key, service && compile(service, this.slicesOf(key), this.node, this.wanted.of(key))] as const
    })
    this.reached.note(this.wanted.update(new Map(next)).values(), true)
    this.reached.shrink()
    this.reached.grow()
  }
}

class ServicesRun implements Run {
  readonly #world = new World()
  readonly #services = new NodeServices(this.#world)

  async take(section: Section): Promise<void> {
    await this.#world.take(section)
    this.#services.follow()
  }

  tell(name: string): readonly string[] {
    const { elements, wanted, reached } = this.#services
    if (name === 'frontends') return frontendsIn(elements, wanted)
    if (name === 'elements') return elementsIn(elements)
    if (name === 'nft') return this.#nft()
    if (name === 'reached') return [...(reached.all ?? [])].map(([ip, of]) => `${ip}: ${of.join(', ')}`).sort()
    if (name === 'plumb services') return servicesText(this.#views()).split('\n')
    const service = name.slice('plumb services '.length)
    const found = this.#views().filter((one) => `${one.namespace}/${one.name}` === service)
    if (found.length === 0) throw new Wrong(-1, `there is no Service ${service}`)
    return found.map(detailText).join('\n\n').split('\n')
  }

  problems(): readonly string[] {
    const lost = new Set(this.#services.wanted.conflicts.map(({ text }) => text))
    return [...this.#world.refused(SERVICE_KINDS), ...lost, ...this.#addresses().problems]
  }

  end(): void {
    this.#world.end()
  }

  #views() {
    const { wanted, node } = this.#services
    const conflicts = Map.groupBy(wanted.conflicts, ({ loser }) => loser)
    return [...this.#world.objects.services]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => viewOf(one, this.#services.slicesOf(key), node, undefined, conflicts.get(key)))
  }

  get #options(): ServicesSettings {
    return this.#world.settings.services as ServicesSettings
  }

  #addresses() {
    const { objects, network } = this.#world
    return addressesOf({
      options: this.#options,
      objects: objects.serviceCidrs.values(),
      pods: networksOf(network),
      node: this.#services.node,
      uplink: [],
    })
  }

  // The tables without the elements of Services.
  #nft(): string[] {
    const { wanted } = this.#services
    const chains = new Map([...baseChains(this.#options), ...wanted.shapes().flatMap(shapeChains)])
    const own = this.#world.nodes().find(({ name }) => name === this.#world.node)?.subnets ?? []
    const inside = [...new Set([...own, ...networksOf(this.#world.network), ...this.#options.clusterCidrs])]
    const addresses = addressLines({ own, inside, ...this.#addresses() })
    return [...declaration(chains), ...addresses, ...sources(wanted.sources())]
  }
}

function elementsIn(elements: Elements): string[] {
  const all = elements
    .names()
    .flatMap((set) => [...elements.wanted(set)].map(([key, value]) => `${set} { ${key}${value && ` : ${value}`} }`))
  return all.sort()
}
