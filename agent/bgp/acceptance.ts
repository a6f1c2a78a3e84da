import type { Ip } from '../../lib/text/ip.ts'
import { ESTABLISHED, type SessionState } from './birdc.ts'
import type { BgpFile, BgpSource } from './source.ts'

/** The agent takes a change back by so much earlier than BIRD does by itself. For short limits it is a quarter. */
const MARGIN_MS = 5000
/** How long the sessions of a BIRD that was taken over may take before another configuration is tried. */
const SETTLING_MS = 15_000
/** A session that BIRD is about to end may still look established for so long. */
const ENDING_MS = 1000

/** A configuration that BIRD has, and that counts when the sessions of before are back in time. */
interface Trial {
  readonly source: BgpSource
  /** The sessions that were established before. */
  readonly expected: ReadonlySet<string>
  /** When it is judged for the first and for the last time. */
  readonly from: number
  readonly until: number
}

/** How BIRD gets a configuration: as one that counts, or for a trial that BIRD itself ends after `seconds`. */
export type Admission = { readonly is: 'counted' } | { readonly is: 'continued' | 'new'; readonly seconds: number }

/**
 * Decides which configuration of BGP counts. Another one is on trial: it counts when all sessions of before are back in
 * time. Otherwise the one before counts again. Pure: the caller gives the time, in milliseconds of performance.now(), and
 * the sessions.
 */
export class Acceptance {
  readonly #path: string
  #file: BgpFile = { id: '' }
  /** The configuration that counts, the one on trial, and the one that was refused with the reason. */
  #good: BgpSource | undefined
  #trial: Trial | undefined
  #refused: { readonly id: string; readonly why: string } | undefined
  /** Until then a BIRD that was taken over gets the configuration that counted. */
  #settlesUntil: number | undefined

  /** `path` is the file of the configuration, as sentences name it. */
  constructor(path: string) {
    this.#path = path
  }

  /** The file as it was read last. */
  get file(): BgpFile {
    return this.#file
  }

