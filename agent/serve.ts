import { existsSync, readdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { log } from '../lib/log.ts'
import { openBackend } from './backend.ts'
import { Converger } from './converge.ts'
import { bridgeEvent, type Event, ipEvent, MONITORS } from './events.ts'
import { serveHealth } from './health.ts'
import { installNetwork, installPlugins } from './install.ts'
import type { Lease } from './lease.ts'
import { removeFlannelRules } from './leftovers.ts'
import { instanceOf, scopeOf, storeWish, tableOf, wishOf } from './life.ts'
import { follow } from './monitor.ts'
import type { NetworkConf } from './netconf.ts'
import { makeNews, type News } from './news.ts'
import { hasNexthops } from './nexthops.ts'
import { type NodeSubnet, readSubnetEnv, remember, remembered, writeSubnetEnv } from './nodefiles.ts'
import { endOrphans, markedAs } from './orphans.ts'
import { watchStore } from './outages.ts'
import { type Parts, Reconciler } from './reconcile.ts'
import { run } from './run.ts'
import type { Settings } from './settings.ts'
import { openStore, type SubnetStore } from './store.ts'
import { pause } from './stores/pause.ts'
import { tellWaiting } from './telling.ts'
import { makeWakes } from './wakes.ts'

/** Runs the agent until the signal. Throws what ends it otherwise: settings or a network configuration that cannot be served, a subnet that belongs to another. */
export async function serve(settings: Settings, version: string, signal: AbortSignal): Promise<void> {
  const { node, files } = settings
  const before = remembered(files.stateDir, node)
  // Pods that start meanwhile have what they had; who reads the file needs no store for it.
  if (before) attempt(() => writeSubnetEnv(files.subnetEnv, before))
  endOrphans(instanceOf(settings))
  const store = await openStore(storeWish(settings))
  const [news, heart, started] = [makeNews(), { since: undefined as number | undefined }, Date.now()]
  let reconciler: Reconciler | undefined
  let awaited = ''
  const status = () => reconciler?.status() ?? tellWaiting({ node, version, started, store }, awaited)
  try {
    const health = await serveHealth({ address: settings.status?.host ?? '127.0.0.1', port: settings.status?.port ?? 0, socket: files.socket }, { status, changes: news.changes, busySince: () => heart.since })
    try {
      void watchStore(store, signal, () => news.tell(status()), log)
      const awaiting = (text: string) => {
        awaited = text
        news.tell(status())
      }
      const parts = await prepare({ settings, version, store, before, news, signal }, awaiting)
      reconciler = new Reconciler(parts)
      await loop(reconciler, parts, settings, heart, signal)
    } finally {
      health.stop()
    }
  } finally {
    await store.close()
  }
}

/** What is there before the network is known. */
interface Ground {
  readonly settings: Settings
  readonly version: string
  readonly store: SubnetStore
  readonly before: NodeSubnet | undefined
  readonly news: News
  readonly signal: AbortSignal
}

// Says what it waits for as long as it does.
async function prepare({ settings, version, store, before, news, signal }: Ground, awaiting: (text: string) => void): Promise<Parts> {
  const { node, files, firewall, network } = settings
  const conf = await configured(store, signal, awaiting)
  for (const note of conf.notes ?? []) log(`agent: the network's configuration: ${note}`)
  const backend = await openBackend(conf.backend.type)
  const options = backend.conf({ ...conf.backend.options, ...(network.txChecksumOffload === 'auto' ? {} : { TxChecksumOffload: network.txChecksumOffload === 'on' }) })
  const instance = instanceOf(settings)
  const known = before?.subnet ?? readSubnetEnv(files.subnetEnv).subnet
  return {
    node,
    version,
    store,
    conf,
    backend,
    options,
    facts: { instance, nexthops: await nexthops(signal, awaiting) },
    converger: new Converger(scopeOf(settings, conf, backend.links(options), before?.network), run),
    run,
    wakes: makeWakes(signal),
    wish: wishOf(settings),
    before: known,
    firewall: { table: tableOf(instance), masquerade: firewall.masquerade, keep: firewall.nonMasquerade, random: firewall.randomFully, forward: firewall.forward },
    allowOverlap: network.allowOverlap,
    renewMarginMs: settings.store.kind === 'etcd' ? settings.store.renewMarginMs : 0,
    leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
    synced: () => settle(settings),
    changed: news.tell,
    log: (text) => log(text),
  }
}

const NO_CONFIG = 'the network’s configuration is not known yet'
const WAIT_MS = 1000

async function configured(store: SubnetStore, signal: AbortSignal, awaiting: (text: string) => void): Promise<NetworkConf> {
  awaiting(NO_CONFIG)
  const timer = setTimeout(() => {
    const { connected, error } = store.state()
    log(`agent: waiting: ${NO_CONFIG}: ${(!connected && error) || 'the store has none'}`)
  }, WAIT_MS)
  try {
    return await store.config(signal)
  } finally {
    clearTimeout(timer)
  }
}

async function nexthops(signal: AbortSignal, awaiting: (text: string) => void): Promise<boolean> {
  for (let said = ''; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      return await hasNexthops(run)
    } catch (cause) {
      const { message } = cause as Error
      awaiting(message)
      if (said !== message) log(`agent: waiting: ${message}`)
      said = message
    }
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

async function loop(reconciler: Reconciler, parts: Parts, { network }: Settings, heart: { since: number | undefined }, signal: AbortSignal): Promise<void> {
  const { wakes, store } = parts
  const onHangup = () => {
    reconciler.doubtAll()
    wakes.poke('SIGHUP')
  }
  process.on('SIGHUP', onHangup)
  const heard = listen(reconciler, parts, signal)
  const fed = feed(reconciler, store, signal)
  wakes.poke('start')
  try {
    for (let why = await wakes.next(0); !signal.aborted; why = await wakes.next(network.quietMs)) {
      if (why.includes('resync')) reconciler.doubtAll()
      heart.since = performance.now()
      await reconciler.step(why)
      heart.since = undefined
      if (network.resyncMs > 0) wakes.poke('resync', network.resyncMs)
    }
  } finally {
    process.off('SIGHUP', onHangup)
    if (signal.aborted) await Promise.all([...heard, fed])
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

function listen(reconciler: Reconciler, { converger, wakes, firewall, facts }: Parts, signal: AbortSignal): Promise<void>[] {
  const lost = () => {
    reconciler.doubtAll()
    wakes.poke('listening')
  }
  const heard = (event: Event | undefined) => {
    if (!event) return
    if (converger.heard(event)) wakes.poke('drift')
    if (!reconciler.concerns(event)) return
    reconciler.doubt('uplink')
    wakes.poke('uplink', UPLINK_MS)
  }
  function nft(text: string): void {
    if (text.includes(` ${firewall.table}`)) reconciler.doubt('table')
    else if (/ ip6? filter( (FORWARD|PLUMB-F\S+)\b|$)/.test(text)) reconciler.doubt('forward')
    else return
    wakes.poke('rules')
  }
  const ears = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)) },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)) },
    { argv: ['nft', 'monitor'], line: nft },
  ]
  return ears.map((one) => follow({ ...one, lost, env: markedAs(facts.instance) }, signal, (text) => log(text)))
}

function writeNode({ node, files, firewall }: Settings, { v4, v6 }: NetworkConf, lease: Lease, mtu: number): void {
  const subnet = { network: { ...(v4 ? { v4: v4.network } : {}), ...(v6 ? { v6: v6.network } : {}) }, subnet: lease.subnets, mtu, ipMasq: firewall.masquerade }
  writeSubnetEnv(files.subnetEnv, subnet)
  remember(files.stateDir, node, subnet)
}

async function settle(settings: Settings): Promise<void> {
  install(settings)
  // Only now: until then what flannel left masquerades for us.
  if (settings.firewall.replaceFlannel) for (const what of await removeFlannelRules(run)) log(`agent: removed what flannel left: ${what}`)
}

function install({ files }: Settings): void {
  if (!files.install) return
  const bin = dirname(process.execPath)
  const names = readdirSync(bin).filter((name) => name !== 'plumb' && !name.startsWith('.') && existsSync(`${bin}/${name}`))
  installPlugins(files, process.execPath, names)
  const { path, made, foreign } = installNetwork(files, files.subnetEnv)
  if (foreign) log(`agent: ${path} is somebody else's and was left as it is`)
  else if (made) log(`agent: wrote ${path}: pods can start`)
}
