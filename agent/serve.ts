import { log } from '../lib/os/log.ts'
import { keepPluginRules, type PluginRules } from './firewall/plugin-rules.ts'
import { tellWaiting } from './health/condition.ts'
import { makeNews } from './health/current-status.ts'
import { serveHealth } from './health/health.ts'
import { watchStore } from './health/store-outages.ts'
import { instanceOf, knownPlace, storeWish } from './instance.ts'
import { bridgeEvent, type Event, ipEvent, MONITORS } from './kernel/events.ts'
import { follow } from './kernel/monitor.ts'
import { endOrphans, markedAs } from './kernel/monitor-processes.ts'
import { followRules, type RuleChange } from './kernel/rule-events.ts'
import { watchFile } from './node/file-watch.ts'
import { remembered, writeSubnetEnv } from './node/files.ts'
import { flanneldBeside, lockInstance } from './node/instance-lock.ts'
import { watchPages } from './node/memory-pages.ts'
import type { Parts } from './parts.ts'
import { confirmed, differs, prepare } from './prepare.ts'
import { type Doubt, Reconciler } from './reconcile.ts'
import { keepFailures } from './scheduler/failures.ts'
import type { Settings } from './settings/settings.ts'
import { doubtOf, keepKnown, recall } from './store/last-known.ts'
import { openStore } from './store/open.ts'
import type { SubnetStore } from './store/store.ts'

/** Runs the agent until the signal; begins anew when SIGHUP finds another network configuration in the store. Throws what ends it otherwise: another agent of the same name, settings or a network configuration that cannot be served, a subnet that belongs to another. */
export async function serve(settings: Settings, version: string, signal: AbortSignal): Promise<void> {
  const unlock = lockInstance(instanceOf(settings), settings.files.subnetEnv)
  const flanneld = flanneldBeside()
  if (flanneld !== undefined) log(`agent: flanneld runs on this node, process ${flanneld}: both write routes, devices and ${settings.files.subnetEnv}; stop it, or delete its DaemonSet`)
  try {
    while (!signal.aborted) {
      const anew = new AbortController()
      await serveOne(settings, version, AbortSignal.any([signal, anew.signal]), () => anew.abort())
    }
  } finally {
    unlock()
  }
}

async function serveOne(settings: Settings, version: string, signal: AbortSignal, anew: () => void): Promise<void> {
  const { node, files } = settings
  const before = remembered(files.stateDir, node, instanceOf(settings))
  // Not held: ten thousand leases that the store tells once more.
  const known = () => recall(knownPlace(settings))
  const isDoubtful = () => {
    const last = known()
    return last !== undefined && doubtOf(last) !== undefined
  }
  // Pods that start meanwhile have what they had; who reads the file needs no store for it.
  if (before && !isDoubtful()) attempt(() => writeSubnetEnv(files.subnetEnv, before))
  endOrphans(instanceOf(settings))
  const store = await openStore(storeWish(settings))
  const [news, heart] = [makeNews(), { since: undefined as number | undefined }]
  const tell = () => news.tell(() => standing())
  const failures = keepFailures(tell)
  const keeper = keepKnown(knownPlace(settings), (why) => failures.report('last known', why === undefined ? [] : [{ scope: 'part', text: why }]))
  let standing = () => tellWaiting({ node, version, store, failures }, '')
  try {
    const health = await serveHealth(
      { address: settings.status?.host ?? '127.0.0.1', port: settings.status?.port ?? 0, ...(settings.status?.probesOnly && { probesOnly: true as const }), socket: files.socket },
      { status: () => standing(), changes: news.changes, busySince: () => heart.since },
      failures,
    )
    try {
      void watchStore(store, signal, tell, log)
      const parts = await prepare({ settings, version, store, before, known, keeper, signal, failures, changed: news.tell }, (why) => {
        standing = () => tellWaiting({ node, version, store, failures }, why)
        tell()
      })
      const reconciler = new Reconciler(parts)
      standing = () => reconciler.status()
      await loop(reconciler, parts, settings, { heart, anew }, signal)
    } finally {
      health.stop()
    }
  } finally {
    keeper.flush()
    await store.close()
  }
}

// The loop tells of it, and tries again.
function attempt(work: () => void): void {
  try {
    work()
  } catch (cause) {
    log(`agent: ${(cause as Error).message}`)
  }
}

// Links and addresses change in groups.
const UPLINK_MS = 100
const CONF_MS = 60_000
/** So often the next peers are asked whether they answer. */
const PROBE_MS = 1000

/** What the loop hears. */
interface Ears {
  readonly heart: { since: number | undefined }
  /** Ends the loop, for another one to begin. */
  anew(): void
}

