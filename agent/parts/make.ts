// Makes the parts of one run. Here it shows which part reads which groups of `Inputs`, and which part tells which other.

import type { Lease } from '../lease/lease.ts'
import type { Shared } from './base.ts'
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

/** What concerns many parts. */
export interface Links {
  readonly report: NodeReport
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
  const { report, uplinkLooked, served } = links
  const isBgpOn = cluster.bgp !== undefined
  const uplink = new UplinkPart({ ...self, ...network, ...kernel, ...reports, isBgpOn, uplinkLooked }, shared)
  const ofLease = { changed: () => files.queue.add('lease'), note: (text: string) => report.note(text) }
  const lease = new LeasePart({ ...self, ...network, ...leases, ...reports, ...ofLease }, shared)
  const files = new FilesPart({ ...network, ...paths, ...reports, served }, shared)
  const table = new TablePart({ ...network, ...kernel, firewall }, shared)
  const forward = new ForwardPart({ ...network, ...kernel, firewall }, shared)
  const ofTunnels = { tunnels: firewall.tunnels, others: () => bgp?.nodes ?? [] }
  const tunnels = new TunnelsPart({ ...network, ...leases, ...kernel, ...reports, ...ofTunnels }, shared)
  const pluginRules = new PluginRulesPart({}, shared)
  const leftTables = new LeftTablesPart({ ...cluster, ...network, ...kernel }, shared)
  const narrowed = () => fastPath.queue.add('path MTU')
  const peers = makePeers(inputs, shared, { ...links, narrowed }, () => bgp)
  const tables = [firewall.table, firewall.tunnels.table]
  const dataPath = new DataPathPart({ ...self, ...network, ...kernel, ...paths, ...reports, tables }, shared)
  const fastPath = new FastPathPart({ ...network, ...kernel }, shared)
  // What has ended may go on by the fast path, until the rules see each packet again.
  const ended = () => fastPath.renew()
  const policy = makePolicy(inputs, shared, ended)
  const services = makeServices(inputs, shared, ended)
  const bgp = makeBgp(inputs, shared, { report, peers, tunnels, services })
  const commands = makeCommands(inputs, shared)
  const installed = () => dataPath.queue.add('networks')
  const installation = new InstallationPart({ ...paths, ...links, installed }, shared)
  const first = { uplink, lease, files, table, forward, tunnels, pluginRules, leftTables, peers, dataPath, fastPath }
  return { ...first, policy, services, bgp, commands, installation }
}

function makePeers(
  { network, kernel, reports }: Inputs,
  shared: Shared,
  { report, peersChanged, narrowed }: Links & { narrowed(): void },
  bgp: () => BgpPart | undefined,
): PeersPart {
  const listener = {
    programs: () => bgp()?.programs ?? ('agent' as const),
    programmed: () => bgp()?.queue.add('programs'),
    changed: peersChanged,
    narrowed,
    note: (text: string, isNew: boolean) => report.note(text, isNew),
  }
  return new PeersPart({ ...network, ...kernel, ...reports, ...listener }, shared)
}

function makePolicy(
  { self, kernel, cluster, reports }: Inputs,
  shared: Shared,
  ended: () => Promise<void>,
): PolicyPart | undefined {
  const { objects, policy } = cluster
  return objects && policy && new PolicyPart({ ...self, ...kernel, ...reports, ...policy, objects, ended }, shared)
}

function makeServices(
  { self, kernel, cluster, reports, network }: Inputs,
  shared: Shared,
  ended: () => Promise<void>,
): ServicesPart | undefined {
  const { objects, services: settings } = cluster
  if (!objects || !settings) return undefined
  const { networks } = network.facts
  return new ServicesPart({ ...self, ...kernel, ...reports, objects, settings, networks, ended }, shared)
}

function makeBgp(
  { self, network, kernel, cluster, reports }: Inputs,
  shared: Shared,
  { report, peers, tunnels, services }: Pick<PartSet, 'peers' | 'tunnels' | 'services'> & Pick<Links, 'report'>,
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
  return new BgpPart({ ...given, ...listener }, shared)
}

function makeCommands({ network, kernel, files, reports }: Inputs, shared: Shared): CommandsPart | undefined {
  const commands = network.backend.commands?.of(network.options)
  return commands && new CommandsPart({ ...network, ...kernel, ...files, ...reports, commands }, shared)
}
