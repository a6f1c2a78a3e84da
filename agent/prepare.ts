import { log, warn } from '../lib/os/log.ts'
import { ValueError } from '../lib/text/errors.ts'
import { unreadKeys } from './backend/open.ts'
import { makeProbes } from './backend/probes.ts'
import { existingDevices, leaveExtension, nexthops, runStartCommand, storedOfNode } from './backend-start.ts'
import { removeBird } from './bgp/bird.ts'
import { FORMER_POLICY_KINDS, type KindName } from './cluster/kinds.ts'
import { type ObjectSource, type ObjectsWish, openObjects } from './cluster/source.ts'
import { listsReader } from './doctor/facts/lists.ts'
import { birdDir, instanceOf, scopeOf, tableOf, tunnelsOf, wishOf } from './instance.ts'
import { Converger } from './kernel/converge.ts'
import { run } from './kernel/run.ts'
import { type NetworkConf, networksOf } from './lease/network-configuration.ts'
import { type OpenedBackend, openBackendOf, reportKeys, takeConfiguration } from './network.ts'
import { makeIdentity, type NodeSubnet, readSubnetEnv, statePath } from './node/files.ts'
import { makeReadinessNotifier } from './node/systemd.ts'
import type {
  ClusterInputs,
  FileInputs,
  FirewallInputs,
  Inputs,
  KernelInputs,
  NetworkInputs,
  Reports,
  SelfInputs,
} from './parts/inputs.ts'
import { POLICY_KINDS } from './policy/state.ts'
import { reinstall, settle, writeNode } from './ready.ts'
import type { Failure } from './scheduler/failures.ts'
import { kubeProxyRules } from './services/kube-proxy.ts'
import { SERVICE_KINDS } from './services/state.ts'
import type { KubeSettings, Settings } from './settings/settings.ts'
import type { Checkpoint, LastKnown } from './store/last-known.ts'
import type { Remembered, SubnetStore } from './store/store.ts'

/** The values that exist before the network configuration is known. */
export interface Ground extends Pick<Reports, 'changed' | 'refused' | 'failures'> {
  readonly settings: Settings
  readonly version: string
  readonly store: SubnetStore
  /** The state of the network that the previous run kept on disk. */
  known(): LastKnown | undefined
  readonly checkpoint: Checkpoint
  readonly before: NodeSubnet | undefined
  /** The configuration to begin with, when a change of it is followed. Otherwise the store is asked. */
  readonly accepted: NetworkConf | undefined
  readonly signal: AbortSignal
}

/**
 * Waits for the network configuration and for working tools. When the store does not answer, it uses the last known
 * configuration. It calls `awaiting` with the reason as long as it waits. Throws ValueError for a wrong configuration.
 */
export async function prepare(ground: Ground, awaiting: (text: string) => void): Promise<Inputs> {
  const { settings, store, known, signal, checkpoint, failures, changed, refused } = ground
  const taken = await takeConfiguration(ground, known, signal, awaiting)
  const { conf } = taken
  store.use?.(conf)
  await refuseKubeProxy(settings)
  // What an agent with another setting has left.
  if (!settings.bgp) for (const line of await removeBird(birdDir(settings), run)) log(`agent: BGP is off: ${line}`)
  const opened = await readyBackend(ground, conf, awaiting)
  const stored = await storedOfNode(store, signal, awaiting)
  return {
    self: selfOf(ground, stored),
    network: await networkOf(ground, conf, opened, stored, awaiting),
    leases: {
      store,
      renewMarginMs: settings.store.kind === 'etcd' ? settings.store.renewMarginMs : 0,
      ...('leases' in taken && { stale: taken }),
      checkpoint: (lately) => checkpoint.save({ conf, ...lately }),
    },
    kernel: kernelOf(ground, conf, opened),
    files: filesOf(ground, conf),
    firewall: firewallOf(settings),
    cluster: clusterOf(ground, opened),
    reports: {
      failures,
      changed,
      refused,
      condition: makeReadinessNotifier(),
      log: (text) => log(text),
      warn: (text) => warn(text),
    },
  }
}

// The backend of the configuration with its options, when it has all that it needs.
async function readyBackend(
  { settings, failures, signal }: Ground,
  conf: NetworkConf,
  awaiting: (text: string) => void,
): Promise<OpenedBackend> {
  const { node, files, network } = settings
  const { backend, options } = await openBackendOf(conf, settings)
  const equipped = backend.equip?.(options, { stateDir: files.stateDir, node }) ?? options
  for (const note of new Set([...(conf.notes ?? []), ...unreadKeys(conf, backend)]))
    log(`agent: the network's configuration: ${note}`)
  reportKeys(failures, conf, backend)
  if (!backend.commands) await leaveExtension(addedPeersOf(settings), network.allowExtension, signal, awaiting)
  return { backend, options: await runStartCommand({ backend, options: equipped }, signal, awaiting) }
}

function selfOf({ settings, version, before }: Ground, stored: Remembered): SelfInputs {
  const identity = makeIdentity(settings.files.stateDir)
  return {
    node: settings.node,
    ...(identity !== undefined && { identity }),
    version,
    wish: wishOf(settings, stored.addresses),
    before: before?.subnet ?? readSubnetEnv(settings.files.subnetEnv).subnet,
  }
}

