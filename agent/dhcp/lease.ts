import type { Result } from '../../lib/cni/result.ts'
import { remove, writeAtomic } from '../../lib/os/files.ts'
import { fs } from '../../lib/os/fs.ts'
import { log, warn } from '../../lib/os/log.ts'
import { ethernetIn, openWire, setLink } from '../../lib/os/packets.ts'
import type { LeaseFile, Wants } from '../../lib/pools/dhcp.ts'
import { releaseLease } from '../../lib/pools/dhcp-release.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { Owner } from '../../lib/text/owner.ts'
import type { Mac, NetnsPath } from '../../lib/text/values.ts'
import type { Protocol, Session, Times, Timing, Who } from './conversation.ts'
import { four } from './four.ts'
import { raise } from './link.ts'
import { six } from './six.ts'

// The cast is safe, because each protocol gets only leases that the same protocol made.
const PROTOCOLS = [four, six] as unknown as readonly Protocol<Times>[]
/** The shortest pause between two tries to extend a lease (RFC 2131 section 4.4.5). */
const RETRY_MS = 60_000

/** One attachment with DHCP leases. It has one lease per IP version. */
export interface DhcpAttachment {
  readonly path: string
  readonly owner: Owner
  readonly netns: NetnsPath
  readonly index: number
  readonly mac: Mac
  readonly wants: Wants
}

/** The time limits, and the prefix for the paths of namespaces. */
type Places = Timing & { readonly hostPrefix: string }
type Asked = Omit<DhcpAttachment, 'index' | 'mac'>
/** The complete content of a lease file. */
export interface Saved extends LeaseFile {
  readonly mac: Mac
  readonly bound: Readonly<Record<string, Times>>
  readonly lost?: string
}

/** The leases of one attachment. This class gets them, extends them in time and releases them. */
export class Lease {
  readonly held: DhcpAttachment
  /** The reason why a lease expired. Undefined while all leases are valid. */
  lost: string | undefined
  #bound = new Map<number, Times>()
  #timing: Places
  #end = new AbortController()
  #forget: (lease: Lease) => void

  private constructor(held: DhcpAttachment, timing: Places, forget: (lease: Lease) => void) {
    this.held = held
    this.#timing = timing
    this.#forget = forget
  }

