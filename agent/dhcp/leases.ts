import { remove } from '../../lib/os/files.ts'
import { log } from '../../lib/os/log.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { leaseName, type Question, type Reply } from '../../lib/pools/dhcp.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { Owner } from '../../lib/text/owner.ts'
import { brief } from '../../lib/text/values.ts'
import type { Timing } from './conversation.ts'
import { Lease } from './lease.ts'
import { readSaved } from './reading.ts'

/** The settings of the daemon for all its leases. */
export interface Ways extends Timing {
  /** The folder of the lease files. */
  readonly dir: string
  /** A prefix for the paths of namespaces. */
  readonly hostPrefix: string
}

/** The interval at which the daemon checks that the links of its leases still exist. */
const LOOK_MS = 15_000

/** All leases of the daemon, by attachment. */
export class Leases {
  #ways: Ways
  #held = new Map<string, Lease>()
  /** The last queued operation of each attachment. Operations on the same attachment run one after the other. */
  #work = new Map<string, Promise<unknown>>()
  #asking = new Map<string, AbortController>()
  #timer: Timer | undefined

  constructor(ways: Ways) {
    this.#ways = ways
  }

  /** Loads the leases of the previous daemon. Releases each lease whose link no longer exists. */
  async load(): Promise<void> {
    for (const name of listFiles(this.#ways.dir).filter((name) => !name.startsWith('.'))) {
      const path = `${this.#ways.dir}/${name}`
      const saved = readSaved(readText(path) ?? '')
      const lease = saved && Lease.again(saved, path, this.#ways, (one) => this.#forget(one))
      if (lease) this.#held.set(name, lease)
      else remove(path)
    }
    if (this.#held.size > 0) log('dhcp: goes on with the leases of before', { leases: this.#held.size })
    await this.look()
    this.#timer = setInterval(() => void this.look(), LOOK_MS)
  }

  /** Releases each lease whose link no longer exists. */
  async look(): Promise<void> {
    for (const lease of this.#held.values()) if (lease.isGone) this.#forget(lease)
  }

  /**
   * Answers a question of the plugin. Rejects with the error for the plugin's reply. `signal` aborts when the plugin no
   * longer waits.
   */
  async handle(question: Question, signal: AbortSignal): Promise<Reply> {
    if (question.verb === 'status') return {}
    if (question.verb === 'gc') return this.#gc(question)
    const name = leaseName(question.owner)
    if (question.verb === 'add') return this.#inTurn(name, () => this.#add(name, question, signal))
    if (question.verb === 'check') return this.#check(name, question.owner)
    // Stops an ADD of the same attachment that still waits for a server.
    this.#asking.get(name)?.abort(new CniError(CODE.tryLater, 'Cannot go on: a DEL of the same attachment came'))
    return this.#inTurn(name, () => this.#del(name))
  }

  /** Stops all work. The leases and their files stay for the next daemon. */
  stop(): void {
    clearInterval(this.#timer)
    for (const one of this.#asking.values())
      one.abort(new CniError(CODE.tryLater, 'Cannot go on: the DHCP daemon is stopped'))
    for (const lease of this.#held.values()) lease.stop()
  }

  async #add(name: string, { owner, netns, wants }: Question & { verb: 'add' }, signal: AbortSignal): Promise<Reply> {
    const before = this.#held.get(name)
    if (before && !before.isGone && before.lost === undefined) return { result: before.result }
    if (before) await this.#del(name)
    const asking = new AbortController()
    const hangUp = () => asking.abort(new CniError(CODE.tryLater, 'Cannot go on: who asked is gone'))
    if (signal.aborted) hangUp()
    signal.addEventListener('abort', hangUp, { once: true })
    this.#asking.set(name, asking)
    try {
      const asked = { path: `${this.#ways.dir}/${name}`, owner, netns, wants }
      const lease = await Lease.first(asked, this.#ways, asking.signal, (one) => this.#forget(one))
      this.#held.set(name, lease)
      log('dhcp: got a lease', {
        network: owner.network,
        container: owner.containerId,
        ifname: owner.ifname,
        address: (lease.result.ips ?? []).map(({ address }) => address).join(','),
      })
      return { result: lease.result }
    } finally {
      this.#asking.delete(name)
    }
  }

  #check(name: string, { containerId, ifname, network }: Owner): Reply {
    const lease = this.#held.get(name)
    if (!lease) {
      const text = `Cannot find a lease of container ${containerId} on ${ifname} in network ${network}`
      throw new CniError(CODE.unknownContainer, text, 'it was given back, or its link is gone; delete the pod')
    }
    if (lease.lost !== undefined) {
      const text = `Cannot confirm ${ifname} of container ${containerId}: ${lease.lost}`
      throw new CniError(CODE.internal, text, 'the link is switched off; delete the pod')
    }
    return { result: lease.result }
  }

  async #del(name: string): Promise<Reply> {
    const lease = this.#held.get(name)
    this.#held.delete(name)
    await lease?.release()
    return {}
  }

  async #gc({ network, keep }: Question & { verb: 'gc' }): Promise<Reply> {
    const kept = new Set(keep.map(leaseName))
    const stale = [...this.#held.keys()].filter((name) => name.startsWith(`${brief(network)}:`) && !kept.has(name))
    await Promise.all(stale.map((name) => this.#inTurn(name, () => this.#del(name))))
    return {}
  }

  #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const done = (this.#work.get(name) ?? Promise.resolve()).then(work, work)
    const settled = done.then(
      () => {},
      () => {},
    )
    this.#work.set(name, settled)
    void settled.then(() => this.#work.get(name) === settled && this.#work.delete(name))
    return done
  }

  // Called in two cases. The link no longer exists, or a DEL without a daemon released the lease and removed the file.
  #forget(lease: Lease): void {
    const name = leaseName(lease.held.owner)
    if (this.#held.get(name) !== lease) return
    this.#held.delete(name)
    log('dhcp: a lease has no link any more, it is given back', {
      container: lease.held.owner.containerId,
      ifname: lease.held.owner.ifname,
    })
    // Queued, because an ADD of the same attachment writes the same file.
    void this.#inTurn(name, () => lease.release())
  }
}
