import { dirname } from 'node:path'
import { log, warn } from '../lib/os/log.ts'
import { accessOf } from './cluster/access.ts'
import { Api } from './cluster/api.ts'
import { ClusterEvents } from './cluster/events.ts'
import { nodeOfPod } from './cluster/pod-node.ts'
import { REDACTED, REFUSED, redactedFailures, redactedSource } from './http/redaction.ts'
import { serveHealth } from './http/server.ts'
import { readToken } from './http/token.ts'
import { instanceOf, knownPlace, storeWish } from './instance.ts'
import { endOrphans } from './kernel/monitor-processes.ts'
import type { NetworkConf } from './lease/network-configuration.ts'
import { remembered, writeSubnetEnv } from './node/files.ts'
import { lockInstance, runningFlanneld } from './node/instance-lock.ts'
import { watchMemory } from './node/memory-limit.ts'
import type { Context } from './parts/context.ts'
import { followEvents } from './parts/events.ts'
import { Parts } from './parts/index.ts'
import { figuresReader } from './parts/node-figures.ts'
import type { Drafts } from './policy/comparison.ts'
import { confirmed, type Difference, differs, prepare } from './prepare.ts'
import { keepFailures } from './scheduler/failures.ts'
import { watchFolders } from './scheduler/folder-watch.ts'
import { makeNotification, type Notification, pause } from './scheduler/pause.ts'
import { traced } from './scheduler/spans.ts'
import type { Settings } from './settings/settings.ts'
import { announce } from './state/announcing.ts'
import { waitingStatus } from './state/condition.ts'
import { makeStatusFeed } from './state/current-status.ts'
import { keepRecord, Recorder } from './state/recorder.ts'
import { watchStore } from './state/store-outages.ts'
import { openCheckpoint, readCheckpoint, whyUncertain } from './store/last-known.ts'
import { openStore } from './store/open.ts'
import type { SubnetStore } from './store/store.ts'
import { tracedStore } from './store/traced-store.ts'
import { openTelemetry } from './telemetry/telemetry.ts'

/**
 * Runs the agent until the signal. After SIGHUP it starts again when the store has another network configuration.
 * Throws the error that ends the agent otherwise. Examples are another agent of the same name, unusable settings or
 * configuration, and a subnet of another node.
 */
export async function serve(given: Settings, version: string, signal: AbortSignal): Promise<void> {
  const settings = await named(given, version, signal)
  const unlock = lockInstance(instanceOf(settings), settings.files.subnetEnv)
  const flanneld = runningFlanneld()
  if (flanneld !== undefined) {
    const why = `both write routes, devices and ${settings.files.subnetEnv}`
    warn(`agent: flanneld runs on this node, process ${flanneld}: ${why}; stop it, or delete its DaemonSet`)
  }
  const [recorder, redacted] = [new Recorder(), settings.status?.isRedacted && new Recorder()]
  try {
    for (let accepted: NetworkConf | undefined; !signal.aborted; ) {
      const anew = new AbortController()
      const run = {
        version,
        accepted,
        recorder,
        ...(redacted && { redacted }),
        signal: AbortSignal.any([signal, anew.signal]),
      }
      accepted = undefined
      await serveOne(settings, run, (conf) => {
        accepted = conf
        anew.abort()
      })
    }
  } finally {
    unlock()
  }
}

// A pod without NODE_NAME asks the API for its node, as flannel does.
async function named(settings: Settings, version: string, signal: AbortSignal): Promise<Settings> {
  const { store } = settings
  if (store.kind !== 'kube' || !store.pod) return settings
  const api = new Api(accessOf(store), `plumb-agent/${version}`)
  return { ...settings, node: await nodeOfPod(api, store.pod, signal) }
}

/** One run of the agent. `accepted` is its configuration, when the previous run ended because of a change. */
interface Run {
  readonly version: string
  readonly accepted: NetworkConf | undefined
  /** What was, also in earlier runs. */
  readonly recorder: Recorder
  /** The same for who gets a redacted status. */
  readonly redacted?: Recorder
  readonly signal: AbortSignal
}

