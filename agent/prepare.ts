import { existsSync } from 'node:fs'
import { cpus } from 'node:os'
import { linksNow } from '../lib/os/links.ts'
import { log, warn } from '../lib/os/log.ts'
import { readText } from '../lib/os/reading.ts'
import { isOverlay } from '../lib/state/kinds/overlay.ts'
import { ValueError } from '../lib/text/errors.ts'
import { jsonLine } from '../lib/text/json-place.ts'
import type { Mac } from '../lib/text/values.ts'
import type { BackendHome } from './backend/backend.ts'
import { openBackend, unreadKeys } from './backend/open.ts'
import { makeProbes } from './backend/probes.ts'
import { removeBird } from './bgp/bird.ts'
import { FORMER_POLICY_KINDS, type KindName } from './cluster/kinds.ts'
import { type ObjectsWish, openObjects } from './cluster/source.ts'
import { listsReader } from './doctor/facts/lists.ts'
import { removeFlannelRules } from './firewall/flannel-rules.ts'
import { birdDir, instanceOf, scopeOf, tableOf, tunnelsOf, wishOf } from './instance.ts'
import { Converger } from './kernel/converge.ts'
import { hasNexthops } from './kernel/nexthops.ts'
import { run } from './kernel/run.ts'
import { encodeValue, type Lease } from './lease/lease.ts'
import { changedKeys, LIVE_KEYS, type NetworkConf, networksOf } from './lease/network-configuration.ts'
import { removeAll } from './node/added-peers.ts'
import { runCommand } from './node/command.ts'
import { makeIdentity, type NodeSubnet, readSubnetEnv, remember, statePath, writeSubnetEnv } from './node/files.ts'
import { installNode, missingOf } from './node/install.ts'
import { makeReadinessNotifier, notify } from './node/systemd.ts'
import { shownOutput } from './parts/commands.ts'
import type { Context } from './parts/context.ts'
import { SERVICE_KINDS } from './parts/services.ts'
import { POLICY_KINDS } from './policy/state.ts'
import type { Failure } from './scheduler/failures.ts'
import { delays, pause } from './scheduler/pause.ts'
import { conntrackSysctls, setSysctls } from './services/conntrack-limits.ts'
import { kubeProxyRules, removeKubeProxy } from './services/kube-proxy.ts'
import type { KubeSettings, Settings } from './settings/settings.ts'
import { type Checkpoint, type LastKnown, whyUncertain } from './store/last-known.ts'
import { type Remembered, StoreError, type SubnetStore } from './store/store.ts'

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
export async function prepare(
  { settings, before, accepted, known, checkpoint, signal, ...given }: Ground,
  awaiting: (text: string) => void,
): Promise<Context> {
  const { node, files, firewall, network } = settings
  const stale = await configured({ store: given.store, accepted }, known, signal, awaiting)
  const { conf } = stale
  given.store.use?.(conf)
  await refuseKubeProxy(settings)
  // What an agent with another setting has left.
  if (!settings.bgp) for (const line of await removeBird(birdDir(settings), run)) log(`agent: BGP is off: ${line}`)
  const { backend, ...asked } = equipped(await chosen(conf, settings), { stateDir: files.stateDir, node })
  for (const note of new Set([...(conf.notes ?? []), ...unreadKeys(conf, backend)]))
    log(`agent: the network's configuration: ${note}`)
  reportKeys(given.failures, conf, backend)
  const instance = instanceOf(settings)
  const addedPeers = statePath(files.stateDir, 'commands', instance)
  if (!backend.commands) await leaveExtension(addedPeers, network.allowExtension, signal, awaiting)
  const options = await started({ backend, ...asked }, signal, awaiting)
  const identity = makeIdentity(files.stateDir)
  const stored = await remembered(given.store, signal, awaiting)
  const links = backend.links(options)
  const unasked = (why: string | undefined) =>
    given.failures.report('probes', why === undefined ? [] : [probesFailure(why)])
  return {
    node,
    ...(identity !== undefined && { identity }),
    ...given,
    conf,
    ...('leases' in stale && { stale }),
    backend,
    options,
    facts: {
      instance,
      nexthops: await nexthops(signal, awaiting),
      networks: networksOf(conf),
      existing: new Map([...(backend.existing?.(options, stored.data) ?? []), ...existingDevices(links)]),
    },
    converger: new Converger(scopeOf(settings, conf, links, before?.network), run),
    run,
    wish: wishOf(settings, stored.addresses),
    before: before?.subnet ?? readSubnetEnv(files.subnetEnv).subnet,
    firewall: {
      table: tableOf(instance),
      masquerade: firewall.masquerade,
      keep: firewall.nonMasquerade,
      random: firewall.randomFully,
      forward: firewall.forward,
      tunnels: { table: tunnelsOf(instance), sources: firewall.tunnelSources },
    },
    allowOverlap: network.allowOverlap,
    addedPeers,
    // A router sends what is for the whole subnet. What no pod has would go back to it by the default route.
    blackhole: network.blackhole || settings.bgp !== undefined,
    renewMarginMs: settings.store.kind === 'etcd' ? settings.store.renewMarginMs : 0,
    quietMs: network.quietMs,
    resyncMs: network.resyncMs,
    subnetEnv: files.subnetEnv,
    leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
    checkpoint: (known) => checkpoint.save({ conf, ...known }),
    synced: () => settle(settings, given, signal),
    reinstall: (held) => reinstall(settings, held),
    condition: makeReadinessNotifier(),
    networks: { dirs: [files.confDir, files.binDir], read: listsReader(files) },
    isBridged: files.install && files.pods === 'bridge',
    policySocket: files.policySocket,
    ...objectsOf(settings, given),
    isPolicyOn: settings.policy !== undefined,
    ...(settings.services && { services: { ...settings.services, ...vxlanPortOf(backend, options) } }),
    enforcement: settings.enforcement,
    ...(settings.bgp && { bgp: { file: settings.bgp.file, dir: birdDir(settings) } }),
    ...(network.probeMs > 0 && { probes: makeProbes(network.probeMs, unasked) }),
    log: (text) => log(text),
    warn: (text) => warn(text),
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

// The devices of an overlay that already have one of these names, with their MACs. A device of another kind is left
// out, and the converger reports it.
function existingDevices(links: readonly string[]): ReadonlyMap<string, Mac> {
  const found = linksNow().filter(({ name, kind }) => isOverlay(kind) && links.includes(name))
  return new Map(found.map(({ name, mac }) => [name, mac]))
}

function probesFailure(why: string): Failure {
  const hint = /errno 1$/.test(why) ? ' (it needs CAP_NET_RAW; --probe-interval=0 for none)' : ''
  return { scope: 'part', text: `Cannot ask peers whether they answer: ${why}${hint}` }
}

const NO_CONFIG = 'the network’s configuration is not known yet'
const WAIT_MS = 1000
const LOOK_MS = 30_000

// Logs each reason for waiting once, until the reason changes.
async function configured(
  { store, accepted }: Pick<Ground, 'store' | 'accepted'>,
  recalled: () => LastKnown | undefined,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<LastKnown | Pick<LastKnown, 'conf'>> {
  if (accepted) return { conf: accepted }
  awaiting(NO_CONFIG)
  let known: { readonly found: LastKnown | undefined } | undefined
  for (let announced = ''; ; ) {
    try {
      return { conf: await store.config(AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)])) }
    } catch (cause) {
      if (cause instanceof ValueError) throw located(cause, store)
      if (signal.aborted || !(cause instanceof StoreError)) throw cause
      known ??= { found: recalled() }
      const { found } = known
      const uncertain = found && whyUncertain(found)
      // A connected store that gives no configuration has none. This answer counts, so the agent does not use the copy
      // on disk.
      if (found && uncertain === undefined && !store.state().connected) {
        const at = new Date(found.at).toISOString()
        log(`agent: the store does not answer, starting with what was known at ${at}: ${cause.message}`)
        return found
      }
      const why = `${NO_CONFIG}: ${cause.message}`
      announced = announceWait(uncertain === undefined ? why : `${why}; ${uncertain}`, announced, awaiting)
    }
  }
}

