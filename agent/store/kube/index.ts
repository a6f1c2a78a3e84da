// The store that is the Kubernetes cluster itself: leases are annotations of Node objects. Begin to read here with
// `open`. `node.ts` converts between a Node and a lease.
import { log } from '../../../lib/os/log.ts'
import { readText } from '../../../lib/os/reading.ts'
import { shown, ValueError } from '../../../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp } from '../../../lib/text/ip.ts'
import { type ApiSettings, accessOf } from '../../cluster/access.ts'
import { Api } from '../../cluster/api.ts'
import { PATIENCE } from '../../cluster/collection.ts'
import { type Reader, SharedCollection } from '../../cluster/shared-collection.ts'
import { overlaps } from '../../lease/allocate.ts'
import { both, isSame } from '../../lease/families.ts'
import { type Both, type Lease, parseNode } from '../../lease/lease.ts'
import { type NetworkConf, parseNetworkConf } from '../../lease/network-configuration.ts'
import { follow, UnavailableError } from '../../scheduler/follow.ts'
import { pause } from '../../scheduler/pause.ts'
import { FLAGS } from '../../settings/flags.ts'
import { prefixOf } from '../../settings/readers.ts'
import {
  type Draft,
  type Remembered,
  type Snapshot,
  StoreError,
  type StoreState,
  type SubnetStore,
  snapshots,
} from '../store.ts'
import {
  annotationsOf,
  type KubeNode,
  leaseOf,
  NAMES,
  overlapError,
  overwriteOf,
  projectNode,
  snapshotOf,
  subnetsOf,
} from './node.ts'

/** The options of the store. */
export interface Options extends ApiSettings {
  /** This node's name in the cluster. */
  readonly node: string
  /** The path of net-conf.json, which a ConfigMap provides. It is read again for each request. */
  readonly configFile: string
  /** The prefix of flannel's annotations. Default: flannel.alpha.coreos.com. */
  readonly annotationPrefix?: string
  /** Whether the store writes the node's condition NetworkUnavailable. Default: true. */
  readonly setCondition?: boolean
  /** plumb's version, for the API server's log and for the other nodes. */
  readonly version?: string
}

/** What the condition NetworkUnavailable says. */
interface Said {
  readonly status: 'True' | 'False'
  readonly reason: string
  readonly message: string
}

// flannel's words.
const UP: Said = { status: 'False', reason: 'FlannelIsUp', message: 'Flannel is running on this node' }
const REMOVED: Said = { status: 'True', reason: 'PlumbIsRemoved', message: 'plumb was removed from this node' }
const NODES = '/api/v1/nodes'
const CONFIG_MS = 500
const FAMILIES = ['v4', 'v6'] as const

/**
 * Opens the store, as flanneld's `--kube-subnet-mgr`. Kubernetes gives each Node its pod CIDR, and the nodes publish
 * data for their peers in annotations. Sends nothing before the first call. Throws ValueError for unusable options.
 */
export function open(options: Options): SubnetStore {
  return new KubeStore(options)
}

class KubeStore implements SubnetStore {
  readonly #node: string
  readonly #options: Options
  readonly #prefix: string
  readonly #api: Api
  readonly nodes: SharedCollection
  readonly #nodes: Reader<KubeNode>
  readonly #closing = new AbortController()
  #read = new WeakMap<KubeNode, { readonly lease?: Lease | undefined; readonly error?: ValueError }>()
  #conf: NetworkConf | undefined
  #error: string | undefined
  #asking: Promise<KubeNode | undefined> | undefined
  #had: Lease | undefined
  #changed = () => {}
  /** The node's condition NetworkUnavailable. The store keeps it up to date. Absent before the node served its pods. */
  #said: Said | undefined

  constructor(options: Options) {
    this.#options = options
    this.#node = parseNode(options.node)
    this.#prefix = prefixOf(options.annotationPrefix ?? FLAGS['kube-annotation-prefix'].fallback)
    this.#api = new Api(accessOf(options), `plumb-agent/${options.version ?? '0'}`)
    this.nodes = new SharedCollection(this.#api, NODES)
    this.#nodes = this.nodes.reader({
      project: (raw) => projectNode(raw, this.#prefix, this.#node),
      changed: (key, now) => this.#noticed(key, now),
    })
  }

  get configFile(): string {
    return this.#options.configFile
  }