  /** Takes the file as it is now. One that cannot be read changes nothing, and one that counts ends the trial. */
  read(file: BgpFile): void {
    this.#file = file
    if (file.source && file.id === this.#good?.id) this.#trial = undefined
  }

  /** What a BIRD of an earlier agent has counts until the file has proved itself. That agent may have ended within a trial. */
  takeOver(kept: BgpSource | undefined, now: number): void {
    this.#good ??= kept
    if (this.#good) this.#settlesUntil = now + SETTLING_MS
  }

  /** The configuration that BIRD should have now. Undefined while there is none. */
  get chosen(): BgpSource | undefined {
    const { source } = this.#file
    if (!source) return this.#trial?.source ?? this.#good
    if (this.#settlesUntil !== undefined) return this.#good
    return source.id === this.#refused?.id ? this.#good : source
  }

  /** The configuration that BIRD has, as far as is known. */
  get current(): BgpSource | undefined {
    return this.#trial?.source ?? this.#good ?? this.#file.source
  }

  /** The configurations that BIRD has, or may have in a moment. */
  get possible(): readonly BgpSource[] {
    return [this.#good, this.#trial?.source, this.chosen].filter((one) => one !== undefined)
  }

  /** Whether BIRD writes the routes to nodes. While a change is under way, each configuration has to say so. */
  get isByBird(): boolean {
    return this.possible.length > 0 && this.possible.every(({ conf }) => conf.programs === 'bird')
  }

  /** The peers that are nodes, as they may announce subnets. */
  get nodes(): readonly Ip[] {
    const peers = this.possible.flatMap(({ conf }) => conf.peers)
    return [...new Set(peers.flatMap(({ subnets, address }) => (subnets ? [address] : [])))].sort()
  }

  /** Why the file does not count, a sentence each. */
  get problems(): readonly string[] {
    const { id, why } = this.#file
    const goesOn = this.#good ? '; BGP goes on as before' : ''
    return [
      ...(why === undefined ? [] : [`${why}${goesOn}`]),
      ...(this.#refused && this.#refused.id === id ? [this.#refused.why] : []),
    ]
  }

  /** Whether a trial runs. */
  get isTrying(): boolean {
    return this.#trial !== undefined
  }

  /** Whether a BIRD that was taken over still gets the configuration that counted. */
  get isSettling(): boolean {
    return this.#settlesUntil !== undefined
  }

  /** Ends the time of settling when it is over. `areUp` says that all sessions of the configuration that counted are up. */
  settle(areUp: boolean, now: number): void {
    if (this.#settlesUntil === undefined) return
    const isSame = this.#file.id === this.#good?.id
    if (isSame || areUp || now >= this.#settlesUntil) this.#settlesUntil = undefined
  }

  /** Whether the trial is to be judged now. */
  isDue(now: number): boolean {
    return this.#trial !== undefined && now >= this.#trial.from
  }

  /**
   * Judges the trial by the sessions. `passed`: the caller tells BIRD, and calls `accept`. `nameOf` names a session in
   * sentences.
   */
  judge(
    sessions: readonly SessionState[],
    now: number,
    nameOf: (protocol: string) => string,
  ): { readonly passed?: BgpSource } {
    const trial = this.#trial
    if (!trial || now < trial.from) return {}
    const states = new Map(sessions.map((one) => [one.protocol, one]))
    const away = [...trial.expected].flatMap((protocol) => {
      const { state, reason } = states.get(protocol) ?? { state: 'Unknown', reason: undefined }
      return state === ESTABLISHED ? [] : [`${nameOf(protocol)} is ${statePhrase(state, reason)}`]
    })
    // Sessions that come back later may be those of the configuration before, to which BIRD went back.
    const isLate = now >= trial.until
    if (away.length === 0 && !isLate) return { passed: trial.source }
    if (isLate) this.refuse(away.join(', ') || 'they came back too late')
    return {}
  }

  /** Ends the trial: the configuration before counts again. */
  refuse(why: string): void {
    const trial = this.#trial
    if (!trial) return
    const seconds = trial.source.conf.confirmSeconds
    const text = `The change of ${this.#path} is taken back, as not all sessions were back within ${seconds} s: ${why}`
    this.#refused = { id: trial.source.id, why: `${text}; correct the file` }
    this.#trial = undefined
  }

  /** BIRD does not take the configuration. */
  reject(source: BgpSource, why: string): void {
    this.#refused = { id: source.id, why: `The change of ${this.#path} does not count: ${why}` }
    this.#trial = undefined
  }

  /** The configuration counts from now on. Tells whether it is another one than before. */
  accept(source: BgpSource): boolean {
    const isOther = this.#good?.id !== source.id
    this.#good = source
    this.#refused = undefined
    this.#trial = undefined
    return isOther
  }

  /** How BIRD gets the configuration. */
  admission(source: BgpSource, now: number): Admission {
    if (this.#good === undefined || source.id === this.#good.id) return { is: 'counted' }
    if (this.#trial?.source.id !== source.id) return { is: 'new', seconds: source.conf.confirmSeconds }
    const leftMs = Math.max(0, this.#trial.until - now)
    return { is: 'continued', seconds: Math.ceil((leftMs + MARGIN_MS) / 1000) }
  }

  /**
   * BIRD has the configuration on trial since `now`. `established` has the sessions that were up before, and `kept` those
   * of the configuration. Gives the time until the last judgement, in milliseconds.
   */
  begin(source: BgpSource, established: readonly string[], kept: ReadonlySet<string>, now: number): number {
    const before = [...(this.#trial?.expected ?? []), ...established]
    const expected = new Set(before.filter((protocol) => kept.has(protocol)))
    const limitMs = source.conf.confirmSeconds * 1000
    const lastMs = limitMs - Math.min(MARGIN_MS, limitMs / 4)
    this.#trial = { source, expected, from: now + ENDING_MS, until: now + lastMs }
    return lastMs
  }

  /** BIRD has the configuration, which counts or is the first one, without a trial. Tells whether it is the first. */
  applied(source: BgpSource): boolean {
    if (!this.#good) return this.accept(source)
    this.#trial = undefined
    return false
  }
}

/** A state of a session in a sentence. */
export function statePhrase(state: string, reason: string | undefined): string {
  return reason === undefined ? state : `${state}, ${reason}`
}
