// Compares flows in the fast path with the oracle. After the transaction that forbids a flow, nothing that is sent may
// arrive. As soon as the kernel tells of the transaction, all ends get a new letter for what they send. Allowed flows
// lose nothing, and come back to the fast path before the next step.
import { connections } from '../../../../lib/os/conntrack.ts'
import { inside } from '../../../../lib/os/netns.ts'
import type { Ip } from '../../../../lib/text/ip.ts'
import type { Netns } from '../../../../lib/text/values.ts'
import { until } from '../../../support/harness.ts'
import { patient } from '../../../support/patience.ts'
import { type End, type Flow, familyOf, ofFamily, type Told } from './ends.ts'
import { isSlot } from './expected.ts'
import { backOf, type Fixture } from './fixture.ts'
import type { Step } from './steps.ts'
import { type Transaction, Transactions } from './transactions.ts'

/** How long the kernel may take to have what a step changed, and a flow to go on or to come back to the fast path. */
const LATE_MS = 20_000
/** How long nothing may arrive. Each end of a flow sends twelve messages meanwhile on a machine at rest. */
const WINDOW_MS = 500
/** How long the rules are as they are before the next step. */
const QUIET_MS = 100
const POLICY = 'plumb_policy'
const LETTERS = 'abcdefghijklmnopqrstuvwxyz'
const [TCP, UDP] = [6, 17]

/** What was heard of all ends at one time. */
type Heard = ReadonlyMap<End, Told>
export type Verdict = 'passes' | 'silent' | 'either'

/** How many flows have been seen, in all histories. */
export const seen = { ended: 0, kept: 0 }

/** The check of the histories with flows in the fast path. */
export class Offloaded {
  readonly #fixture: Fixture
  readonly #ns: Netns
  readonly #transactions: Transactions
  #letter = 0
  /** What was heard before the step, the flows that passed then, and the transactions of policy. */
  #before: Heard = new Map()
  #passing: ReadonlySet<Flow> = new Set()
  #began = 0

  constructor(fixture: Fixture, ns: Netns) {
    this.#fixture = fixture
    this.#ns = ns
    this.#transactions = new Transactions(ns)
  }

  close(): void {
    this.#transactions.close()
  }

  /** Call it before a step. Gives the flow that should take the fast path, and does not. */
  async begin(): Promise<string | undefined> {
    const wrong = (await this.#settle()) ?? (await this.#quiet())
    this.#before = await this.#fixture.heard()
    this.#began = performance.now()
    return wrong
  }

  /** Compares all flows with the oracle after a step. Gives what is wrong. */
  async check({ isStrict, isOne }: Step): Promise<string | undefined> {
    const fixture = this.#fixture
    const judged = fixture.judged(await fixture.heard())
    const of = (wanted: Verdict) => [...judged].flatMap(([flow, verdict]) => (verdict === wanted ? [flow] : []))
    const [silent, passing] = [of('silent'), of('passes')]
    const ends = silent.filter((flow) => this.#passing.has(flow))
    const isAtOnce = isStrict || (isOne === true && !fixture.isBlind)
    if (isAtOnce && !isStrict && ends.length > 0) {
      const isThere = await this.#transaction()
      if (!isThere) return `no transaction ends ${fixture.textOf(ends[0] as Flow)}`
    }
    const wrong = (await this.#silence(silent, isAtOnce)) ?? (await this.#goOn(passing))
    seen.ended += ends.length
    seen.kept += passing.length
    this.#passing = new Set(passing)
    return wrong
  }

  // The transactions of policy since the step began.
  #ofPolicy(): readonly Transaction[] {
    return this.#transactions.since().filter(({ tables }) => tables.has(POLICY))
  }

  // A transaction of an earlier step may be late. It would be taken for that of the next one.
  async #quiet(): Promise<string | undefined> {
    for (const end = performance.now() + patient(LATE_MS); performance.now() < end; ) {
      this.#transactions.clear()
      await Bun.sleep(patient(QUIET_MS))
      if (this.#ofPolicy().length === 0) return undefined
    }
    return 'the agent changes the rules again and again'
  }

  // Each look costs some time of the processor that the agent needs, too.
  async #transaction(): Promise<boolean> {
    for (const end = performance.now() + patient(LATE_MS); performance.now() < end; await Bun.sleep(1))
      if (this.#ofPolicy().length > 0) return true
    return false
  }

  async #silence(silent: readonly Flow[], isAtOnce: boolean): Promise<string | undefined> {
    for (const end = performance.now() + patient(LATE_MS); ; ) {
      const before = this.#ofPolicy().length
      await this.#newLetter()
      const asked = performance.now()
      if (silent.length > 0) await Bun.sleep(patient(WINDOW_MS) / 2)
      const now = silent.length > 0 ? await this.#fixture.heard() : this.#before
      const wrong = silent.flatMap((flow) => {
        const [there = 0, back = 0] = this.#arrived(flow, now)
        const text = `${there} messages and ${back} back of the refused ${this.#fixture.textOf(flow)}`
        return there + back === 0 ? [] : [text]
      })
      if (wrong.length === 0) return undefined
      // The one that ends them may be another one.
      const isLast = isAtOnce && this.#ofPolicy().length === before
      if (isLast || performance.now() > end) return `${wrong.join('; ')}; ${this.#story(asked)}`
      this.#before = await this.#fixture.heard()
    }
  }

  #story(asked: number): string {
    const since = (at: number) => `${Math.round(at - this.#began)} ms`
    const all = this.#transactions.since().map(({ at, tables }) => `${since(at)} ${[...tables].join('+')}`)
    return `they were sent after ${since(asked)}; transactions: ${all.join(', ') || 'none'}`
  }

