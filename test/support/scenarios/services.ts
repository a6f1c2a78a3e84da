// Scenarios of Services, on the agent's node.
import type { Changes } from '../../../agent/cluster/changes.ts'
import type { Elements } from '../../../agent/kernel/elements.ts'
import { networksOf } from '../../../agent/lease/network-configuration.ts'
import { type Reached, ReachedAddresses } from '../../../agent/services/reached.ts'
import { SERVICE_KINDS, ServicesState } from '../../../agent/services/state.ts'
import { addressLines, baseChains, declaration, shapeChains, sources } from '../../../agent/services/table.ts'
import { viewsOf } from '../../../agent/services/view.ts'
import type { ServicesSettings } from '../../../agent/settings/settings.ts'
import { detailText, servicesText } from '../../../cli/services.ts'
import { frontendsIn } from './frontends.ts'
import type { Run, Subject } from './run.ts'
import { Wrong } from './run.ts'
import type { Section } from './scenario.ts'
import { byFamily, GIVEN, World } from './world.ts'

/** Scenarios of Services. */
export const services: Subject = {
  given: GIVEN,
  wanted: ['frontends', 'elements', 'nft', 'reached', 'plumb services', 'plumb services '],
  start: () => new ServicesRun(),
}

/** What the agent's node makes of Services: its own state, without a kernel. */
export class NodeServices {
  readonly #world: World
  readonly #changes: Changes
  readonly #reached = new ReachedAddresses()
  #state: ServicesState | undefined

  constructor(world: World) {
    this.#world = world
    this.#changes = world.changes(SERVICE_KINDS)
  }

  /** Takes what has changed. The settings are those of the first call. */
  follow(): ServicesState {
    const { node, network, objects } = this.#world
    const refused = () => this.#world.refused(SERVICE_KINDS)
    const known = { objects, isComplete: () => true, trouble: () => undefined, refused }
    this.#state ??= new ServicesState(known, node, this.options, networksOf(network))
    this.#reached.note(this.#state.apply(this.#changes.take()).values(), this.#state.isForOutside)
    this.#reached.shrink()
    this.#reached.grow()
    return this.#state
  }

  /** The addresses at which the node serves clients from outside. */
  get reached(): Reached {
    this.follow()
    return this.#reached.all ?? new Map()
  }

  /** The settings of Services. */
  get options(): ServicesSettings {
    return this.#world.settings.services as ServicesSettings
  }
}

class ServicesRun implements Run {
  readonly #world = new World()
  readonly #services = new NodeServices(this.#world)

  async take(section: Section): Promise<void> {
    // What comes then follows what the node has made of the sections before.
    if (section.name.startsWith('then')) this.#services.follow()
    await this.#world.take(section)
  }

  tell(name: string): readonly string[] {
    const state = this.#services.follow()
    if (name === 'frontends') return frontendsIn(state.elements, state.wanted)
    if (name === 'elements') return elementsIn(state.elements)
    if (name === 'nft') return this.#nft(state)
    if (name === 'reached') return [...this.#services.reached].map(([ip, of]) => `${ip}: ${of.join(', ')}`).sort()
    if (name === 'plumb services') return servicesText(viewsOf(state)).split('\n')
    const service = name.slice('plumb services '.length)
    const found = viewsOf(state).filter((one) => `${one.namespace}/${one.name}` === service)
    if (found.length === 0) throw new Wrong(-1, `there is no Service ${service}`)
    return found.map(detailText).join('\n\n').split('\n')
  }

  problems(): readonly string[] {
    const state = this.#services.follow()
    const lost = new Set(state.wanted.conflicts.map(({ text }) => text))
    return [...state.refused, ...lost, ...state.addresses().problems]
  }

  end(): void {
    this.#world.end()
  }

  // The tables without the elements of Services.
  #nft(state: ServicesState): string[] {
    const chains = new Map([...baseChains(this.#services.options), ...state.wanted.shapes().flatMap(shapeChains)])
    const own = this.#world.nodes().find(({ name }) => name === this.#world.node)?.subnets ?? []
    const addresses = addressLines(state.addresses(byFamily(own)))
    return [...declaration(chains), ...addresses, ...sources(state.wanted.sources())]
  }
}

function elementsIn(elements: Elements): string[] {
  const all = elements
    .names()
    .flatMap((set) => [...elements.wanted(set)].map(([key, value]) => `${set} { ${key}${value && ` : ${value}`} }`))
  return all.sort()
}
