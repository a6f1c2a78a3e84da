// The file store: leases of nodes as files in a folder. Begin to read here. `claim.ts` writes leases. `network.ts`
// reads leases. `follow.ts` watches for changes.
import { withLock } from '../../../lib/os/files.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { encodeKey, type Lease, parseNode } from '../../lease/lease.ts'
import { type NetworkConf, parseNetworkConf } from '../../lease/network-configuration.ts'
import { pause } from '../../scheduler/pause.ts'
import { FLAGS } from '../../settings/flags.ts'
import { type Draft, type Snapshot, StoreError, type StoreState, type SubnetStore, snapshots } from '../store.ts'
import { claim, release } from './claim.ts'
import { read } from './folder.ts'
import { follow } from './follow.ts'
import { Network, snapshotOf } from './network.ts'
import { AwayError, Root } from './root.ts'

/** Location of a network on disk, and the lifetime of its leases. */
export interface Options {
  /**
   * The folder, by default /var/lib/plumb/store. Several nodes may share it. The store never makes the folder, because
   * without its file system the path is an empty mount point.
   */
  readonly dir?: string
  /** Text of net-conf.json. If absent, the store reads the file `config` of the folder. */
  readonly config?: string
  /** Path of the file to read instead of `config` in the folder. The store reads this file at every request. */
  readonly configFile?: string
  /**
   * Lifetime of a lease in seconds, unless the node renews it. Without a value, leases never end. The clocks of the
   * nodes must agree.
   */
  readonly ttlSeconds?: number
  /** Interval of the polls of the folder in milliseconds. The default is 5 s. */
  readonly pollMs?: number
}

const DIR = FLAGS['file-store-dir'].fallback
const POLL_MS = 5000
const CONFIG_MS = 500
// Longest wait for the lock of another process, and the interval between attempts. Milliseconds.
const [LOCK_MS, TRY_MS] = [10_000, 10]

/**
 * Opens the store without a server. It keeps the leases in the files of a folder, on one machine or shared by several
 * machines. Nothing is read before the first call. Throws ValueError for invalid options.
 */
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
  #last: Snapshot = { leases: [], unreadable: [] }

  constructor(options: Options) {
    const { ttlSeconds } = options
    if (ttlSeconds !== undefined && !(ttlSeconds > 0))
      throw new ValueError(`Cannot use ${ttlSeconds} as the time of a lease: want seconds, more than 0`)
    this.#options = options
    this.#dir = options.dir ?? DIR
    this.#configFile = options.configFile ?? `${this.#dir}/config`
    this.#network = new Network(this.#dir)
    this.#root = new Root(this.#dir, options.config === undefined && options.configFile === undefined)
  }

  get configFile(): string {
    return this.#configFile
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
    const work = () => claim(this.#dir, this.#network.look(), draft, conf, this.#options.ttlSeconds)
    return this.#locked('claim a subnet', work, this.#until(signal))
  }

  leases(signal: AbortSignal): AsyncIterable<Snapshot> {
    const followed = {
      dir: this.#dir,
      network: this.#network,
      pollMs: this.#options.pollMs ?? POLL_MS,
      tried: <T>(work: () => T) => this.#tried('read the leases', work),
    }
    return snapshots(
      () => this.#snapshot(),
      (changed, ended) => follow(followed, changed, ended),
      this.#until(signal),
    )
  }

  async release(node: string, identity?: string): Promise<void> {
    parseNode(node)
    const work = () => release(this.#dir, this.#network.look(), node, identity)
    await this.#locked('release a subnet', work, this.#closing.signal)
  }

  state(): StoreState {
    return this.#state
  }

  async close(): Promise<void> {
    this.#closing.abort()
  }

  // Does not wait for the lock in the kernel, because such a wait would block the whole agent.
  async #locked<T>(what: string, work: () => T, signal: AbortSignal): Promise<T> {
    for (const end = Date.now() + LOCK_MS; ; await pause(TRY_MS, signal)) {
      try {
        return this.#attempt(what, () => withLock(`${this.#dir}/lock`, work, { wait: false }))
      } catch (cause) {
        if (!isLocked(cause) || signal.aborted || Date.now() > end) throw cause
      }
    }
  }

  // Returns the last known snapshot when the folder has gone away since the last look.
  #snapshot(): Snapshot {
    this.#last = this.#tried('read the leases', () => snapshotOf(this.#network.files())) ?? this.#last
    return this.#last
  }

  /** Undefined when the disk fails or is not mounted. The state gives the reason. */
  #tried<T>(what: string, work: () => T): T | undefined {
    try {
      return this.#attempt(what, work)
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      return undefined
    }
  }

  #attempt<T>(what: string, work: () => T): T {
    const check = () => this.#root.check(() => this.#last.leases.map(({ subnets }) => encodeKey(subnets)))
    try {
      check()
      const done = work()
      // The file system may be unmounted during `work`. Then `work` has read the empty mount point.
      check()
      this.#state = { name: 'file', connected: true, heard: Date.now() }
      return done
    } catch (cause) {
      const isAway = cause instanceof AwayError
      if (!isAway && typeof (cause as NodeJS.ErrnoException).code !== 'string') throw cause
      const { message } = cause as Error
      const error = new StoreError(isAway ? message : `Cannot ${what} in ${this.#dir}: ${message}`, { cause })
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