// The addresses and backend data that the store keeps for this node. The result is empty when the store does not
// answer. Existing devices then still keep their MACs, because `existingDevices` reads the MACs from the kernel.
async function remembered(
  store: SubnetStore,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<Remembered> {
  for (let announced = ''; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      return (await store.remembered?.(AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)]))) ?? NOTHING
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      if (!store.state().connected) return NOTHING
      announced = announceWait(cause.message, announced, awaiting)
    }
  }
}

const NOTHING: Remembered = { addresses: {}, data: {} }

async function nexthops(signal: AbortSignal, awaiting: (text: string) => void): Promise<boolean> {
  for (let announced = ''; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      return await hasNexthops(run)
    } catch (cause) {
      announced = announceWait((cause as Error).message, announced, awaiting)
    }
  }
}

function announceWait(text: string, before: string, awaiting: (text: string) => void): string {
  if (text === before) return before
  log(`agent: waiting: ${text}`)
  awaiting(text)
  return text
}

const NOT_ALLOWED =
  'Cannot use backend extension: the author of the network configuration can then run any command as root on every node; ' +
  'want --allow-extension on each node where that is right, or another backend'
// What an annotation of a Node may hold, in characters.
const LONGEST_DATA = 4096
// How long to wait after a failed PreStartupCommand, in milliseconds.
const [LEAST_REST_MS, LONGEST_REST_MS] = [1000, 60_000]

