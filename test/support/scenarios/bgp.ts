// Scenarios of BGP: what BIRD on the agent's node is told.

import { openBackend } from '../../../agent/backend/open.ts'
import type { Uplink } from '../../../agent/backend/uplink.ts'
import type { BirdConf } from '../../../agent/bgp/bird-conf.ts'
import { type BgpSource, readSource } from '../../../agent/bgp/source.ts'
import { type BgpInputs, wantedBird } from '../../../agent/bgp/state.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { networksOf } from '../../../agent/lease/network-configuration.ts'
import { isSix, networkOf } from '../../../lib/text/cidr.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { type Cidr, parseCidr } from '../../../lib/text/ip.ts'
import type { IfName } from '../../../lib/text/values.ts'
import { type Run, type Subject, Wrong } from './run.ts'
import type { Section } from './scenario.ts'
import { NodeServices } from './services.ts'
import { byFamily, GIVEN, World } from './world.ts'

/** Scenarios of BGP. */
export const bgp: Subject = {
  given: [...GIVEN, 'bgp.yaml', 'then: bgp.yaml'],
  wanted: ['bird.conf', 'sessions'],
  start: () => new BgpRun(),
}

const FILE = '/bgp.yaml'
const LINK = 'eth0' as IfName

class BgpRun implements Run {
  readonly #world = new World()
  readonly #services = new NodeServices(this.#world)
  #isGiven = false
  /** The file as it could be read last, and why it cannot be read now. */
  #source: BgpSource | undefined
  #why: string | undefined
  #problems: readonly string[] = []
  #made: BirdConf | undefined

  async take(section: Section): Promise<void> {
    if (section.name.startsWith('then')) this.#services.follow()
    if (!(await this.#world.take(section))) this.#write(section.text)
    if (!this.#isGiven) return
    this.#read()
    const { type, options } = this.#world.network.backend
    const backend = await openBackend(type)
    const { made, problems } = this.#source
      ? wantedBird(this.#source, this.#inputs(backend.byBird?.(backend.conf(options))))
      : { made: undefined, problems: [] }
    this.#made = made
    this.#problems = problems
  }

  tell(name: string): readonly string[] {
    if (!this.#made) throw new Wrong(-1, this.#why ?? 'there is no section bgp.yaml before this one')
    if (name === 'bird.conf') return this.#made.text.trimEnd().split('\n')
    const { sessions, announced } = this.#made
    const said = announced === 1 ? 'announces 1 prefix' : `announces ${announced} prefixes`
    return [...sessions.map(({ kind, name, address, asn }) => `${kind} ${name} at ${address}, AS ${asn}`), said]
  }

  problems(): readonly string[] {
    const refused = this.#world.refused(['nodes', 'services', 'slices'])
    return [...(this.#why === undefined ? [] : [this.#why]), ...refused, ...this.#problems]
  }

  end(): void {
    this.#world.end()
  }

  // The files that it names are files of the scenario.
  #write(text: string): void {
    this.#isGiven = true
    this.#world.write(
      FILE,
      text.replace(/(passwordFile: *)\//g, (_, key) => `${key}${this.#world.path('/')}`),
    )
  }

  #read(): void {
    this.#why = undefined
    try {
      this.#source = readSource(this.#world.path(FILE))
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      // An unreadable file changes nothing.
      this.#why = this.#world.shown(cause.message).replace(FILE, 'bgp.yaml')
    }
  }

  #inputs(byBird: BgpInputs['byBird']): BgpInputs {
    const { node, network, objects } = this.#world
    const leases = this.#world.nodes().flatMap(({ name, subnets, ips }): Lease[] => {
      const lease = {
        node: name,
        subnets: byFamily(subnets),
        ips: byFamily(ips),
        backend: network.backend.type,
        data: {},
      }
      return subnets.length > 0 || name === node ? [lease] : []
    })
    return {
      path: 'bgp.yaml',
      node,
      networks: networksOf(network),
      byBird,
      services: { reached: this.#services.reached },
      objects: { objects, isComplete: () => true, trouble: () => undefined },
      lease: leases.find((one) => one.node === node) ?? { node, subnets: {}, ips: {}, backend: '', data: {} },
      uplink: this.#uplink(),
      leases: leases.filter((one) => one.node !== node),
      isPatient: false,
      logFile: '/run/plumb/bird/bird.log',
    }
  }

  // The node's link has the /24 of its IPv4 address, and the /64 of its IPv6 address.
  #uplink(): Uplink {
    const { node, objects, settings } = this.#world
    const ips = objects.nodes.get(node)?.ips ?? []
    const tunnel = byFamily(ips)
    const advertise = { ...tunnel, ...settings.uplink.public, ...settings.uplink.advertise }
    const networks = ips.map((ip): Cidr => networkOf(parseCidr(`${ip}/${isSix(ip) ? 64 : 24}`)))
    const routes = networks.map((dst) => ({ dst, dev: LINK, gateway: false }))
    return { name: LINK, index: 2, mtu: 1500, tunnel, advertise, routes }
  }
}