async function serveOne(
  settings: Settings,
  { version, accepted, recorder, redacted, signal }: Run,
  anew: Ends['anew'],
): Promise<void> {
  const { node, files } = settings
  const before = remembered(files.stateDir, node, instanceOf(settings))
  // Reads the file on each call and keeps nothing in memory. The file may hold ten thousand leases, and the store sends
  // them again.
  const known = () => readCheckpoint(knownPlace(settings))
  const isUncertain = () => {
    const last = known()
    return last !== undefined && whyUncertain(last) !== undefined
  }
  // Writes the remembered subnet.env before the store answers. Pods that start now get the same subnet as before.
  if (before && !isUncertain()) attempt(() => writeSubnetEnv(files.subnetEnv, before))
  endOrphans(instanceOf(settings))
  const telemetry = openTelemetry(settings.spans?.endpoint, { node, version })
  const store = tracedStore(await openStore(storeWish(settings, version)))
  const feed = makeStatusFeed()
  let parts: Parts | undefined
  const publish = () => feed.publish(() => currentStatus())
  const failures = keepFailures(publish)
  const checkpoint = openCheckpoint(knownPlace(settings), (why) =>
    failures.report('last known', why === undefined ? [] : [{ scope: 'part', text: why }]),
  )
  let waitingFor = ''
  const currentStatus = () => parts?.status() ?? waitingStatus({ node, version, store, failures }, waitingFor)
  const redactedStatus = () => {
    const waiting = { node, version, store, failures: redactedFailures(failures, []) }
    return parts?.redactedStatus() ?? { redacted: REDACTED, ...waitingStatus(waiting, waitingFor) }
  }
  // Every end of this run stops all of its work.
  const end = new AbortController()
  const life = AbortSignal.any([signal, end.signal])
  const { status } = settings
  const places = {
    address: status?.host ?? '127.0.0.1',
    port: status?.port ?? 0,
    ...(status?.probesOnly && { probesOnly: true as const }),
    ...(status?.tokenFile !== undefined && { token: readToken(status.tokenFile) }),
    socket: files.socket,
  }
  const figures = figuresReader(settings)
  const source = {
    status: currentStatus,
    changes: feed.changes,
    recorder,
    busy: () => parts?.busy(),
    services: () => parts?.services?.view(parts.bgp?.announced),
    policy: () => parts?.policy?.view(),
    peer: async (key: string) => parts?.peers.objects(key),
    pods: async () => parts?.pods(),
    pod: (name: string) => parts?.policy?.detail(name),
    policyMatrix: () => parts?.policy?.matrix(),
    policyCell: (from: string, to: string) => parts?.policy?.cell(from, to),
    policyComparison: (drafts: Drafts) => (parts?.policy?.isComplete ? parts.policy.comparison(drafts) : undefined),
    policyCounts: () => parts?.policy?.counts(),
    calls: telemetry.calls,
    spans: telemetry.spans,
    figures: () => (parts ? figures(currentStatus().subnets) : undefined),
    isPerPeer: settings.metricsPerPeer,
    rotate() {
      if (parts) return parts.rotate()
      throw new Error('Cannot give this node another key: the agent still waits for what it needs (see: plumb status)')
    },
  }
  const overTcp = redacted && redactedSource(source, { status: redactedStatus, recorder: redacted })
  try {
    const health = await serveHealth(places, source, failures, overTcp)
    const recording = await telemetry.run(files.socket, life)
    try {
      void watchStore(store, life, publish, log, warn)
      void watchMemory(failures, life)
      void keepRecord(recorder, source, life)
      if (redacted && overTcp) void keepRecord(redacted, overTcp, life)
      const events = eventsOf(settings, version)
      void events?.run(life)
      const told = () => parts?.told() ?? { ...currentStatus(), closed: [] }
      void announce(told, { store, ...(events && { events }) }, life)
      const refused = (text: string) => {
        recorder.refused(text)
        redacted?.refused(REFUSED)
      }
      const { publish: changed } = feed
      const ground = { settings, version, store, before, accepted, known, checkpoint, failures, changed, refused }
      const waiting = (why: string) => {
        waitingFor = why
        publish()
      }
      const context = await traced('start', {}, () => prepare({ ...ground, signal: life }, waiting))
      const all = new Parts(context, life)
      parts = all
      await work(all, context, settings, { life, end: () => end.abort(), anew })
    } finally {
      recording.stop()
      health.stop()
    }
  } finally {
    end.abort()
    checkpoint.flush()
    await store.close()
  }
}