// Another backend has come instead of extension, or there never was that backend.
async function leaveExtension(
  path: string,
  isAllowed: boolean,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<void> {
  if (!existsSync(path)) return
  const left = `Cannot run the SubnetRemoveCommand in ${path} without --allow-extension; want it once, or delete the file`
  if (isAllowed) awaiting(`SubnetRemoveCommand of the backend extension runs for each peer in ${path}`)
  for (const why of isAllowed ? await removeAll(path, signal) : [left]) warn(`agent: ${why}`)
}

// Runs PreStartupCommand until it succeeds. Gives the options with its output.
async function started(
  { backend, options }: Pick<Context, 'backend' | 'options'>,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<unknown> {
  const first = backend.commands?.of(options).PreStartupCommand
  if (!backend.commands || first === undefined) return options
  let announced = ''
  for (const restMs of delays(LEAST_REST_MS, LONGEST_REST_MS)) {
    const { output, failure } = await runCommand(first, {}, '', { signal })
    signal.throwIfAborted()
    log(`agent: ran PreStartupCommand output=${shownOutput(output)}`)
    const { length } = encodeValue({ ips: {}, backend: '', data: { v4: output } })
    const tooLong = length > LONGEST_DATA ? `it wrote more than a lease holds, ${LONGEST_DATA} characters` : undefined
    const why = failure ?? tooLong
    if (why === undefined) return backend.commands.started(options, output)
    announced = announceWait(`Cannot run PreStartupCommand: ${why}; the log has what it wrote`, announced, awaiting)
    await pause(restMs, signal)
    signal.throwIfAborted()
  }
  return options
}

/** Opens the backend that a configuration names, and reads its options. Throws ValueError. */
async function chosen(
  { backend: { type, options } }: NetworkConf,
  { network }: Settings,
): Promise<Pick<Context, 'backend' | 'options'>> {
  const backend = await openBackend(type)
  if (backend.commands && !network.allowExtension) throw new ValueError(NOT_ALLOWED)
  const offload = network.txChecksumOffload === 'auto' ? {} : { TxChecksumOffload: network.txChecksumOffload === 'on' }
  return { backend, options: backend.conf({ ...options, ...offload }) }
}

function equipped(
  { backend, options }: Pick<Context, 'backend' | 'options'>,
  place: BackendHome,
): Pick<Context, 'backend' | 'options'> {
  return { backend, options: backend.equip?.(options, place) ?? options }
}

/**
 * Waits until the store gives its network configuration, after a start without the store. True when it has another one
 * now. An unusable configuration is reported.
 */
export async function confirmed(context: Context, settings: Settings, signal: AbortSignal): Promise<boolean> {
  const { store, conf, failures } = context
  for (; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      const now = await store.config(AbortSignal.any([signal, AbortSignal.timeout(LOOK_MS)]))
      const { backend } = await chosen(now, settings)
      failures.report(CONFIGURATION, [])
      reportKeys(failures, now, backend)
      return changedKeys(conf, now).length > 0
    } catch (cause) {
      // The state of the store already reports a store that does not answer.
      if (cause instanceof ValueError) failures.report(CONFIGURATION, [unusable(cause, store)])
    }
  }
}

const CONFIGURATION = 'configuration'

// A misspelt key means that a setting does not have the wanted value.
function reportKeys(failures: Context['failures'], conf: NetworkConf, backend: Context['backend']): void {
  const textOf = (key: string) => `The network's configuration has a key without effect: ${key}`
  const found = unreadKeys(conf, backend).map((key): Failure => ({ scope: 'part', text: textOf(key) }))
  failures.report('keys of the configuration', found)
}

function unusable(cause: ValueError, store: SubnetStore): Failure {
  const text = 'Cannot use the network configuration that the store has now, going on with the one before'
  return { scope: 'part', text: `${text}: ${located(cause, store).message}` }
}

// The key in the message of a configuration that cannot be used.
const KEY = /^Cannot read (\w+(?:\.\w+)*)/

// The same error with file and line, where the store has a file.
function located(cause: ValueError, { configFile }: SubnetStore): ValueError {
  const text = configFile === undefined ? undefined : readText(configFile)
  if (text === undefined) return cause
  const [, key = ''] = KEY.exec(cause.message) ?? []
  const line = jsonLine(text, key) ?? Number(/\(line (\d+)/.exec(cause.message)?.[1] ?? 1)
  return new ValueError(`${configFile}:${line}: ${cause.message}`, { cause })
}

/** The store's network configuration, where it is not that of the agent. */
export interface Difference {
  readonly conf: NetworkConf
  /** The keys that differ. */
  readonly keys: readonly string[]
  /**
   * This node may take the change at once. Other keys need the same value on all nodes that reach each other, or pods
   * that start again. As with flannel, an administrator chooses the moment for these, node by node.
   */
  readonly isLive: boolean
}

/**
 * Compares the store's network configuration with that of the agent. Undefined when both are the same, and when the
 * store does not answer. An unusable configuration is reported, and changes nothing.
 */
export async function differs(
  { store, conf, backend, failures }: Context,
  settings: Settings,
  signal: AbortSignal,
): Promise<Difference | undefined> {
  try {
    const now = await store.config(AbortSignal.any([signal, AbortSignal.timeout(LOOK_MS)]))
    reportKeys(failures, now, (await chosen(now, settings)).backend)
    failures.report(CONFIGURATION, [])
    const keys = changedKeys(conf, now)
    const live = [...LIVE_KEYS, ...(backend.live ?? []).map((key) => `Backend.${key}`)].map((key) => key.toLowerCase())
    const isLive = keys.every((key) => live.includes(key.toLowerCase()))
    return keys.length > 0 ? { conf: now, keys, isLive } : undefined
  } catch (cause) {
    // The state of the store already reports a store that does not answer.
    if (cause instanceof ValueError) failures.report(CONFIGURATION, [unusable(cause, store)])
    return undefined
  }
}

function writeNode(settings: Settings, { v4, v6 }: NetworkConf, lease: Lease, mtu: number): string[] {
  const { node, files, firewall } = settings
  const instance = instanceOf(settings)
  const subnet = {
    network: { ...(v4 ? { v4: v4.network } : {}), ...(v6 ? { v6: v6.network } : {}) },
    subnet: lease.subnets,
    mtu,
    ipMasq: firewall.masquerade,
  }
  // Writes the remembered lease first, because `cleanup` needs it to tell this subnet.env from flannel's. Writes
  // subnet.env even when the state cannot be written, so that pods can start.
  const written: string[] = []
  try {
    if (remember(files.stateDir, node, subnet, instance)) written.push(statePath(files.stateDir, 'lease', instance))
  } finally {
    if (writeSubnetEnv(files.subnetEnv, subnet)) written.push(files.subnetEnv)
  }
  return written
}

async function settle(
  settings: Settings,
  { store, failures }: Pick<Context, 'store' | 'failures'>,
  signal: AbortSignal,
): Promise<void> {
  await installNode(settings)
  limitConnections(settings, failures)
  notify('READY=1')
  void announceReady(store, failures, signal)
  // Runs last. Until the agent's own rules are loaded, flannel's rules masquerade for the pods.
  if (settings.firewall.replaceFlannel)
    for (const what of await removeFlannelRules(run)) log(`agent: removed what flannel left: ${what}`)
  if (settings.services?.replacesKubeProxy)
    for (const what of await removeKubeProxy(run)) log(`agent: removed what kube-proxy left: ${what}`)
}

async function reinstall(settings: Settings, held: ReadonlySet<string>): Promise<readonly string[]> {
  const missing = settings.files.install ? missingOf(settings.files) : []
  if (missing.length === 0 || missing.some((path) => held.has(path))) return []
  await installNode(settings)
  return missing
}

// Once at each start, as kube-proxy does. Who sets other values later keeps them until then.
function limitConnections({ services }: Settings, failures: Context['failures']): void {
  if (!services?.conntrack) return
  const { done, failed } = setSysctls(conntrackSysctls(services.conntrack, cpus().length))
  for (const what of done) log(`agent: ${what}`)
  const texts = failed.map((text): Failure => ({ scope: 'part', text }))
  failures.report('limits of connections', texts)
}

// Publishes in the store that this node serves its pods. Tries until that succeeds, because the pods need no store.
async function announceReady(store: SubnetStore, failures: Context['failures'], signal: AbortSignal): Promise<void> {
  for (let logged = ''; !signal.aborted; await pause(WAIT_MS, signal)) {
    try {
      await store.ready?.()
      failures.report('announcement', [])
      return
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      // The state of the store already reports a store that does not answer.
      const text = `Cannot tell the store that this node serves its pods: ${cause.message}`
      failures.report('announcement', store.state().connected ? [{ scope: 'part', text }] : [])
      if (store.state().connected && text !== logged) log(`agent: ${text}`)
      logged = text
    }
  }
}
