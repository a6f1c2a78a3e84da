import { log, warn } from '../lib/os/log.ts'
import { ValueError } from '../lib/text/errors.ts'
import { unreadKeys } from './backend/open.ts'
import { makeProbes } from './backend/probes.ts'
import { existingDevices, leaveExtension, nexthops, runStartCommand, storedOfNode } from './backend-start.ts'
import { removeBird } from './bgp/bird.ts'
import { FORMER_POLICY_KINDS, type KindName } from './cluster/kinds.ts'
import { type ObjectsWish, openObjects } from './cluster/source.ts'
import { listsReader } from './doctor/facts/lists.ts'
import { birdDir, instanceOf, scopeOf, tableOf, tunnelsOf, wishOf } from './instance.ts'
import { Converger } from './kernel/converge.ts'
import { run } from './kernel/run.ts'
import { type NetworkConf, networksOf } from './lease/network-configuration.ts'
import { openBackendOf, reportKeys, takeConfiguration } from './network.ts'
import { makeIdentity, type NodeSubnet, readSubnetEnv, statePath } from './node/files.ts'
import { makeReadinessNotifier } from './node/systemd.ts'
import type { Context } from './parts/context.ts'
import { POLICY_KINDS } from './policy/state.ts'
import { reinstall, settle, writeNode } from './ready.ts'
import type { Failure } from './scheduler/failures.ts'
import { kubeProxyRules } from './services/kube-proxy.ts'
import { SERVICE_KINDS } from './services/state.ts'
import type { KubeSettings, Settings } from './settings/settings.ts'
import type { Checkpoint, LastKnown } from './store/last-known.ts'

/** The values that exist before the network configuration is known. */
export interface Ground extends Pick<Context, 'version' | 'store' | 'changed' | 'refused' | 'failures'> {
  /** The state of the network that the previous run kept on disk. */
  known(): LastKnown | undefined
  readonly checkpoint: Checkpoint
  readonly settings: Settings
  readonly before: NodeSubnet | undefined
  /** The configuration to begin with, when a change of it is followed. Otherwise the store is asked. */
  readonly accepted: NetworkConf | undefined
  readonly signal: AbortSignal
}

/**
 * Waits for the network configuration and for working tools. When the store does not answer, it uses the last known
 * configuration. It calls `awaiting` with the reason as long as it waits. Throws ValueError for a wrong configuration.
 */
export async function prepare(ground: Ground, awaiting: (text: string) => void): Promise<Context> {
  const { settings, accepted, known, signal, checkpoint, before, ...given } = ground
  const taken = await takeConfiguration({ store: given.store, accepted }, known, signal, awaiting)
  const { conf } = taken
  given.store.use?.(conf)
  await refuseKubeProxy(settings)
  // What an agent with another setting has left.
  if (!settings.bgp) for (const line of await removeBird(birdDir(settings), run)) log(`agent: BGP is off: ${line}`)
  const opened = await readyBackend(ground, conf, awaiting)
  const identity = makeIdentity(settings.files.stateDir)
  return {
    node: settings.node,
    ...(identity !== undefined && { identity }),
    ...given,
    conf,
    ...('leases' in taken && { stale: taken }),
    ...opened,
    ...(await kernelOf(ground, conf, opened, awaiting)),
    ...fixedOf(settings),
    ...clusterOf(settings, given, opened),
    ...deedsOf(ground, conf),
    before: before?.subnet ?? readSubnetEnv(settings.files.subnetEnv).subnet,
    log: (text) => log(text),
    warn: (text) => warn(text),
  }
}

// The backend of the configuration with its options, when it has all that it needs.
async function readyBackend(
  { settings, failures, signal }: Ground,
  conf: NetworkConf,
  awaiting: (text: string) => void,
): Promise<Pick<Context, 'backend' | 'options' | 'addedPeers'>> {
  const { node, files, network } = settings
  const { backend, options } = await openBackendOf(conf, settings)
  const equipped = backend.equip?.(options, { stateDir: files.stateDir, node }) ?? options
  for (const note of new Set([...(conf.notes ?? []), ...unreadKeys(conf, backend)]))
    log(`agent: the network's configuration: ${note}`)
  reportKeys(failures, conf, backend)
  const addedPeers = statePath(files.stateDir, 'commands', instanceOf(settings))
  if (!backend.commands) await leaveExtension(addedPeers, network.allowExtension, signal, awaiting)
  return { backend, options: await runStartCommand({ backend, options: equipped }, signal, awaiting), addedPeers }
}