  /**
   * Gets a lease for each requested IP version.
   * The class calls `forget` when the link no longer exists, or when a DEL without the daemon released the leases.
   * Rejects with CniError 11 when no server gives a lease, and with 3 when the namespace or the link does not exist.
   */
  static async first(
    asked: Asked,
    timing: Places,
    signal: AbortSignal,
    forget: (lease: Lease) => void,
  ): Promise<Lease> {
    const link = raise(`${timing.hostPrefix}${asked.netns}` as NetnsPath, asked)
    const lease = new Lease({ ...asked, ...link }, timing, forget)
    const abort = () => lease.#end.abort(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    try {
      const asking = lease.#protocols().map((protocol) => lease.#acquire(protocol))
      // A failure of one protocol stops the other. The release below starts only when both have ended.
      for (const one of asking) one.catch((cause) => lease.#end.abort(cause))
      await Promise.allSettled(asking)
      await Promise.all(asking)
      lease.#save()
    } catch (cause) {
      lease.#end.abort(cause)
      await releaseLease({ ...lease.held, netns: lease.#ns, release: lease.#releases() })
      throw signal.aborted ? signal.reason : cause
    } finally {
      signal.removeEventListener('abort', abort)
    }
    for (const protocol of lease.#protocols()) void lease.#maintain(protocol, false)
    return lease
  }

  /** Continues with the leases of the previous daemon. Asks the servers at once to extend each lease. */
  static again({ bound, lost, ...file }: Saved, path: string, timing: Places, forget: (lease: Lease) => void): Lease {
    const { owner, netns, index, mac, wants } = file
    const lease = new Lease({ path, owner, netns, index, mac, wants }, timing, forget)
    lease.#bound = new Map(Object.entries(bound).map(([version, one]) => [Number(version), one]))
    lease.lost = lost
    if (lost === undefined) for (const protocol of lease.#protocols()) void lease.#maintain(protocol, true)
    return lease
  }

  get result(): Result {
    const results = this.#protocols().flatMap((protocol) => {
      const bound = this.#bound.get(protocol.version)
      return bound ? [protocol.result(bound)] : []
    })
    return merged(results)
  }

  /**
   * Whether the link surely no longer exists. A new link of the same name has another index. When the kernel does not
   * tell, the lease stays: its address may be that of a living pod.
   */
  get isGone(): boolean {
    try {
      return ethernetIn(this.#ns, this.held.owner.ifname)?.index !== this.held.index
    } catch (cause) {
      warn(`dhcp: Cannot tell whether a link still exists, its lease stays: ${(cause as Error).message}`, this.#names())
      return false
    }
  }

  /** Releases the leases and removes the file. */
  async release(): Promise<void> {
    this.stop()
    if (this.lost === undefined) await releaseLease({ ...this.held, netns: this.#ns, release: this.#releases() })
    remove(this.held.path)
  }

  /** Stops all work. The leases and the file stay for the next daemon. */
  stop(): void {
    this.#end.abort(new Error('it is stopped'))
  }

  async #acquire(protocol: Protocol<Times>): Promise<void> {
    const { ifname } = this.held.owner
    await this.#talk(protocol, async (session) => {
      const bound = await protocol.acquire(session, performance.now() + this.#timing.resendTimeoutMs)
      if (!bound) {
        const what = `an IPv${protocol.version} lease on ${ifname}`
        const text = `Cannot get ${what}: no server gave one within ${this.#timing.resendTimeoutMs / 1000} s`
        throw new CniError(CODE.tryLater, text, 'see whether a DHCP server is on the link, and has addresses left')
      }
      this.#bound.set(protocol.version, bound)
      const announcement = protocol.announcement?.(bound, session.mac)
      if (announcement) session.wire.send(announcement.to, announcement.packet, announcement.type)
    })
  }

  /**
   * Extends a lease in a loop. `isOld` marks a lease of the previous daemon.
   * For such a lease the loop asks any server for an extension at once.
   */
  async #maintain(protocol: Protocol<Times>, isOld: boolean): Promise<void> {
    try {
      for (let isFirst = true; ; isFirst = false) {
        const bound = this.#bound.get(protocol.version) as Times
        const isAsked = isOld && isFirst
        if (!isAsked) await sleep(bound.renewAt, this.#end.signal)
        const next =
          (isAsked ? undefined : await this.#extend(protocol, bound, 'own', bound.rebindAt)) ??
          (await this.#extend(protocol, bound, 'any', bound.expiresAt))
        if (!next) return this.#expire(protocol)
        this.#bound.set(protocol.version, next)
        this.#note()
      }
    } catch (cause) {
      if (!this.#end.signal.aborted) warn(`dhcp: Cannot keep a lease: ${(cause as Error).message}`, this.#names())
    }
  }

  /**
   * Tries to extend a lease until a time. Undefined when no try succeeded before that time.
   * After a refusal, or without an answer from any server, it tries to get the same address with a first lease.
   */
  async #extend(
    protocol: Protocol<Times>,
    bound: Times,
    from: 'own' | 'any',
    until: number,
  ): Promise<Times | undefined> {
    do {
      this.#look()
      const left = until - Date.now()
      const next = await this.#talk(protocol, async (session) => {
        const { timeoutMs } = this.#timing
        const [now, most] = [performance.now(), left > 0 ? Math.min(left, timeoutMs) : timeoutMs]
        const answer = await protocol.extend(session, now + most / 2, bound, from)
        const isRefused = answer === 'refused' || (!answer && from === 'any')
        return isRefused ? protocol.acquire(session, now + most, bound) : answer
      }).catch((cause) => {
        this.#end.signal.throwIfAborted()
        warn(`dhcp: Cannot ask for more time: ${(cause as Error).message}`, this.#names())
        return undefined
      })
      if (next) return next as Times
      const rest = until - Date.now()
      if (rest > 0) await sleep(Date.now() + Math.min(rest, Math.max(rest / 2, RETRY_MS)), this.#end.signal)
    } while (Date.now() < until)
    return undefined
  }

  /** Sets the link down, because the container must not use an expired address. */
  #expire({ version }: Protocol<Times>): void {
    this.lost = `no server extended its IPv${version} lease in time`
    log(`dhcp: a lease is over, its link is switched off: ${this.lost}`, this.#names())
    this.#note()
    this.stop()
    try {
      setLink(this.#ns, this.held.owner.ifname, false)
    } catch (cause) {
      warn(`dhcp: Cannot switch the link off: ${(cause as Error).message}`, this.#names())
    }
  }

  // Stops when the file or the link no longer exists. A DEL without a daemon releases the lease and removes the file.
  #look(): void {
    if (this.#hasFile() && !this.isGone) return
    this.stop()
    this.#forget(this)
    this.#end.signal.throwIfAborted()
  }

  // A file that cannot be looked at stays.
  #hasFile(): boolean {
    try {
      return fs.existsSync(this.held.path)
    } catch {
      return true
    }
  }

  async #talk<T>(protocol: Protocol<Times>, work: (session: Session) => Promise<T>): Promise<T> {
    const { ifname } = this.held.owner
    const wire = openWire(this.#ns, ifname, protocol.version)
    const { signal } = this.#end
    try {
      return await work({ ...this.#who, wire, netns: this.#ns, ifname, timing: this.#timing, signal })
    } finally {
      wire.close()
    }
  }

  get #ns(): NetnsPath {
    return `${this.#timing.hostPrefix}${this.held.netns}` as NetnsPath
  }

  get #who(): Who {
    const { owner, wants, mac } = this.held
    return { client: `${owner.containerId}/${owner.network}/${owner.ifname}`, mac, wants }
  }

  #protocols(): Protocol<Times>[] {
    return PROTOCOLS.filter(({ version }) => this.held.wants.families.includes(version))
  }

  #releases(): LeaseFile['release'] {
    return this.#protocols().flatMap((protocol) => {
      const bound = this.#bound.get(protocol.version)
      if (!bound) return []
      const { to, packet } = protocol.release(this.#who, bound)
      return [{ version: protocol.version, to, packet: Buffer.from(packet).toString('base64') }]
    })
  }

  // Only logs a failed write, because a full disk must not end a lease.
  #note(): void {
    try {
      this.#save()
    } catch (cause) {
      warn(`dhcp: Cannot write a lease down: ${(cause as Error).message}`, this.#names())
    }
  }

  #save(): void {
    const { path, ...held } = this.held
    const file: Saved = {
      ...held,
      release: this.#releases(),
      bound: Object.fromEntries(this.#bound),
      ...(this.lost === undefined ? {} : { lost: this.lost }),
    }
    // Only one daemon writes in this folder. One fixed draft name is enough, and a killed daemon leaves one at most.
    writeAtomic(path, JSON.stringify(file), { durable: false, by: path.replace(/[^/]*$/, '.draft') })
  }

  #names(): Record<string, string> {
    const { containerId, ifname, network } = this.held.owner
    return { network, container: containerId, ifname }
  }
}

// setTimeout fires at once for a delay of more than 2^31 ms. Longer waits use several timers.
const LONGEST_NAP_MS = 3_600_000

// Waits until a time, in milliseconds since 1970. It may be far in the future. Rejects when the signal aborts.
async function sleep(until: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  while (Date.now() < until) {
    const { promise, resolve } = Promise.withResolvers<void>()
    const done = () => resolve()
    const timer = setTimeout(done, Math.min(until - Date.now(), LONGEST_NAP_MS))
    signal.addEventListener('abort', done)
    await promise
    clearTimeout(timer)
    signal.removeEventListener('abort', done)
    signal.throwIfAborted()
  }
}

// Merges the results of the leases of all IP versions, in the given order.
function merged(all: readonly Result[]): Result {
  const routes = all.flatMap(({ routes = [] }) => routes)
  const nameservers = all.flatMap(({ dns }) => dns?.nameservers ?? [])
  const search = [...new Set(all.flatMap(({ dns }) => dns?.search ?? []))]
  const domain = all.find(({ dns }) => dns?.domain)?.dns?.domain
  const dns = {
    ...(nameservers.length > 0 ? { nameservers } : {}),
    ...(domain ? { domain } : {}),
    ...(search.length > 0 ? { search } : {}),
  }
  return {
    ips: all.flatMap(({ ips = [] }) => ips),
    ...(routes.length > 0 ? { routes } : {}),
    ...(Object.keys(dns).length > 0 ? { dns } : {}),
  }
}
