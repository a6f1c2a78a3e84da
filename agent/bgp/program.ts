import type { Run } from '../../lib/os/run.ts'
import { pause } from '../scheduler/pause.ts'
import type { Acceptance } from './acceptance.ts'
import { Bird } from './bird.ts'
import type { BirdConf } from './bird-conf.ts'
import { BirdError, ESTABLISHED, type SessionState } from './birdc.ts'
import { type BgpSource, keepSource, keptSource } from './source.ts'
import { type SessionsView, sessionNames } from './view.ts'

/** BIRD that does not answer so often, each time for so long, is ended. */
const [MISSES, MISS_MS] = [3, 5000]
/** A BIRD that ran for less than this starts again after a pause. The pause doubles up to the longest. */
const [LASTING_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [10_000, 1000, 30_000]
/** How often BIRD is asked for its sessions, in milliseconds. Many sessions are asked for less often. */
const [LOOK_MS, LOOK_EACH_MS] = [1000, 20]
/** The number of looks after which another BIRD is looked for. It may be started later, as by an upgrade of its package. */
const RIVAL_LOOKS = 5
/** How long Services and labels of nodes may be unknown at the start before BIRD starts without them. */
const PATIENCE_MS = 5000

const IN_A_MOMENT = 'BIRD has ended, and starts again in a moment'

/** What a program of BGP needs, and whom it tells. */
export interface BgpProgramOptions {
  /** The configuration's path, as sentences name it, and the folder of BIRD. */
  readonly path: string
  readonly dir: string
  readonly run: Run
  log(text: string): void
  warn(text: string): void
  /** Called when something is to be done: now, or in `ms`. */
  again(why: string, ms?: number): void
  /** Called when BIRD has ended. */
  ended(): void
}

/** Makes BIRD run with a configuration. BIRD and its routes stay when the agent ends. */
export class BgpProgram {
  readonly #options: BgpProgramOptions
  readonly #acceptance: Acceptance
  readonly #bird: Bird
  readonly #born = performance.now()
  #made: BirdConf = { text: '', sessions: [], announced: 0, problems: [] }
  #restarts = 0
  #misses = 0
  /** BIRD runs as far as is known, and why it could not be started last. */
  #isUp = false
  #startTrouble = IN_A_MOMENT
  #startedAt = Number.NEGATIVE_INFINITY
  #pauseMs = FIRST_PAUSE_MS

  constructor(options: BgpProgramOptions, acceptance: Acceptance) {
    this.#options = options
    this.#acceptance = acceptance
    this.#bird = new Bird(options.dir, options.run, options.ended)
    this.#takeOver()
  }

  /** The process id, as long as BIRD runs. */
  get pid(): number | undefined {
    return this.#bird.pid
  }

  /** What BIRD was told last. */
  get made(): BirdConf {
    return this.#made
  }

  /** How often BIRD was started again. */
  get restarts(): number {
    return this.#restarts
  }

  /** What is not known yet is waited for. BIRD of an earlier agent announces it until then. */
  get isPatient(): boolean {
    return this.#bird.pid !== undefined || performance.now() - this.#born < PATIENCE_MS
  }

  /** Where BIRD writes its log. */
  get logFile(): string {
    return this.#bird.files.log
  }

  /**
   * Brings what counts up to date: takes over a BIRD that is there, and judges the configuration on trial. `view` knows
   * why sessions are away. Throws as `askBird`.
   */
  async judge(view: SessionsView): Promise<void> {
    this.#takeOver()
    const acceptance = this.#acceptance
    if (this.#bird.pid === undefined) acceptance.refuse('BIRD ended with it')
    if (acceptance.isDue(performance.now())) {
      const sessions = view.withReasons(await this.#bird.sessions())
      const { passed } = acceptance.judge(sessions, performance.now(), sessionNames(this.#made))
      if (passed) {
        await this.#bird.confirm()
        this.#accept(passed)
      }
    }
    acceptance.settle(this.#bird.pid === undefined, performance.now())
    if (acceptance.isSettling) acceptance.settle(await this.#areAllUp(), performance.now())
    if (acceptance.isSettling) this.#options.again('settling', LOOK_MS)
  }

  // What the agent of a BIRD that is taken over had accepted counts at first.
  #takeOver(): void {
    if (this.#bird.pid !== undefined || !this.#bird.adopt()) return
    this.#acceptance.takeOver(keptSource(this.#bird.files.accepted), performance.now())
    this.#startedAt = performance.now()
    this.#isUp = true
    this.#options.log(`agent: BIRD runs on since an earlier start of the agent, process ${this.#bird.pid}`)
  }

  // Whether all sessions of the configuration are there, as far as BIRD has it from this agent.
  async #areAllUp(): Promise<boolean> {
    if (this.#bird.applied === undefined) return false
    const up = established(await this.#bird.sessions())
    return this.#made.sessions.every(({ protocol }) => up.includes(protocol))
  }

  /**
   * Makes BIRD run with a configuration. Gives why it does not run yet, when it has to wait. Throws Error as `Bird.start`
   * and `Bird.configure`.
   */
  async bring(source: BgpSource, made: BirdConf): Promise<string | undefined> {
    if (this.#bird.pid === undefined) return this.#start(source, made)
    if (made.text !== this.#bird.applied) await this.#configure(source, made)
    this.#made = made
    return undefined
  }

  /**
   * Looks at BIRD until the signal, and ends one that has not answered for too long. Calls `seen` with what BIRD says of
   * its sessions, and with none when it has ended. Now and then calls `rival` with a clause about a BIRD of another
   * program beside this one, undefined when there is none.
   */
  async follow(
    signal: AbortSignal,
    told: { seen(sessions: readonly SessionState[]): void; rival(clause: string | undefined): void },
  ): Promise<void> {
    const lookMs = () => Math.max(LOOK_MS, LOOK_EACH_MS * this.#made.sessions.length)
    for (let looks = 0; !signal.aborted; await pause(lookMs(), signal)) {
      if (looks++ % RIVAL_LOOKS === 0) told.rival(this.#isUp ? this.#bird.rival : undefined)
      const sessions = this.#isUp ? await this.#look(signal) : undefined
      if (sessions) told.seen(sessions)
    }
  }

  // The sessions of a BIRD that should run. None when it has ended, and undefined without an answer.
  async #look(signal: AbortSignal): Promise<readonly SessionState[] | undefined> {
    if (this.#bird.pid === undefined) {
      this.#isUp = false
      this.#options.ended()
      return []
    }
    try {
      const sessions = await this.#bird.sessions(MISS_MS)
      this.#misses = 0
      return sessions
    } catch (cause) {
      this.#misses++
      if (this.#misses < MISSES || signal.aborted || this.#bird.pid === undefined) return undefined
      this.#options.warn(`agent: BIRD does not answer, ending it: ${(cause as Error).message}`)
      this.#bird.kill()
      this.#misses = 0
      this.#options.ended()
      return undefined
    }
  }

  async #start(source: BgpSource, made: BirdConf): Promise<string | undefined> {
    const ran = performance.now() - this.#startedAt
    if (ran < this.#pauseMs) {
      this.#options.again('start', this.#pauseMs - ran)
      return this.#startTrouble
    }
    const isAgain = this.#bird.hasRun
    this.#pauseMs = ran < LASTING_MS ? Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2) : FIRST_PAUSE_MS
    this.#startedAt = performance.now()
    this.#made = made
    try {
      await this.#bird.start(made.text)
    } catch (cause) {
      this.#startTrouble = (cause as Error).message
      throw cause
    }
    this.#startTrouble = IN_A_MOMENT
    this.#isUp = true
    if (isAgain) this.#restarts++
    this.#options.log(`agent: started BIRD${isAgain ? ' again' : ''}, process ${this.#bird.pid}`)
    this.#accept(source)
    return undefined
  }

  async #configure(source: BgpSource, made: BirdConf): Promise<void> {
    const admission = this.#acceptance.admission(source, performance.now())
    if (admission.is === 'counted') {
      await this.#bird.configure(made.text)
      if (this.#acceptance.applied(source)) this.#keep(source)
    } else if (admission.is === 'continued') await this.#bird.configure(made.text, admission.seconds)
    else await this.#try(source, made, admission.seconds)
  }

  async #try(source: BgpSource, made: BirdConf, seconds: number): Promise<void> {
    const before = established(await this.#bird.sessions())
    const begun = performance.now()
    try {
      await this.#bird.configure(made.text, seconds)
    } catch (cause) {
      if (!(cause instanceof BirdError)) throw cause
      this.#acceptance.reject(source, cause.message)
      this.#options.again('refused')
      return
    }
    const kept = new Set(made.sessions.map(({ protocol }) => protocol))
    this.#options.again('deadline', this.#acceptance.begin(source, before, kept, begun))
  }

  #accept(source: BgpSource): void {
    if (this.#acceptance.accept(source)) this.#keep(source)
    else keepSource(this.#bird.files.accepted, source)
  }

  #keep(source: BgpSource): void {
    this.#options.log(`agent: BGP goes by ${this.#options.path}`)
    keepSource(this.#bird.files.accepted, source)
  }
}

function established(states: readonly SessionState[]): string[] {
  return states.flatMap(({ protocol, state }) => (state === ESTABLISHED ? [protocol] : []))
}