// What the kernel and the store have of this node.
async function kernelOf(
  { settings, store, before, signal }: Ground,
  conf: NetworkConf,
  { backend, options }: Pick<Context, 'backend' | 'options'>,
  awaiting: (text: string) => void,
): Promise<Pick<Context, 'facts' | 'converger' | 'run' | 'wish'>> {
  const stored = await storedOfNode(store, signal, awaiting)
  const links = backend.links(options)
  return {
    facts: {
      instance: instanceOf(settings),
      nexthops: await nexthops(signal, awaiting),
      networks: networksOf(conf),
      existing: new Map([...(backend.existing?.(options, stored.data) ?? []), ...existingDevices(links)]),
    },
    converger: new Converger(scopeOf(settings, conf, links, before?.network), run),
    run,
    wish: wishOf(settings, stored.addresses),
  }
}

// What follows from the settings alone.
function fixedOf(settings: Settings): FixedContext {
  const { files, firewall, network, store } = settings
  const instance = instanceOf(settings)
  return {
    firewall: {
      table: tableOf(instance),
      masquerade: firewall.masquerade,
      keep: firewall.nonMasquerade,
      random: firewall.randomFully,
      forward: firewall.forward,
      tunnels: { table: tunnelsOf(instance), sources: firewall.tunnelSources },
    },
    allowOverlap: network.allowOverlap,
    // A router sends what is for the whole subnet. What no pod has would go back to it by the default route.
    blackhole: network.blackhole || settings.bgp !== undefined,
    renewMarginMs: store.kind === 'etcd' ? store.renewMarginMs : 0,
    quietMs: network.quietMs,
    resyncMs: network.resyncMs,
    subnetEnv: files.subnetEnv,
    networks: { dirs: [files.confDir, files.binDir], read: listsReader(files) },
    isBridged: files.install && files.pods === 'bridge',
    policySocket: files.policySocket,
    isPolicyOn: settings.policy !== undefined,
    enforcement: settings.enforcement,
    ...(settings.bgp && { bgp: { file: settings.bgp.file, dir: birdDir(settings) } }),
  }
}

type FixedContext = Pick<
  Context,
  | 'firewall'
  | 'allowOverlap'
  | 'blackhole'
  | 'renewMarginMs'
  | 'quietMs'
  | 'resyncMs'
  | 'subnetEnv'
  | 'networks'
  | 'isBridged'
  | 'policySocket'
  | 'isPolicyOn'
  | 'enforcement'
  | 'bgp'
>

// The objects of the cluster, the settings of Services, and the probes of peers.
function clusterOf(
  settings: Settings,
  given: Pick<Ground, 'version' | 'store' | 'failures'>,
  { backend, options }: Pick<Context, 'backend' | 'options'>,
): Pick<Context, 'objects' | 'services' | 'probes'> {
  const { network, services } = settings
  const unasked = (why: string | undefined) =>
    given.failures.report('probes', why === undefined ? [] : [probesFailure(why)])
  return {
    ...objectsOf(settings, given),
    ...(services && { services: { ...services, ...vxlanPortOf(backend, options) } }),
    ...(network.probeMs > 0 && { probes: makeProbes(network.probeMs, unasked) }),
  }
}

// What the parts do beside the kernel.
function deedsOf(
  { settings, checkpoint, signal, ...given }: Ground,
  conf: NetworkConf,
): Pick<Context, 'leased' | 'checkpoint' | 'synced' | 'reinstall' | 'condition'> {
  return {
    leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
    checkpoint: (known) => checkpoint.save({ conf, ...known }),
    synced: () => settle(settings, given, signal),
    reinstall: (held) => reinstall(settings, held),
    condition: makeReadinessNotifier(),
  }
}

// Policy, Services and BGP share one source, which follows the kinds of all. The Nodes of the Kubernetes API are those of
// the store, where that is the API, too. BGP reads them for its selectors.
function objectsOf(
  { policy, services, bgp, store }: Settings,
  { version, store: { nodes } }: Pick<Ground, 'version' | 'store'>,
): Pick<Context, 'objects'> {
  const from = policy ?? services?.objects ?? (bgp && store.kind === 'kube' ? apiOf(store) : undefined)
  const ofBgp: readonly KindName[] = bgp ? ['nodes'] : []
  const ofPolicy = policy ? [...POLICY_KINDS, ...FORMER_POLICY_KINDS] : []
  const all = [...ofPolicy, ...(services ? SERVICE_KINDS : []), ...ofBgp]
  return from ? { objects: openObjects(from, [...new Set(all)], version, nodes) } : {}
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

function vxlanPortOf({ type }: Context['backend'], options: unknown): { readonly vxlanPort?: number } {
  return type === 'vxlan' ? { vxlanPort: (options as { readonly Port: number }).Port } : {}
}

function probesFailure(why: string): Failure {
  const hint = /errno 1$/.test(why) ? ' (it needs CAP_NET_RAW; --probe-interval=0 for none)' : ''
  return { scope: 'part', text: `Cannot ask peers whether they answer: ${why}${hint}` }
}
