import { log } from '../../lib/os/log.ts'
import { type Announcement, keyOf, type Subject } from '../cluster/events.ts'
import { pause } from '../scheduler/pause.ts'
import { StoreError, type SubnetStore } from '../store/store.ts'
import type { Condition } from './condition.ts'
import { sentenceOf } from './phrases.ts'
import type { Finding } from './status.ts'

/** What is told to the cluster of this node. */
export interface AnnouncedState extends Condition {
  readonly findings: readonly Finding[]
  /** `namespace/name` of pods whose packets are all refused. */
  readonly closed: readonly string[]
}
/** Where the cluster is told. */
export interface Outlets {
  readonly events?: { post(one: Announcement): void }
  readonly store: Pick<SubnetStore, 'ready' | 'unready' | 'state'>
}

/** How often it is looked whether there is something to tell, in milliseconds. */
const LOOK_MS = 2000
/** What is over before this time is not told. Milliseconds. */
const SETTLED_MS = 10_000
/** A node that is not ready for so long has no network for new pods. Milliseconds. */
const UNAVAILABLE_MS = 30_000
/** Other reasons are told at most once in this time. Milliseconds. */
const OTHER_MS = 60_000
const NODE: Subject = { kind: 'Node' }
const WORKS = 'the network of this node works again'
const CLOSED = 'all packets of this pod are refused: it is attached, and the cluster shows no such pod to the agent yet'

/** Since when each trouble lasts, and whether it was told. */
type Troubles = Map<string, { readonly since: number; readonly isTold: boolean }>

/** Finds what is new to tell: troubles that last, and the end of the last one. It depends on its arguments and memory only. */
export class Announcer {
  #troubles: Troubles = new Map()
  #isNodeTold = false

  /** The announcements of this moment. `at` is in milliseconds and only grows. */
  next(now: AnnouncedState, at: number): Announcement[] {
    const troubles: Troubles = new Map()
    const news: Announcement[] = []
    for (const one of announcementsOf(now)) {
      const key = keyOf(one)
      const { since, isTold } = troubles.get(key) ?? this.#troubles.get(key) ?? { since: at, isTold: false }
      const isDue = !isTold && at - since >= SETTLED_MS
      if (isDue) news.push(one)
      troubles.set(key, { since, isTold: isTold || isDue })
    }
    this.#troubles = troubles
    this.#isNodeTold ||= news.some(({ about }) => about.kind === 'Node')
    if (!this.#isNodeTold || now.state !== 'ready') return news
    this.#isNodeTold = false
    return [...news, { about: NODE, type: 'Normal', reason: 'NetworkReady', message: WORKS }]
  }
}

function announcementsOf({ reasons, degraded, findings, closed }: AnnouncedState): Announcement[] {
  const codes = new Map(findings.map((one) => [sentenceOf(one), one.code]))
  const of =
    (scope: string) =>
    (text: string): Announcement => {
      const code = codes.get(text)
      return {
        about: NODE,
        type: 'Warning',
        reason: code ?? scope,
        message: code === undefined ? text : `${text} (plumb doctor ${code})`,
      }
    }
  return [
    ...reasons.map(of('NetworkNotReady')),
    ...degraded.map(of('NetworkDegraded')),
    ...closed.map((pod): Announcement => {
      const [namespace = '', name = ''] = pod.split('/')
      return { about: { kind: 'Pod', namespace, name }, type: 'Warning', reason: 'PolicyClosed', message: CLOSED }
    }),
  ]
}

/** Tells the cluster of this node until the signal: by Events, and by the node's condition NetworkUnavailable. */
export async function announce(
  look: () => AnnouncedState,
  { events, store }: Outlets,
  signal: AbortSignal,
): Promise<void> {
  const announcer = new Announcer()
  let begun: number | undefined
  let said: { readonly text: string; readonly at: number } | undefined
  let logged = ''
  for (; !signal.aborted; await pause(LOOK_MS, signal)) {
    const [now, at] = [look(), performance.now()]
    for (const one of announcer.next(now, at)) events?.post(one)
    begun = now.ready ? undefined : (begun ?? at)
    const text = now.ready ? '' : now.reasons.join('; ')
    const isDue = now.ready
      ? said !== undefined
      : at - (begun ?? at) >= UNAVAILABLE_MS && text !== said?.text && at - (said?.at ?? -OTHER_MS) >= OTHER_MS
    if (!isDue) continue
    try {
      if (now.ready) await store.ready?.()
      else await store.unready?.(reasonOf(now), text)
      said = now.ready ? undefined : { text, at }
      logged = ''
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      const why = `Cannot tell the store whether this node serves its pods: ${cause.message}`
      if (why !== logged && store.state().connected && !signal.aborted) log(`agent: ${why}`)
      logged = why
    }
  }
}

function reasonOf({ reasons, findings }: AnnouncedState): string {
  return findings.find((one) => reasons.includes(sentenceOf(one)))?.code ?? 'NetworkNotReady'
}
