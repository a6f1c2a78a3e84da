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
import { readSubnetEnv, remember, remembered, writeSubnetEnv } from './nodefiles.ts'
import { type Parts, Reconciler } from './reconcile.ts'
import { run } from './run.ts'
import type { Settings } from './settings.ts'
import { openStore, type SubnetStore } from './store.ts'
import { makeWakes, type Wakes } from './wakes.ts'

/** Runs the agent until the signal. Throws what ends it otherwise: settings or a network configuration that cannot be served, a subnet that belongs to another. */
export async function serve(settings: Settings, version: string, signal: AbortSignal): Promise<void> {
  const { node, files, firewall } = settings
  const before = remembered(files.stateDir, node)
  // Pods that start meanwhile have what they had; who reads the file needs no store for it.
  if (before) writeSubnetEnv(files.subnetEnv, before)
  const store = await openStore(storeWish(settings))
  try {
    const conf = await configured(store, signal)
    const backend = await openBackend(conf.backend.type)
    const options = backend.conf({ ...conf.backend.options, ...(settings.network.txChecksumOffload === 'auto' ? {} : { TxChecksumOffload: settings.network.txChecksumOffload === 'on' }) })
    const instance = instanceOf(settings)
    const wakes = makeWakes(signal)
    const [news, heart] = [makeNews(), { since: undefined as number | undefined }]
    const known = before?.subnet ?? readSubnetEnv(files.subnetEnv).subnet
    const parts: Parts = {
      node,
      version,
      store,
      conf,
      backend,
      options,
      facts: { instance, nexthops: await hasNexthops(run) },
      converger: new Converger(scopeOf(settings, conf, backend.links(options), before?.network), run),
      run,
      wakes,
      wish: wishOf(settings),
      before: known,
      firewall: { table: tableOf(instance), masquerade: firewall.masquerade, keep: firewall.nonMasquerade, random: firewall.randomFully, forward: firewall.forward },
      allowOverlap: settings.network.allowOverlap,
      renewMarginMs: settings.store.kind === 'etcd' ? settings.store.renewMarginMs : 0,
      leased: (lease, mtu) => writeNode(settings, conf, lease, mtu),
      synced: () => settle(settings),
      changed: news.tell,
      log: (text) => log(text),
    }
    const reconciler = new Reconciler(parts)
    const health = await serveHealth({ address: settings.status?.host ?? '127.0.0.1', port: settings.status?.port ?? 0, socket: files.socket }, { status: () => reconciler.status(), changes: news.changes, busySince: () => heart.since })
    try {
      await loop(reconciler, parts, settings, { wakes, heart, store, news }, signal)
    } finally {
      health.stop()
    }
  } finally {
    await store.close()
  }
}

// Until there is one nothing else can be done; what it waits for is said once.
async function configured(store: SubnetStore, signal: AbortSignal): Promise<NetworkConf> {
  const said = new Set<string>()
  const timer = setInterval(() => {
    const { error } = store.state()
    const text = `agent: waiting for the configuration of the network${error ? `: ${error}` : ''}`
    if (!said.has(text)) log(text)
    said.add(text)
  }, WAITING_MS)
  try {
    return await store.config(signal)
  } finally {
    clearInterval(timer)
  }
}

const WAITING_MS = 1000
// Links and addresses change in groups.
const UPLINK_MS = 100

/** What the loop hears. */
interface Ears {
  readonly wakes: Wakes
  readonly heart: { since: number | undefined }
  readonly store: SubnetStore
  readonly news: News
}

async function loop(reconciler: Reconciler, parts: Parts, { network }: Settings, { wakes, heart, store }: Ears, signal: AbortSignal): Promise<void> {
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

function listen(reconciler: Reconciler, { converger, wakes, firewall }: Parts, signal: AbortSignal): Promise<void>[] {
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
    else if (/ ip6? filter( (FORWARD|PLUMB-FORWARD)\b|$)/.test(text)) reconciler.doubt('forward')
    else return
    wakes.poke('rules')
  }
  const ears = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)) },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)) },
    { argv: ['nft', 'monitor'], line: nft },
  ]
  return ears.map((one) => follow({ ...one, lost }, signal, (text) => log(text)))
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
  const { path, made, foreign, hiddenBy } = installNetwork(files, files.subnetEnv)
  if (hiddenBy !== undefined) log(`agent: ${hiddenBy} comes before ${path}: the container runtime takes that one`)
  if (foreign) log(`agent: ${path} is somebody else's and was left as it is`)
  else if (made) log(`agent: wrote ${path}: pods can start`)
}
