import { release } from 'node:os'
import { entries } from '../../lib/journal/journal.ts'
import { connectionCount, offloadedPieces } from '../../lib/os/conntrack.ts'
import { linksNow } from '../../lib/os/links.ts'
import { linksWithIngress } from '../../lib/os/qdiscs.ts'
import type { Run } from '../../lib/os/run.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Backend, Facts } from '../backend/backend.ts'
import type { Choice } from '../backend/uplink.ts'
import { FastPath, whyWithout } from '../fast-path/program.ts'
import { waysOf } from '../fast-path/ways.ts'
import type { Event } from '../kernel/events.ts'
import { pauses } from '../kernel/pauses.ts'
import { both } from '../lease/families.ts'
import { encodeKey, type Lease } from '../lease/lease.ts'
import { areOthersRunning } from '../node/instance-lock.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { BasePart } from './base.ts'

/** When a changed link is looked at. Pods come in bursts, and one transaction takes all of them. Milliseconds. */
const LINKS_MS = 300
/** How often offloaded connections are counted, in milliseconds. */
const COUNT_MS = 15_000

/** Whether this kernel looks through a bridge, as Linux 5.13 and newer ones do. */
const SEES_PORTS = isKernel(5, 13)

/** What the part needs of the agent. */
export interface FastPathPartOptions {
  readonly fastPath: 'auto' | 'off'
  readonly run: Run
  readonly backend: Pick<Backend, 'links'>
  /** The options of `backend`, already parsed. */
  readonly options: unknown
  readonly facts: Pick<Facts, 'instance' | 'networks'>
}

/**
 * Keeps the fast path: packets of known connections go from link to link, past the rules. Without it in the kernel, all
 * packets go by the rules, and nothing else differs.
 */
export class FastPathPart extends BasePart<FastPathPartOptions> {
  readonly name = 'fast path'
  readonly trouble = 'Cannot program the fast path'
  readonly quietMs = 20
  readonly #path = new FastPath(this.given.facts.networks, this.given.run)
  #slow = 0
  #pods = 0
  #flows: number | undefined
  /** Why this kernel has none. Undefined when it has, and before the first step. */
  #why: string | undefined

  invalidate(): void {
    this.#path.invalidate()
  }

  /** Triggers the part when an event is about a link. A pod that is gone leaves its address to others at once. */
  linkChanged({ kind, gone }: Event): void {
    if (kind === 'link') this.queue.add('links', gone ? 0 : LINKS_MS)
  }

  /** Sends all connections back to the rules, after a change that ends some of them. Throws ExecError. */
  renew(): Promise<void> {
    return this.#path.renew()
  }

  /** Counts the offloaded connections now and then, until the signal. */
  count(signal: AbortSignal): void {
    const timer = setInterval(() => void this.#count(), COUNT_MS)
    signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  }

  async step(why: readonly string[]): Promise<Outcome> {
    try {
      return await this.#step(why)
    } catch (cause) {
      // Packets go by the rules then, or by the fast path as it was.
      return { failures: [{ scope: 'part', text: `${this.trouble}: ${(cause as Error).message}` }] }
    }
  }

  async #step(why: readonly string[]): Promise<Outcome> {
    const { fastPath, run, facts } = this.given
    const { served, choice } = this.now
    // The policy of one agent would not end what another one has offloaded.
    const isAlone = !areOthersRunning(facts.instance)
    if (fastPath === 'off' || !isAlone) {
      await this.#path.remove()
      this.now.fastPath = { state: 'off', ...(!isAlone && { why: 'another agent runs on this node' }) }
      return DONE
    }
    if (!served || !choice) return WAITING
    // A module may have been loaded since.
    if (this.#why !== undefined && !why.includes('resync')) return DONE
    if (this.#path.size === 0) this.#why = await whyWithout(run)
    if (this.#why !== undefined) {
      this.now.fastPath = { state: 'unavailable', why: this.#why }
      return DONE
    }
    if (this.repairs.isHeld(this)) return DONE
    // A link may go between the look and the transaction, which the kernel refuses then.
    await this.#keep(served, choice).catch(() => this.#keep(served, choice))
    this.#say()
    return DONE
  }

  async #keep({ subnets }: Lease, { uplink }: Choice): Promise<void> {
    const { backend, options } = this.given
    const links = linksNow()
    const ways = waysOf({
      entries: entries(),
      links,
      filtered: linksWithIngress(),
      outer: [uplink.name, ...backend.links(options)],
      subnets: both(subnets),
      narrow: this.#narrow(),
      seesPorts: SEES_PORTS,
    })
    this.#slow = ways.slow
    this.#pods = ways.pods.length
    const repaired = await this.#path.keep(ways, new Set(links.map(({ name }) => name)))
    if (repaired.length > 0) this.repairs.ofPart(this, 'nft', repaired)
    if (ways.isBusy) this.queue.add('links', LINKS_MS)
  }

  // The subnets of IPv6 of peers that get smaller packets.
  #narrow(): Cidr[] {
    const { snapshot, routeMtus } = this.now
    if (!routeMtus?.size) return []
    return (snapshot?.leases ?? []).flatMap(({ subnets }) => {
      const isNarrow = routeMtus.get(encodeKey(subnets))?.v6 !== undefined
      return isNarrow && subnets.v6 !== undefined ? [subnets.v6] : []
    })
  }

  #say(): void {
    const { size, renewals } = this.#path
    const flows = this.#flows === undefined ? {} : { flows: this.#flows }
    this.now.fastPath = { state: 'on', links: size, pods: this.#pods, slowPods: this.#slow, renewals, ...flows }
  }

  async #count(): Promise<void> {
    if (this.#path.size === 0) return
    const pause = pauses()
    let found = 0
    try {
      if (connectionCount() > 0)
        for (const count of offloadedPieces()) {
          found += count
          await pause()
        }
      this.#flows = found
    } catch {
      // Unknown until the next look: the status has no number meanwhile.
      this.#flows = undefined
    }
    this.#say()
  }
}

function isKernel(major: number, minor: number): boolean {
  const [ofMajor = 0, ofMinor = 0] = release()
    .split('.')
    .map((part) => Number.parseInt(part, 10))
  return ofMajor > major || (ofMajor === major && ofMinor >= minor)
}
