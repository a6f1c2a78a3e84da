import { withLock } from '../../../lib/os/files.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { encodeKey, type Lease, parseNode } from '../../lease/lease.ts'
import { type NetworkConf, parseNetworkConf } from '../../lease/network-configuration.ts'
import { pause } from '../../scheduler/pause.ts'
import { FLAGS } from '../../settings/flags.ts'
import { snapshots } from '../snapshots.ts'
import { type Draft, type Snapshot, StoreError, type StoreState, type SubnetStore } from '../store.ts'
import { claim, release } from './claim.ts'
import { read } from './folder.ts'
import { follow } from './follow.ts'
import { Network, snapshotOf } from './network.ts'
import { AwayError, Root } from './root.ts'

/** Where the network is on disk. */
export interface Options {
  /** /var/lib/plumb/store unless given; a folder that several nodes share, when they do. It is never made: without its file system it is an empty mount point. */
  readonly dir?: string
  /** net-conf.json's text; else it is read from the folder's file `config`. */
  readonly config?: string
  /** The file that it is read from in place of the folder's, each time when somebody asks. */
  readonly configFile?: string
  /** How long a lease lasts unless renewed, in seconds; for ever unless given. The nodes' clocks must agree. */
  readonly ttlSeconds?: number
  /** How often the folder is looked at without a reason, in milliseconds; 5 s unless given. */
  readonly pollMs?: number
}

const DIR = FLAGS['file-store-dir'].fallback
const POLL_MS = 5000
const CONFIG_MS = 500
// How long another may hold the lock before that is an error, and how often it is tried.
const [LOCK_MS, TRY_MS] = [10_000, 10]

/** The store that needs no server: the files of a folder, of one machine or shared by several. Nothing is read before the first call. Throws ValueError for options that cannot be used. */
export function open(options: Options = {}): SubnetStore {
  return new FileStore(options)
}

class FileStore implements SubnetStore {
  readonly #options: Options
  readonly #dir: string
  readonly #configFile: string
  readonly #network: Network
  readonly #root: Root
  readonly #closing = new AbortController()
  #state: StoreState = { name: 'file', connected: false }
  #told: Snapshot = { leases: [], unreadable: [] }

  constructor(options: Options) {
    const { ttlSeconds } = options
    if (ttlSeconds !== undefined && !(ttlSeconds > 0)) throw new ValueError(`Cannot use ${ttlSeconds} as the time of a lease: want seconds, more than 0`)
    this.#options = options
    this.#dir = options.dir ?? DIR
    this.#configFile = options.configFile ?? `${this.#dir}/config`
    this.#network = new Network(this.#dir)
    this.#root = new Root(this.#dir, options.config === undefined && options.configFile === undefined)
  }

  async config(signal: AbortSignal): Promise<NetworkConf> {
    const ended = this.#until(signal)
    while (!ended.aborted) {
      const text = this.#options.config ?? this.#tried('read the configuration', () => read(this.#configFile))
      if (text !== undefined) return parseNetworkConf(text)
      await pause(CONFIG_MS, ended)
    }
    throw new StoreError(this.#state.error ?? `There is no network configuration at ${this.#configFile}`)
  }

  async claim(draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease> {
    parseNode(draft.node)
    return this.#locked('claim a subnet', () => claim(this.#dir, this.#network.look(), draft, conf, this.#options.ttlSeconds), this.#until(signal))
  }

  leases(signal: AbortSignal): AsyncIterable<Snapshot> {
    const followed = { dir: this.#dir, network: this.#network, pollMs: this.#options.pollMs ?? POLL_MS, tried: <T>(work: () => T) => this.#tried('read the leases', work) }
    return snapshots(
      () => this.#snapshot(),
      (changed, ended) => follow(followed, changed, ended),
      this.#until(signal),
    )
  }

  async release(node: string, identity?: string): Promise<void> {
    parseNode(node)
    await this.#locked('release a subnet', () => release(this.#dir, this.#network.look(), node, identity), this.#closing.signal)
  }

  state(): StoreState {
    return this.#state
  }

  async close(): Promise<void> {
    this.#closing.abort()
  }

  // Without waiting in the kernel, where nothing else would go on meanwhile.
  async #locked<T>(what: string, work: () => T, signal: AbortSignal): Promise<T> {
    for (const end = Date.now() + LOCK_MS; ; await pause(TRY_MS, signal)) {
      try {
        return this.#attempt(what, () => withLock(`${this.#dir}/lock`, work, { wait: false }))
      } catch (cause) {
        if (!isLocked(cause) || signal.aborted || Date.now() > end) throw cause
      }
    }
  }

  // What was known last, when the folder is away since it was looked at.
  #snapshot(): Snapshot {
    this.#told = this.#tried('read the leases', () => snapshotOf(this.#network.files())) ?? this.#told
    return this.#told
  }

  /** Undefined when the disk fails, or is away: the state tells why. */
  #tried<T>(what: string, work: () => T): T | undefined {
    try {
      return this.#attempt(what, work)
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      return undefined
    }
  }

  #attempt<T>(what: string, work: () => T): T {
    const check = () => this.#root.check(() => this.#told.leases.map(({ subnets }) => encodeKey(subnets)))
    try {
      check()
      const done = work()
      // It may have gone meanwhile, and what was read was the mount point.
      check()
      this.#state = { name: 'file', connected: true, heard: Date.now() }
      return done
    } catch (cause) {
      const isAway = cause instanceof AwayError
      if (!isAway && typeof (cause as NodeJS.ErrnoException).code !== 'string') throw cause
      const error = new StoreError(isAway ? cause.message : `Cannot ${what} in ${this.#dir}: ${(cause as Error).message}`, { cause })
      this.#state = { ...this.#state, connected: false, error: error.message }
      throw error
    }
  }

  #until(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#closing.signal])
  }
}

function isLocked(cause: unknown): boolean {
  return cause instanceof StoreError && (cause.cause as NodeJS.ErrnoException).code === 'EWOULDBLOCK'
}
