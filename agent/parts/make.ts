// Makes the parts of one run. Here it shows which part reads which groups of `Inputs`, and which part tells which other.

import type { Lease } from '../lease/lease.ts'
import { makeQueue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'
import { BgpPart } from './bgp.ts'
import { CommandsPart } from './commands.ts'
import { DataPathPart } from './data-path.ts'
import { FastPathPart } from './fast-path.ts'
import { FilesPart } from './files.ts'
import { ForwardPart, TablePart } from './firewall.ts'
import type { Inputs } from './inputs.ts'
import { InstallationPart } from './installation.ts'
import { LeasePart } from './lease.ts'
import { LeftTablesPart } from './left-tables.ts'
import type { NodeReport } from './node-report.ts'
import { PeersPart } from './peers.ts'
import { PluginRulesPart } from './plugin-rules.ts'
import { PolicyPart } from './policy.ts'
import type { Repairs } from './repairs.ts'
import { ServicesPart } from './services.ts'
import { TunnelsPart } from './tunnels.ts'
import { UplinkPart } from './uplink.ts'

/** All parts of one run. A part is absent when the settings or the backend do not have its task. */
export interface PartSet {
  readonly uplink: UplinkPart
  readonly lease: LeasePart
  readonly files: FilesPart
  readonly table: TablePart
  readonly forward: ForwardPart
  readonly tunnels: TunnelsPart
  readonly pluginRules: PluginRulesPart
  readonly leftTables: LeftTablesPart
  readonly peers: PeersPart
  readonly dataPath: DataPathPart
  readonly fastPath: FastPathPart
  readonly policy: PolicyPart | undefined
  readonly services: ServicesPart | undefined
  readonly bgp: BgpPart | undefined
  readonly commands: CommandsPart | undefined
  readonly installation: InstallationPart
}

/** What the parts of one run share. */
export interface Shared {
  readonly now: NodeState
  readonly repairs: Repairs
  readonly report: NodeReport
  /** Ends with the run. */
  readonly signal: AbortSignal
}

/** What concerns many parts. */
export interface Links {
  /** The uplink was chosen, perhaps as before. */
  readonly uplinkLooked: () => void
  /** The files have this lease. Routes and rules are made for it. */
  readonly served: (lease: Lease) => void
  /** Other peers can be probed. */
  readonly peersChanged: () => void
  /** All parts but the installation have done their work. */
  readonly isTime: () => boolean
}

/** Makes the parts. */
export function makeParts(inputs: Inputs, shared: Shared, links: Links): PartSet {
  const { self, network, leases, kernel, files: paths, firewall, cluster, reports } = inputs
  const { now, repairs, report, signal } = shared
  const queue = () => makeQueue(signal)
  const ofUplink = { ...self, ...network, ...kernel, ...reports, isBgpOn: cluster.bgp !== undefined }
  const uplink = new UplinkPart(ofUplink, now, queue(), links.uplinkLooked)
  const lease = new LeasePart({ ...self, ...network, ...leases, ...reports }, now, queue(), {
    changed: () => files.queue.add('lease'),
    note: (text) => report.note(text),
  })
  const files = new FilesPart({ ...network, ...paths, ...reports }, now, queue(), repairs, links.served)
  const table = new TablePart({ ...network, ...kernel, firewall }, now, queue(), repairs)
  const forward = new ForwardPart({ ...network, ...kernel, firewall }, now, queue(), repairs)
  const { tunnels: refusing } = firewall
  const others = () => bgp?.nodes ?? []
  const ofTunnels = { ...network, ...leases, ...kernel, ...reports, tunnels: refusing, others }
  const tunnels = new TunnelsPart(ofTunnels, now, queue(), repairs)
  const pluginRules = new PluginRulesPart(queue(), repairs)
  const leftTables = new LeftTablesPart({ ...cluster, ...network, ...kernel }, queue())
  const peers = makePeers(inputs, shared, links, () => bgp)
  const ofDataPath = { ...self, ...network, ...kernel, ...paths, ...reports, tables: [firewall.table, refusing.table] }
  const dataPath = new DataPathPart(ofDataPath, now, queue(), repairs)
  const fastPath = new FastPathPart({ ...network, ...kernel }, now, queue(), repairs)
  const policy = makePolicy(inputs, shared, fastPath)
  const services = makeServices(inputs, shared, fastPath)
  const bgp = makeBgp(inputs, shared, { peers, tunnels, services })
  const commands = makeCommands(inputs, shared)
  const ofInstallation = { ...paths, ...links, installed: () => dataPath.queue.add('networks') }
  const installation = new InstallationPart(ofInstallation, now, queue(), repairs)
  const first = { uplink, lease, files, table, forward, tunnels, pluginRules, leftTables, peers, dataPath, fastPath }
  return { ...first, policy, services, bgp, commands, installation }
}

function makePeers(
  { network, kernel, reports }: Inputs,
  { now, repairs, report, signal }: Shared,
  links: Links,
  bgp: () => BgpPart | undefined,
): PeersPart {
  const listener = {
    programs: () => bgp()?.programs ?? ('agent' as const),
    programmed: () => bgp()?.queue.add('programs'),
    changed: links.peersChanged,
    note: (text: string, isNew: boolean) => report.note(text, isNew),
  }
  return new PeersPart({ ...network, ...kernel, ...reports, ...listener }, now, makeQueue(signal), repairs)
}

// What has ended may go on by the fast path, until the rules see each packet again.
function endsOf(fastPath: FastPathPart): { ended(): Promise<void> } {
  return { ended: () => fastPath.renew() }
}

function makePolicy(
  { self, kernel, cluster, reports }: Inputs,
  shared: Shared,
  fastPath: FastPathPart,
): PolicyPart | undefined {
  const { objects, policy } = cluster
  const { now, repairs, signal } = shared
  if (!objects || !policy) return undefined
  const given = { ...self, ...kernel, ...reports, ...policy, ...endsOf(fastPath) }
  return new PolicyPart(given, objects, now, makeQueue(signal), repairs)
}

function makeServices(
  inputs: Inputs,
  { now, repairs, signal }: Shared,
  fastPath: FastPathPart,
): ServicesPart | undefined {
  const { self, kernel, cluster, reports, network } = inputs
  const { objects, services: settings } = cluster
  if (!objects || !settings) return undefined
  const given = { ...self, ...kernel, ...reports, objects, settings, networks: network.facts.networks }
  return new ServicesPart({ ...given, ...endsOf(fastPath) }, now, makeQueue(signal), repairs)
}

function makeBgp(
  { self, network, kernel, cluster, reports }: Inputs,
  { now, report, signal }: Shared,
  { peers, tunnels, services }: Pick<PartSet, 'peers' | 'tunnels' | 'services'>,
): BgpPart | undefined {
  const { bgp, objects } = cluster
  const { backend, options, facts } = network
  if (!bgp) return undefined
  const ofNetwork = { networks: facts.networks, backendType: backend.type, byBird: backend.byBird?.(options) }
  const listener = {
    changed: () => report.publish(),
    programsChanged: () => peers.queue.add('programs'),
    nodesChanged: () => tunnels.queue.add('BGP'),
  }
  const given = { ...self, ...kernel, ...reports, ...ofNetwork, path: bgp.file, dir: bgp.dir, services, objects }
  return new BgpPart({ ...given, ...listener }, now, makeQueue(signal))
}

function makeCommands({ network, kernel, files, reports }: Inputs, { now, signal }: Shared): CommandsPart | undefined {
  const commands = network.backend.commands?.of(network.options)
  if (!commands) return undefined
  const given = { ...network, ...kernel, ...files, ...reports }
  return new CommandsPart(given, commands, now, makeQueue(signal), signal)
}