async function loop(reconciler: Reconciler, parts: Parts, settings: Settings, { heart, anew }: Ears, signal: AbortSignal): Promise<void> {
  const { network, files } = settings
  const { wakes } = parts
  const wakeFor = (what: Doubt) => {
    reconciler.doubt(what)
    wakes.poke(what)
  }
  const begin = (text: string) => {
    parts.log(`agent: ${text}; beginning anew with it`)
    anew()
  }
  const onHangup = () => {
    reconciler.doubtAll()
    wakes.poke('SIGHUP')
    void differs(parts, settings, signal).then((text) => text && begin(text))
  }
  // It ends with the signal alone.
  if (parts.stale)
    confirmed(parts, settings, signal).then(
      (text) => (text === undefined ? reconciler.confirm() : begin(text)),
      () => {},
    )
  if (files.install) watchPages(`${files.binDir}/bridge`, parts.log, signal)
  const looking = setInterval(() => void differs(parts, settings, signal).then((text) => text && reconciler.note(`${text}; it counts after a restart of the agent or SIGHUP`)), CONF_MS)
  process.on('SIGHUP', onHangup)
  const probing = parts.probes && setInterval(() => reconciler.probe(), PROBE_MS)
  const pluginRules = keepPluginRules({ failures: parts.failures, repaired: () => reconciler.repairedRules() }, signal)
  const heard = listen(reconciler, parts, pluginRules, signal)
  const fed = feed(reconciler, parts.store, signal)
  const watched = watchFile(files.subnetEnv, () => wakeFor('files'), signal)
  wakes.poke('start')
  try {
    for (let why = await wakes.next(0); !signal.aborted; why = await wakes.next(network.quietMs)) {
      if (why.includes('resync')) {
        reconciler.doubtAll()
        pluginRules.resync()
      }
      heart.since = performance.now()
      await reconciler.step(why)
      heart.since = undefined
      if (network.resyncMs > 0) wakes.poke('resync', network.resyncMs)
    }
  } finally {
    process.off('SIGHUP', onHangup)
    clearInterval(looking)
    clearInterval(probing)
    parts.probes?.close()
    if (signal.aborted) await Promise.all([...heard, fed, watched])
  }
}

// A store that fails altogether is looked at again: what is programmed stays meanwhile.
async function feed(reconciler: Reconciler, store: SubnetStore, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      for await (const snapshot of store.leases(signal)) reconciler.take(snapshot)
    } catch (cause) {
      if (!signal.aborted) log(`agent: Cannot follow the leases, trying again in 1 s: ${(cause as Error).message}`)
    }
    if (!signal.aborted) await Bun.sleep(1000)
  }
}

function listen(reconciler: Reconciler, { converger, wakes, firewall, facts, failures }: Parts, pluginRules: PluginRules, signal: AbortSignal): Promise<void>[] {
  const lost = (doubt: () => void) => () => {
    doubt()
    wakes.poke('listening')
  }
  const lostRules = () => {
    for (const what of ['table', 'forward'] as const) reconciler.doubt(what)
    pluginRules.doubt()
  }
  const lostAll = () => {
    reconciler.doubt('uplink')
    converger.invalidate()
  }
  const heard = (event: Event | undefined) => {
    if (!event) return
    if (converger.heard(event)) wakes.poke('drift')
    if (!reconciler.concerns(event)) return
    reconciler.doubt('uplink')
    wakes.poke('uplink', UPLINK_MS)
  }
  function ruleChanged(change: RuleChange): void {
    // Elements come and go with each pod.
    if (change.family === 'inet' && change.table === 'plumb' && change.gone && change.what !== 'other') pluginRules.doubt()
    const what = concernOf(change, firewall.table)
    if (what === undefined) return
    reconciler.doubt(what)
    wakes.poke(what)
  }
  const ears = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)), lost: lost(lostAll) },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)), lost: lost(() => converger.invalidate('tunnel')) },
  ]
  const failing = (name: string) => (why: string | undefined) => failures.report(name, why === undefined ? [] : [{ scope: 'node', text: why }])
  const rules = { heard: ruleChanged, lost: lost(lostRules), failing: failing('nft') }
  const tell = (text: string) => log(text)
  return [followRules(rules, signal, tell), ...ears.map((one) => follow({ ...one, env: markedAs(facts.instance), failing: failing(one.argv.join(' ')) }, signal, tell))]
}

// Our own table, and the chain of iptables that pods' packets have to pass.
function concernOf({ family, table, what, chain }: RuleChange, own: string): 'table' | 'forward' | undefined {
  if (family === 'inet') return table === own ? 'table' : undefined
  if (family === undefined || table !== 'filter' || what === 'other') return undefined
  return chain === undefined || /^(FORWARD$|PLUMB-F)/.test(chain) ? 'forward' : undefined
}