async function networkOf(
  { settings, failures, signal }: Ground,
  conf: NetworkConf,
  { backend, options }: OpenedBackend,
  stored: Remembered,
  awaiting: (text: string) => void,
): Promise<NetworkInputs> {
  const { network, bgp } = settings
  const links = backend.links(options)
  const unasked = (why: string | undefined) => failures.report('probes', why === undefined ? [] : [probesFailure(why)])
  return {
    conf,
    backend,
    options,
    facts: {
      instance: instanceOf(settings),
      nexthops: await nexthops(signal, awaiting),
      networks: networksOf(conf),
      existing: new Map([...(backend.existing?.(options, stored.data) ?? []), ...existingDevices(links)]),
    },
    allowOverlap: network.allowOverlap,
    fastPath: network.fastPath,
    // A router sends what is for the whole subnet. What no pod has would go back to it by the default route.
    blackhole: network.blackhole || bgp !== undefined,
    ...(network.probeMs > 0 && { probes: makeProbes(network.probeMs, unasked) }),
  }
}

function kernelOf({ settings, before }: Ground, conf: NetworkConf, { backend, options }: OpenedBackend): KernelInputs {
  const { quietMs, resyncMs } = settings.network
  const scope = scopeOf(settings, conf, backend.links(options), before?.network)
  return { converger: new Converger(scope, run), run, quietMs, resyncMs }
}

function filesOf({ settings, store, failures, signal }: Ground, conf: NetworkConf): FileInputs {
  const { files } = settings
  return {
    subnetEnv: files.subnetEnv,
    addedPeers: addedPeersOf(settings),
    networks: { dirs: [files.confDir, files.binDir], read: listsReader(files) },
    leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
    synced: () => settle(settings, { store, failures }, signal),
    reinstall: (held) => reinstall(settings, held),
  }
}

function addedPeersOf(settings: Settings): string {
  return statePath(settings.files.stateDir, 'commands', instanceOf(settings))
}

function firewallOf(settings: Settings): FirewallInputs {
  const { masquerade, nonMasquerade, randomFully, forward, tunnelSources } = settings.firewall
  const instance = instanceOf(settings)
  return {
    table: tableOf(instance),
    masquerade,
    keep: nonMasquerade,
    random: randomFully,
    forward,
    tunnels: { table: tunnelsOf(instance), sources: tunnelSources },
  }
}

function clusterOf({ settings, version, store }: Ground, opened: OpenedBackend): ClusterInputs {
  const { files, policy, services, bgp, enforcement } = settings
  const isBridged = files.install && files.pods === 'bridge'
  const objects = objectsOf(settings, version, store.nodes)
  return {
    ...(objects && { objects }),
    ...(policy && { policy: { socket: files.policySocket, enforcement, isBridged } }),
    ...(services && { services: { ...services, ...vxlanPortOf(opened) } }),
    ...(bgp && { bgp: { file: bgp.file, dir: birdDir(settings) } }),
  }
}

// Policy, Services and BGP share one source, which follows the kinds of all. The Nodes of the Kubernetes API are those of
// the store, where that is the API, too. BGP reads them for its selectors.
function objectsOf(
  { policy, services, bgp, store }: Settings,
  version: string,
  nodes: SubnetStore['nodes'],
): ObjectSource | undefined {
  const from = policy ?? services?.objects ?? (bgp && store.kind === 'kube' ? apiOf(store) : undefined)
  const ofBgp: readonly KindName[] = bgp ? ['nodes'] : []
  const ofPolicy = policy ? [...POLICY_KINDS, ...FORMER_POLICY_KINDS] : []
  const all = [...ofPolicy, ...(services ? SERVICE_KINDS : []), ...ofBgp]
  return from && openObjects(from, [...new Set(all)], version, nodes)
}

function apiOf({ kubeconfig, server }: KubeSettings): ObjectsWish {
  return { from: 'api', ...(kubeconfig && { kubeconfig }), ...(server && { server }) }
}

// Two proxies give one connection two translations. Which one counts depends on the order of their start.
async function refuseKubeProxy({ services }: Settings): Promise<void> {
  if (!services || services.isForced || services.replacesKubeProxy) return
  const rules = await kubeProxyRules(run)
  if (rules.length === 0) return
  const text = `Cannot serve Services beside kube-proxy, whose rules are on this node: ${rules.join(', ')}`
  const want = 'want kube-proxy stopped and --replace-kube-proxy, which removes them, or --service-proxy-force'
  throw new ValueError(`${text}: ${want}`)
}

function vxlanPortOf({ backend, options }: OpenedBackend): { readonly vxlanPort?: number } {
  return backend.type === 'vxlan' ? { vxlanPort: (options as { readonly Port: number }).Port } : {}
}

function probesFailure(why: string): Failure {
  const hint = /errno 1$/.test(why) ? ' (it needs CAP_NET_RAW; --probe-interval=0 for none)' : ''
  return { scope: 'part', text: `Cannot ask peers whether they answer: ${why}${hint}` }
}