  async #newLetter(): Promise<void> {
    this.#letter = (this.#letter + 1) % LETTERS.length
    const letter = LETTERS[this.#letter] as string
    await Promise.all(this.#fixture.ends.map(({ prober }) => prober.ask({ letter })))
  }

  // How many messages with the letter of now came of a flow: there, and back.
  #arrived(flow: Flow, now: Heard): readonly number[] {
    return this.#directions(flow).map(([end, text]) => {
      const key = `${text}|${LETTERS[this.#letter]}`
      return end ? (now.get(end)?.came[key] ?? 0) - (this.#before.get(end)?.came[key] ?? 0) : 0
    })
  }

  // How many messages of a flow of UDP did not come, at most of the two directions, since before the step.
  #lost(flow: Flow, now: Heard): number {
    const lost = (heard: Heard, end: End | undefined, text: string) => {
      const { first, last, count } = (end && heard.get(end)?.numbers[text]) ?? { first: 0, last: -1, count: 0 }
      return last - first + 1 - count
    }
    const each = this.#directions(flow).map(([end, text]) => lost(now, end, text) - lost(this.#before, end, text))
    return Math.max(...each)
  }

  #directions(flow: Flow): readonly (readonly [End | undefined, string])[] {
    const to = this.#fixture.endOf(flow)
    return [
      [to, flow.id],
      [flow.from, backOf(flow, to)],
    ]
  }

  // The allowed flows go on, and have lost nothing since before the step.
  async #goOn(flows: readonly Flow[]): Promise<string | undefined> {
    const whole = flows.filter((flow) => this.#fixture.isWhole(flow))
    let wrong: string[] = []
    const areWell = async () => {
      const now = await this.#fixture.heard()
      wrong = whole.flatMap((flow) => {
        const text = `the allowed ${this.#fixture.textOf(flow)}`
        if (this.#arrived(flow, now).some((count) => count === 0)) return [`${text} stands still`]
        // Two processors may bring packets in another order: what seems lost comes a moment later.
        const lost = this.#passing.has(flow) ? this.#lost(flow, now) : 0
        return lost > 0 ? [`${text} has lost ${lost} messages`] : []
      })
      return wrong.length === 0
    }
    return (await until(areWell, LATE_MS).catch(() => false)) ? undefined : wrong.join('; ')
  }

  // All flows that pass take the fast path, except between two ports of the bridge.
  async #settle(): Promise<string | undefined> {
    if (this.#fixture.isAway) return undefined
    let slow: Flow | undefined
    const isDone = () => {
      const all = inside(this.#ns, () => connections({})).filter(({ isOffloaded }) => isOffloaded)
      slow = [...this.#passing].find((flow) => this.#fixture.flows.includes(flow) && this.#isSlow(flow, all))
      return slow === undefined
    }
    if (await until(isDone, LATE_MS).catch(() => false)) return undefined
    return slow && `the allowed ${this.#fixture.textOf(slow)} does not take the fast path`
  }

  #isSlow(flow: Flow, all: ReturnType<typeof connections>): boolean {
    const to = this.#fixture.endOf(flow)
    if (!to || !('ip' in flow.target) || !takesPart(flow.from, to) || !this.#fixture.isWhole(flow)) return false
    const { ip } = flow.target
    const source = ofFamily(flow.from, familyOf(ip)) as Ip
    const isUdp = flow.protocol === 'UDP'
    return !all.some(
      ({ there, back }) =>
        there.src === source &&
        back.src === ip &&
        there.protocol === (isUdp ? UDP : TCP) &&
        (!isUdp || there.sport === flow.sport),
    )
  }
}

/** Whether connections between two ends take the fast path. */
export function takesPart(from: End, to: End): boolean {
  if (!isSlot(from) && !isSlot(to)) return false
  const isNear = ({ name }: End) => name === 'the node'
  const isPort = (end: End) => isSlot(end) && end.type === 'bridge'
  return !isNear(from) && !isNear(to) && !(isPort(from) && isPort(to))
}