// Events go where the leases or the objects of the cluster come from. An unusable way there ends the agent elsewhere.
function eventsOf({ node, store, policy, services }: Settings, version: string): ClusterEvents | undefined {
  const from = policy ?? services?.objects
  const wish = store.kind === 'kube' ? store : from?.from === 'api' ? from : undefined
  try {
    return wish && new ClusterEvents(new Api(accessOf(wish), `plumb-agent/${version}`), node)
  } catch {
    return undefined
  }
}

// Only logs the error. The parts report it later and try again.
function attempt(work: () => void): void {
  try {
    work()
  } catch (cause) {
    warn(`agent: ${(cause as Error).message}`)
  }
}

/** How often the agent compares the store's network configuration with its own, in milliseconds. */
const CONF_MS = 60_000

/** A file is written in several steps. A look at it waits this long, in milliseconds. */
const FILE_MS = 100
/** How often the agent looks whether the folder of the configuration is another one, in milliseconds. */
const FOLDER_MS = 1000

/**
 * The ways to end one run. `life` is the signal of its end. `end` ends it. `anew` ends it and lets the next run start.
 * The next run has the given configuration, or asks the store.
 */
interface Ends {
  readonly life: AbortSignal
  end(): void
  anew(accepted?: NetworkConf): void
}

async function work(parts: Parts, context: Context, settings: Settings, { life, end, anew }: Ends): Promise<void> {
  const another = 'the store has another network configuration'
  const begin = (text: string, accepted?: NetworkConf) => {
    context.log(`agent: ${text}; starting again with it`)
    anew(accepted)
  }
  const backendOf = ({ conf }: Difference) => {
    const [now, own] = [conf.backend.type, context.conf.backend.type]
    return now === own ? '' : `, with backend ${now} instead of ${own}`
  }
  const onHangup = () => {
    parts.resync('SIGHUP')
    void differs(context, settings, life).then((found) => found && begin(`${another}${backendOf(found)}`))
  }
  let isConfirmed = context.stale === undefined
  if (!isConfirmed)
    confirmed(context, settings, life).then(
      (isOther) => {
        isConfirmed = true
        if (isOther) begin(another)
        else parts.lease.confirm()
      },
      () => {},
    )
  const look = async () => {
    const found = await differs(context, settings, life)
    if (!found || !isConfirmed || life.aborted) return
    const text = `${another} (${found.keys.join(', ')})${backendOf(found)}`
    if (found.isLive) begin(text, found.conf)
    else parts.note(`${text}; it counts after a restart of the agent or SIGHUP`)
  }
  const touched = makeNotification()
  const looking = setInterval(() => touched.notify(), CONF_MS)
  process.on('SIGHUP', onHangup)
  try {
    await Promise.all([
      followEvents(parts, context, life),
      followConfiguration(context.store, touched, look, life),
      parts.run(life, end),
    ])
  } finally {
    process.off('SIGHUP', onHangup)
    clearInterval(looking)
  }
}

// A ConfigMap is a folder of symbolic links, and a change replaces one of them (`..data`). So each change in the folder of
// the file counts.
async function followConfiguration(
  { configFile }: SubnetStore,
  touched: Notification,
  look: () => Promise<void>,
  life: AbortSignal,
): Promise<void> {
  const looks = async () => {
    for (;;) {
      await touched.notified(life)
      await pause(FILE_MS, life)
      if (life.aborted) return
      await look()
    }
  }
  const isWatched = configFile !== undefined
  const watching =
    isWatched &&
    watchFolders(
      [dirname(configFile)],
      () => touched.notify(),
      () => {},
      FOLDER_MS,
      life,
    )
  await Promise.all([looks(), watching])
}
