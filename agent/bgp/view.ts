import type { Ip } from '../../lib/text/ip.ts'
import { firstOf } from '../../lib/text/listing.ts'
import { statePhrase } from './acceptance.ts'
import type { BirdConf, Session } from './bird-conf.ts'
import { ESTABLISHED, type SessionState } from './birdc.ts'

/** How long a session may be away before the status names it, in milliseconds. */
const AWAY_MS = 15_000
/** The sessions that one sentence names. */
const NAMED = 3

/** A session of BGP. */
export interface BgpSession {
  /** Another node, or a router outside of the cluster. */
  readonly kind: 'node' | 'peer'
  readonly name: string
  readonly address: Ip
  readonly asn: number
  /** `Established`, or a state of RFC 4271 on the way there. `Unknown` while BIRD does not answer. */
  readonly state: string
  /** The last change of the state, in milliseconds since 1970. */
  readonly since?: number
  /** The prefixes that were taken, and those that were announced. */
  readonly received: number
  readonly sent: number
  /** Why the session is not there, in BIRD's words. */
  readonly reason?: string
}

/** BGP on this node. */
export interface BgpStatus {
  readonly asn: number
  /** The process id of BIRD. Absent while it does not run. */
  readonly pid?: number
  /** How often BIRD was started again. */
  readonly restarts: number
  /** BIRD writes the routes to other nodes. Absent while the agent does. */
  readonly programs?: 'bird'
  /** The prefixes that this node announces. */
  readonly announced: number
  readonly sessions: readonly BgpSession[]
}

type Conf = Pick<BirdConf, 'sessions'>
const UNKNOWN = { state: 'Unknown', received: 0, sent: 0 } as const

/** What people see of the sessions: of the configured ones, by what BIRD says. */
export class SessionsView {
  #sessions: readonly BgpSession[] = []
  /** The process of BIRD that had them. */
  #pid: number | undefined
  /** Since when a session is away, by BIRD's name of it and performance.now(). */
  readonly #awaySince = new Map<string, number>()
  /** Why a session went away. BIRD forgets it when it tries again. */
  readonly #reasons = new Map<string, string>()

  /** The sessions as they were told last. */
  get sessions(): readonly BgpSession[] {
    return this.#sessions
  }

  /** Adds to what BIRD says why a session went away before. */
  withReasons(states: readonly SessionState[]): SessionState[] {
    return states.map((one) => {
      const { protocol, state, reason } = one
      if (state === ESTABLISHED) this.#reasons.delete(protocol)
      else if (reason !== undefined) this.#reasons.set(protocol, reason)
      const known = reason ?? this.#reasons.get(protocol)
      return { ...one, ...(known !== undefined && { reason: known }) }
    })
  }

  /** Takes other configured sessions before BIRD has been asked again. Those of the same process keep their state. */
  configured({ sessions }: Conf, pid: number | undefined): void {
    const before = pid === this.#pid ? this.#sessions : []
    this.#pid = pid
    const known = new Map(before.map((one) => [`${one.kind} ${one.address}`, one]))
    this.#sessions = sessions.map(({ kind, name, address, asn }) => {
      return { ...UNKNOWN, ...known.get(`${kind} ${address}`), kind, name, address, asn }
    })
  }

  /** Takes what BIRD says. Gives a sentence about sessions that are away for long. */
  seen({ sessions }: Conf, states: readonly SessionState[], now: number): string | undefined {
    const byName = new Map(states.map((one) => [one.protocol, one]))
    this.#sessions = sessions.map(({ protocol, kind, name, address, asn }) => {
      const { protocol: _, ...state } = byName.get(protocol) ?? { protocol, ...UNKNOWN }
      return { kind, name, address, asn, ...state }
    })
    this.#forget(sessions)
    const away = sessions.flatMap((one) => {
      const { state, reason } = byName.get(one.protocol) ?? { state: UNKNOWN.state, reason: undefined }
      return this.#isAwayForLong(one, state, now) ? [`${sessionName(one)} is ${statePhrase(state, reason)}`] : []
    })
    return away.length === 0 ? undefined : `BGP sessions are away: ${firstOf(away, NAMED)} (see: plumb bgp)`
  }

  #isAwayForLong({ protocol }: Session, state: string, now: number): boolean {
    if (state === ESTABLISHED) {
      this.#awaySince.delete(protocol)
      return false
    }
    const since = this.#awaySince.get(protocol) ?? now
    this.#awaySince.set(protocol, since)
    return now - since >= AWAY_MS
  }

  #forget(sessions: readonly Session[]): void {
    const names = new Set(sessions.map(({ protocol }) => protocol))
    for (const known of [this.#awaySince, this.#reasons])
      for (const protocol of known.keys()) if (!names.has(protocol)) known.delete(protocol)
  }
}

/** A session in a sentence, by BIRD's name of it. */
export function sessionNames({ sessions }: Conf): (protocol: string) => string {
  return (protocol) => {
    const found = sessions.find((one) => one.protocol === protocol)
    return found ? sessionName(found) : protocol
  }
}

function sessionName({ name, address }: Session): string {
  return name === address ? name : `${name} (${address})`
}

/** What the status says of BGP. `conf` is the configuration that BIRD has, as far as is known. */
export function bgpStatus(
  conf: { readonly asn: number } | undefined,
  { pid, restarts, made }: { readonly pid: number | undefined; readonly restarts: number; readonly made: BirdConf },
  sessions: readonly BgpSession[],
  isByBird: boolean,
): BgpStatus {
  return {
    asn: conf?.asn ?? 0,
    ...(pid !== undefined && { pid }),
    restarts,
    ...(isByBird && { programs: 'bird' as const }),
    announced: made.announced,
    sessions,
  }
}
