import { existsSync, readdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { ValueError } from '../lib/errors.ts'
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
import { makeNews } from './news.ts'
import { hasNexthops } from './nexthops.ts'
import { readSubnetEnv, remember, remembered, writeSubnetEnv } from './nodefiles.ts'
import { type Parts, Reconciler } from './reconcile.ts'
import { run } from './run.ts'
import type { Settings } from './settings.ts'
import { openStore, StoreError, type SubnetStore } from './store.ts'
import { notify } from './systemd.ts'
import { waiting } from './telling.ts'
import { makeWakes } from './wakes.ts'

/** Runs the agent until the signal; begins anew when SIGHUP finds another network configuration in the store. Throws what ends it otherwise: settings or a network configuration that cannot be served, a subnet that belongs to another. */
export async function serve(settings: Settings, version: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const anew = new AbortController()
    await serveOne(settings, version, AbortSignal.any([signal, anew.signal]), () => anew.abort())
  }
}

async function serveOne(settings: Settings, version: string, signal: AbortSignal, anew: () => void): Promise<void> {
  const { node, files, status } = settings
  const before = remembered(files.stateDir, node)
  // Pods that start meanwhile have what they had; who reads the file needs no store for it.
  if (before) writeSubnetEnv(files.subnetEnv, before)
  const store = await openStore(storeWish(settings))
  const [news, heart] = [makeNews(), { since: undefined as number | undefined }]
  let standing = () => waiting({ node, version, store }, [])
  try {
    const source = { status: () => standing(), changes: news.changes, busySince: () => heart.since }
    const health = await serveHealth({ address: status?.host ?? '127.0.0.1', port: status?.port ?? 0, socket: files.socket }, source)
    try {
      const conf = await configured(store, signal, (why) => {
        log(`agent: waiting: ${why}`)
        standing = () => waiting({ node, version, store }, [why])
        news.tell(() => standing())
      })
      const parts = await partsOf(settings, conf, { version, store, before, wakes: makeWakes(signal), changed: news.tell })
      const reconciler = new Reconciler(parts)
      standing = () => reconciler.status()
      await loop(reconciler, parts, settings, { heart, anew }, signal)
    } finally {
      health.stop()
    }
  } finally {
    await store.close()
  }
}

// What is missing is said once, until something else is.
async function configured(store: SubnetStore, signal: AbortSignal, wait: (why: string) => void): Promise<NetworkConf> {
  for (let said = ''; ; ) {
    try {
      return await store.config(AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)]))
    } catch (cause) {
      if (signal.aborted || !(cause instanceof StoreError)) throw cause
      if (cause.message !== said) wait(cause.message)
      said = cause.message
    }
  }
}

type Given = Pick<Parts, 'version' | 'store' | 'wakes' | 'changed'> & { readonly before: ReturnType<typeof remembered> }

async function partsOf(settings: Settings, conf: NetworkConf, { before, ...given }: Given): Promise<Parts> {
  const { node, files, firewall, network } = settings
  const backend = await openBackend(conf.backend.type)
  const options = backend.conf({ ...conf.backend.options, ...(network.txChecksumOffload === 'auto' ? {} : { TxChecksumOffload: network.txChecksumOffload === 'on' }) })
  const instance = instanceOf(settings)
  return {
    node,
    ...given,
    conf,
    backend,
    options,
    facts: { instance, nexthops: await hasNexthops(run) },
    converger: new Converger(scopeOf(settings, conf, backend.links(options), before?.network), run),
    run,
    wish: wishOf(settings),
    before: before?.subnet ?? readSubnetEnv(files.subnetEnv).subnet,
    firewall: { table: tableOf(instance), masquerade: firewall.masquerade, keep: firewall.nonMasquerade, random: firewall.randomFully, forward: firewall.forward },
    allowOverlap: network.allowOverlap,
    blackhole: network.blackhole,
    renewMarginMs: settings.store.kind === 'etcd' ? settings.store.renewMarginMs : 0,
    leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
    synced: () => settle(settings),
    log: (text) => log(text),
  }
}

// Links and addresses change in groups.
const UPLINK_MS = 100
const CONF_MS = 60_000
const WAIT_MS = 5000

/** What the loop hears. */
interface Ears {
  readonly heart: { since: number | undefined }
  /** Ends the loop, for another one to begin. */
  anew(): void
}

async function loop(reconciler: Reconciler, parts: Parts, { network }: Settings, { heart, anew }: Ears, signal: AbortSignal): Promise<void> {
  const { wakes } = parts
  const onHangup = () => {
    reconciler.doubtAll()
    wakes.poke('SIGHUP')
    void differs(parts, signal).then((text) => {
      if (text === undefined) return
      parts.log(`agent: ${text}; beginning anew with it`)
      anew()
    })
  }
  const looking = setInterval(() => void differs(parts, signal).then((text) => text && reconciler.note(`${text}; it counts after a restart of the agent or SIGHUP`)), CONF_MS)
  process.on('SIGHUP', onHangup)
  const heard = listen(reconciler, parts, signal)
  const fed = feed(reconciler, parts.store, signal)
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
    clearInterval(looking)
    if (signal.aborted) await Promise.all([...heard, fed])
  }
}

// Whoever changes it may want to choose the moment, node by node, as with flannel.
async function differs({ store, conf, log }: Parts, signal: AbortSignal): Promise<string | undefined> {
  try {
    const now = await store.config(AbortSignal.any([signal, AbortSignal.timeout(CONF_MS / 2)]))
    return Bun.deepEquals(now, conf) ? undefined : 'the store has another network configuration'
  } catch (cause) {
    // A store that does not answer is told of by its state.
    if (cause instanceof ValueError) log(`agent: going on with the network configuration as it was: ${cause.message}`)
    return undefined
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

function listen(reconciler: Reconciler, { converger, wakes, firewall }: Parts, signal: AbortSignal): Promise<void>[] {
  const lost = (doubt: () => void) => () => {
    doubt()
    wakes.poke('listening')
  }
  const lostRules = () => {
    for (const what of ['table', 'forward'] as const) reconciler.doubt(what)
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
  function nft(text: string): void {
    if (text.includes(` ${firewall.table}`)) reconciler.doubt('table')
    else if (/ ip6? filter( (FORWARD|PLUMB-FORWARD)\b|$)/.test(text)) reconciler.doubt('forward')
    else return
    wakes.poke('rules')
  }
  const ears = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)), lost: lost(lostAll) },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)), lost: lost(() => converger.invalidate('tunnel')) },
    { argv: ['nft', 'monitor'], line: nft, lost: lost(lostRules) },
  ]
  return ears.map((one) => follow(one, signal, (text) => log(text)))
}

function writeNode({ node, files, firewall }: Settings, { v4, v6 }: NetworkConf, lease: Lease, mtu: number): void {
  const subnet = { network: { ...(v4 ? { v4: v4.network } : {}), ...(v6 ? { v6: v6.network } : {}) }, subnet: lease.subnets, mtu, ipMasq: firewall.masquerade }
  writeSubnetEnv(files.subnetEnv, subnet)
  remember(files.stateDir, node, subnet)
}

async function settle(settings: Settings): Promise<void> {
  install(settings)
  notify('READY=1', 'STATUS=the pods of all nodes that are known can be reached')
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
