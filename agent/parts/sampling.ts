import { echo } from '../doctor/promise/packets.ts'
import { type LocalPod, type Path, pathsOf } from '../doctor/promise/paths.ts'
import type { Failure } from '../scheduler/failures.ts'
import { pause } from '../scheduler/pause.ts'
import { nameOf } from '../state/reachability.ts'
import type { Status } from '../state/status.ts'
import type { Reports } from './inputs.ts'

/** What the sampling asks the other parts. */
export interface SamplingOptions extends Pick<Reports, 'failures' | 'log' | 'warn'> {
  status(): Status
  /** The pods of this node, as the journal has them now. */
  pods(): readonly LocalPod[]
  /** Whether NetworkPolicy lets an echo request pass. */
  passes(path: Path): boolean
  /** The failures have changed. */
  changed(): void
}

/** A round is so long after the last one, and what was lost in it is tried again so soon. Milliseconds. */
const [ROUND_MS, AGAIN_MS] = [4000, 300]
/** So many pods and peers have their turn in a round. */
const [PODS, PEERS] = [2, 3]
/** So many dead paths are named, and so many are kept. */
const [NAMED, KEPT] = [3, 100]

/**
 * Sends packets of pods in turn, as the doctor does (`doctor/promise/`), and says which paths have gone dead. A path is
 * only missed when packets from its one end and to its other have been answered before: some pods answer no echo requests.
 */
export class Sampling {
  readonly #given: SamplingOptions
  /** The addresses that had an answer, and those that gave one. */
  readonly #senders = new Set<string>()
  readonly #receivers = new Set<string>()
  readonly #dead = new Map<string, { readonly path: Path; readonly since: number }>()
  #turn = 0

  constructor(options: SamplingOptions) {
    this.#given = options
  }

  /** Samples until the signal. Never rejects. */
  async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(ROUND_MS, signal)
      if (!signal.aborted) await this.#round(signal)
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { pods, status } = this.#given
    const dead = [...this.#dead.values()].map(({ path }) => path)
    const { arrived, lost, unsent } = await echo([...dead, ...this.#chosen(pods(), status())])
    for (const path of arrived) {
      this.#senders.add(path.from.ip)
      this.#receivers.add(path.to.ip)
    }
    const missed = [...lost, ...unsent.map(({ path }) => path)].filter((one) => this.#isMissed(one))
    await pause(missed.length > 0 ? AGAIN_MS : 0, signal)
    const again = missed.length > 0 ? await echo(missed) : undefined
    const still = again ? [...again.lost, ...again.unsent.map(({ path }) => path)] : []
    this.#keep(still.filter((path) => this.#isStill(path)))
  }

  #chosen(all: readonly LocalPod[], status: Status): Path[] {
    const turn = this.#turn++
    const from = (turn * PODS) % Math.max(1, all.length)
    const pods = [...all.slice(from), ...all.slice(0, from)].slice(0, PODS)
    const first = (turn * PEERS) % Math.max(1, status.peers.length)
    const peers = [...status.peers.slice(first), ...status.peers.slice(0, first)].slice(0, PEERS)
    return pathsOf({ pods, status: { ...status, peers }, services: [], others: new Map(), routers: [] }, turn)
  }

  #isMissed({ from, to }: Path): boolean {
    return this.#senders.has(from.ip) && this.#receivers.has(to.ip)
  }

  // A pod that went meanwhile, and one that policy isolates by now, are not missed. Of a peer that does not answer, or
  // loses large packets, the probes tell.
  #isStill(path: Path): boolean {
    const ips = new Set(this.#given.pods().flatMap((pod) => pod.ips))
    const told = this.#given
      .status()
      .peers.filter(({ probe }) => probe?.state === 'silent' || probe?.state === 'narrow')
    if (told.some((peer) => path.to.name === `node ${nameOf(peer)}`)) return false
    const isThere = [path.from, path.to].every(({ ns, ip }) => ns === undefined || ns === 'host' || ips.has(ip))
    return isThere && this.#given.passes(path)
  }

  #keep(paths: readonly Path[]): void {
    const now = Date.now()
    const before = new Map(this.#dead)
    this.#dead.clear()
    for (const path of paths.slice(0, KEPT)) {
      const key = keyOf(path)
      this.#dead.set(key, before.get(key) ?? { path, since: now })
    }
    const isSame = before.size === this.#dead.size && [...before.keys()].every((key) => this.#dead.has(key))
    if (isSame) return
    const failures = failuresOf([...this.#dead.values()])
    this.#given.failures.report('packets of pods', failures)
    for (const { text } of failures) this.#given.warn(`agent: ${text}`)
    if (failures.length === 0) this.#given.log('agent: packets of pods arrive again')
    this.#given.changed()
  }
}

function keyOf({ from, to, bytes }: Path): string {
  return `${from.ip} ${to.ip} ${bytes}`
}

/** The dead paths as failures: the simplest ones by name. Pure. */
export function failuresOf(dead: readonly { readonly path: Path; readonly since: number }[]): Failure[] {
  const named = dead.slice(0, NAMED).map(({ path: { from, to, bytes }, since }): Failure => {
    const size = bytes > 0 ? ` of ${bytes} bytes` : ''
    const at = new Date(since).toISOString()
    const text = `packets${size} from ${from.name} (${from.ip}) to ${to.name} (${to.ip}) have no answer since ${at}; plumb doctor says why`
    return { scope: 'part', text }
  })
  const more = dead.length - NAMED
  return more > 0 ? [...named, { scope: 'part', text: `${more} more paths of packets have no answer` }] : named
}