  async config(signal: AbortSignal): Promise<NetworkConf> {
    const ended = this.#until(signal)
    // The file does not show whether the cluster answers, and all other steps need the cluster.
    await this.#tried(() => this.#answer(ended))
    while (!ended.aborted) {
      const text = readText(this.#options.configFile)
      if (text !== undefined) {
        const conf = parseNetworkConf(text)
        if (this.#conf === undefined) this.use(conf)
        return conf
      }
      await pause(CONFIG_MS, ended)
    }
    throw new StoreError(`There is no network configuration at ${this.#options.configFile}`)
  }

  async claim(draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease> {
    const ended = this.#until(signal)
    this.use(conf)
    return this.#tried(async () => {
      const node = await this.#own(ended)
      if (!node) {
        const want = 'want the name that the kubelet uses (NODE_NAME, or --node-name)'
        throw new StoreError(`There is no Node ${shown(this.#node)} in the cluster; ${want}`)
      }
      const lease = this.#wanted(draft, conf, node)
      const { version } = this.#options
      const own = version === undefined ? {} : { [NAMES.version]: version }
      const wanted = { ...annotationsOf(lease, { annotations: {} }), ...own }
      const differs = Object.entries(wanted).filter(([name, value]) => node.annotations[name] !== value)
      if (differs.length > 0) await this.#annotate(Object.fromEntries(differs), ended)
      if (this.#had && !isSame(this.#had.subnets, lease.subnets)) {
        const [now, before] = [both(lease.subnets).join(' '), both(this.#had.subnets).join(' ')]
        const effect = 'no other node reaches pods that started before; start them again'
        log(`agent: Kubernetes gave this node ${now} instead of ${before}: ${effect}`)
      }
      this.#had = lease
      return lease
    })
  }

  leases(signal: AbortSignal): AsyncIterable<Snapshot> {
    const { nodes } = this
    const followed = async (changed: () => void, ended: AbortSignal) => {
      this.#changed = changed
      if (this.#nodes.isListed) changed()
      const source = {
        known: () => nodes.known(),
        list: async (until: AbortSignal) => {
          await nodes.list(until)
          changed()
        },
        watch: (after: string, until: AbortSignal) => nodes.watch(after, until),
        apply: (event: Parameters<typeof nodes.apply>[0]) => nodes.apply(event),
        relist: () => nodes.relist(),
      }
      await follow(source, PATIENCE, ended)
    }
    return snapshots(() => this.#snapshot(), followed, this.#until(signal))
  }

  async release(node: string): Promise<void> {
    this.#said = undefined
    const gone = [
      NAMES.managed,
      NAMES.backend,
      NAMES.version,
      ...FAMILIES.flatMap((family) => [NAMES.data[family], NAMES.ip[family]]),
    ]
    await this.#tried(async () => {
      if ((await this.#api.get(`${NODES}/${node}`, this.#closing.signal)) === undefined) return
      await this.#annotate(Object.fromEntries(gone.map((name) => [name, null])), this.#closing.signal)
      if (this.#options.setCondition !== false) await this.#condition(REMOVED, this.#closing.signal)
    })
  }

  async remembered(signal: AbortSignal): Promise<Remembered> {
    const node = await this.#tried(() => this.#answer(this.#until(signal)))
    const annotations = node?.annotations ?? {}
    const addresses: { v4?: Ip; v6?: Ip } = {}
    const data: { v4?: unknown; v6?: unknown } = {}
    for (const family of FAMILIES) {
      const [ip, json] = [annotations[NAMES.own[family]], annotations[NAMES.data[family]]]
      if (ip) addresses[family] = this.#address(NAMES.own[family], ip)
      try {
        if (json) data[family] = JSON.parse(json)
      } catch {
        // Unreadable data counts as absent. The node publishes its data again.
      }
    }
    return { addresses, data }
  }

  async ready(): Promise<void> {
    await this.#say(UP)
  }

  async unready(reason: string, message: string): Promise<void> {
    await this.#say({ status: 'True', reason, message })
  }

  state(): StoreState {
    const { connected, error, heard, clockOffMs } = this.#api.state()
    const own = this.#nodes.items.get(this.#node)
    const shownError = error ?? this.#error
    return {
      name: 'kube',
      connected,
      ...(shownError !== undefined && !connected && { error: shownError }),
      ...(heard !== undefined && { heard }),
      ...(clockOffMs !== undefined && { clockOffMs }),
      ...(this.#said?.status === 'False' && own?.networkUnavailable === 'True' && { isUnavailable: true }),
    }
  }

  async close(): Promise<void> {
    this.#closing.abort()
  }

  // The lease that this node must publish, from its current Node object. Throws StoreError.
  #wanted({ ips, backend, data }: Draft, conf: NetworkConf, node: KubeNode): Lease {
    try {
      if (node.podCidrs.length === 0) {
        const flags =
          'kube-controller-manager --allocate-node-cidrs=true --cluster-cidr=…, kubeadm --pod-network-cidr=…'
        throw new ValueError(`it has no pod CIDR; want the controller manager to give one (${flags})`)
      }
      const subnets = subnetsOf(node, conf)
      const older = this.#older(subnets, node)
      if (older !== undefined) throw overlapError(subnets, older)
      const published: { v4?: Ip; v6?: Ip } = {}
      const ownData: { v4?: unknown; v6?: unknown } = {}
      for (const family of FAMILIES) {
        const text = overwriteOf(node, family)
        const ip = text === undefined ? ips[family] : this.#address(NAMES.overwrite[family], text)
        if (subnets[family] === undefined) continue
        if (ip !== undefined && ips[family] !== undefined) published[family] = ip
        if (data[family] !== undefined) ownData[family] = data[family]
      }
      return { node: this.#node, subnets, ips: published, backend, data: ownData }
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      throw new StoreError(`Cannot use the Node ${shown(this.#node)}: ${cause.message}`, { cause })
    }
  }

  #older(subnets: Both<Cidr>, { name, created }: KubeNode): string | undefined {
    const holder = this.#snapshot().leases.find((lease) => lease.node !== name && overlaps(lease.subnets, subnets))
    const other = holder && this.#nodes.items.get(holder.node ?? '')
    if (!other) return undefined
    const isOlder = other.created < created || (other.created === created && other.name < name)
    return isOlder ? other.name : undefined
  }

  #address(annotation: string, text: string): Ip {
    try {
      return parseIp(text)
    } catch (cause) {
      const what = `the annotation ${this.#prefix}${annotation} of the Node ${shown(this.#node)}`
      throw new StoreError(`Cannot use ${what}: ${(cause as Error).message}`, { cause })
    }
  }

  // Callers share one request. A caller that asks again while the server is slow waits for the same answer.
  async #answer(signal: AbortSignal): Promise<KubeNode | undefined> {
    this.#asking ??= this.#own(this.#closing.signal).finally(() => {
      this.#asking = undefined
    })
    const given = Promise.withResolvers<never>()
    const end = () =>
      given.reject(new UnavailableError(this.#api.state().error ?? 'The Kubernetes API has not answered yet'))
    signal.addEventListener('abort', end, { once: true })
    if (signal.aborted) end()
    try {
      return await Promise.race([this.#asking, given.promise])
    } finally {
      signal.removeEventListener('abort', end)
      given.promise.catch(() => {})
    }
  }

  async #own(signal: AbortSignal): Promise<KubeNode | undefined> {
    const raw = await this.#api.get(`${NODES}/${this.#node}`, signal)
    return raw === undefined ? undefined : projectNode(raw, this.#prefix, this.#node)
  }

  async #annotate(annotations: Readonly<Record<string, string | null>>, signal: AbortSignal): Promise<void> {
    const named = Object.entries(annotations).map(([name, value]) => [`${this.#prefix}${name}`, value])
    const metadata = { annotations: Object.fromEntries(named) }
    await this.#api.patch(`${NODES}/${this.#node}/status`, { metadata }, signal)
  }

  async #say(said: Said): Promise<void> {
    this.#said = said
    if (this.#options.setCondition === false) return
    await this.#tried(() => this.#condition(said, this.#closing.signal))
  }

  async #condition(said: Said, signal: AbortSignal): Promise<void> {
    const now = new Date().toISOString().replace(/\.\d+/, '')
    const times = { lastTransitionTime: now, lastHeartbeatTime: now }
    const condition = { type: 'NetworkUnavailable', ...said, ...times }
    await this.#api.patch(`${NODES}/${this.#node}/status`, { status: { conditions: [condition] } }, signal)
  }

  // A Node that was deleted and created again has no condition, so the condition is written again.
  #noticed(key: string, now: KubeNode | undefined): void {
    const said = this.#said
    if (key === this.#node && now && said && now.networkUnavailable !== said.status)
      this.#say(said).catch((cause) => log(`agent: ${(cause as Error).message}`))
    if (this.#nodes.isListed) this.#changed()
  }

  #snapshot(): Snapshot {
    const conf = this.#conf
    if (!conf) return { leases: [], unreadable: [] }
    return snapshotOf(this.#nodes.items.values(), this.#nodes.refused, (node) => this.#leaseOf(node, conf))
  }

  // Each Node is parsed only once. Otherwise each change of one Node would parse ten thousand Nodes again.
  #leaseOf(node: KubeNode, conf: NetworkConf): Lease | undefined {
    let known = this.#read.get(node)
    if (!known) {
      try {
        known = { lease: this.#isPublished(node) ? leaseOf(node, conf) : undefined }
      } catch (cause) {
        if (!(cause instanceof ValueError)) throw cause
        known = { error: cause }
      }
      this.#read.set(node, known)
    }
    if (known.error) throw known.error
    return known.lease
  }

  // False when an administrator has set another address for this node to publish. The lease then counts as gone, and is
  // published again.
  #isPublished(node: KubeNode): boolean {
    if (node.name !== this.#node) return true
    return FAMILIES.every((family) => {
      const [published, wanted] = [node.annotations[NAMES.ip[family]], overwriteOf(node, family)]
      return published === undefined || wanted === undefined || wanted === published
    })
  }

  use(conf: NetworkConf): void {
    if (this.#conf !== conf) this.#read = new WeakMap()
    this.#conf = conf
  }

  async #tried<T>(work: () => Promise<T>): Promise<T> {
    try {
      const done = await work()
      this.#error = undefined
      return done
    } catch (cause) {
      if (!(cause instanceof UnavailableError) && !(cause instanceof ValueError)) throw cause
      this.#error = cause.message
      throw cause instanceof StoreError ? cause : new StoreError(cause.message, { cause })
    }
  }

  #until(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#closing.signal])
  }
}
