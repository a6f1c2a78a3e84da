import { type CallOptions, Code, ConnectError } from '@connectrpc/connect'
import { delays, pause } from '../../scheduler/pause.ts'
import { StoreError, type StoreState } from '../store.ts'
import type { WatchResponse } from './generated/etcd_pb.js'
import { ANSWER_MS, type Link, openLink, type Range } from './link.ts'
import { type EtcdOptions, loginOf, origins } from './options.ts'

const [LEAST_MS, MOST_MS] = [100, 5000]
const PATIENCE_MS = 10_000
// Codes without a real answer. Another member, or the same member a moment later, may give one.
const PASSING: ReadonlySet<Code> = new Set([
  Code.Canceled,
  Code.Unknown,
  Code.DeadlineExceeded,
  Code.ResourceExhausted,
  Code.Aborted,
  Code.Internal,
  Code.Unavailable,
])

/** A connection to etcd. It uses one member at a time, and the next member after a failure. */
export class Connection {
  readonly #options: EtcdOptions
  readonly #origins: readonly string[]
  #at = 0
  #link: Link | undefined
  #state: StoreState = { name: 'etcd', connected: false }

  /** Sends nothing before the first call. Throws ValueError for invalid options. */
  constructor(options: EtcdOptions) {
    this.#options = options
    this.#origins = origins(options)
    loginOf(options)
    this.#use()
  }

  /**
   * Calls `ask` again until a member answers. Throws StoreError when etcd refuses, when no member has answered for ten
   * seconds, or when the signal ends.
   */
  async call<T>(ask: (to: Link, options: CallOptions) => Promise<T>, signal: AbortSignal): Promise<T> {
    const end = Date.now() + PATIENCE_MS
    for (const ms of delays(LEAST_MS, MOST_MS)) {
      for (const _ of this.#origins) {
        try {
          return await this.#attempt(ask, signal)
        } catch (cause) {
          if (signal.aborted || Date.now() > end || !PASSING.has(refusal(cause) ?? Code.Unknown)) throw cause
        }
      }
      await pause(ms, signal)
    }
    throw new StoreError('etcd was not asked')
  }

  /**
   * Runs one watch, from its start to its end. Throws StoreError for every cause of the end except the signal and a
   * compaction. A compaction comes as the last answer.
   */
  async *watch(wanted: Range, signal: AbortSignal): AsyncGenerator<WatchResponse> {
    const link = this.#use()
    try {
      for await (const answer of link.watch(wanted, signal)) {
        // A lost token is one of the possible reasons, and etcd does not mark it. A member without a leader is another.
        if (answer.canceled && answer.compactRevision === 0n)
          throw new ConnectError(`the watch was ended: ${answer.cancelReason || 'no reason given'}`, Code.Unavailable)
        this.#hear()
        yield answer
        if (answer.canceled) return
      }
      throw new ConnectError('the watch has ended', Code.Unavailable)
    } catch (cause) {
      if (!signal.aborted) throw this.#fail(link, cause)
    }
  }

  state(): StoreState {
    return this.#state
  }

  close(): void {
    this.#link?.close()
    this.#link = undefined
  }

  async #attempt<T>(
    ask: (to: Link, options: CallOptions) => Promise<T>,
    signal: AbortSignal,
    isSecond = false,
  ): Promise<T> {
    const link = this.#use()
    try {
      const answer = await ask(link, { headers: await link.headers(), timeoutMs: ANSWER_MS, signal })
      this.#hear()
      return answer
    } catch (cause) {
      if (signal.aborted)
        throw new StoreError(this.#state.error ?? `etcd at ${link.origin} has not answered yet`, { cause })
      if (!isSecond && isTokenLost(cause)) {
        link.forget()
        return this.#attempt(ask, signal, true)
      }
      throw PASSING.has(ConnectError.from(cause).code) ? this.#fail(link, cause) : this.#note(link, cause)
    }
  }

  // Opens a new connection after each failure and reads the TLS files again. Renewed certificates keep their names.
  #use(): Link {
    this.#link ??= openLink(this.#origins[this.#at % this.#origins.length] as string, this.#options)
    return this.#link
  }

  #hear(): void {
    this.#state = { name: 'etcd', connected: true, heard: Date.now() }
  }

  // Leaves the member. Other calls on this connection fail with it, and must not skip the next member too.
  #fail(link: Link, cause: unknown): StoreError {
    if (link === this.#link) {
      this.#at++
      this.#link = undefined
    }
    link.close()
    return this.#note(link, cause)
  }

  #note({ origin }: Link, cause: unknown): StoreError {
    const error = ConnectError.from(cause)
    const refusal = new StoreError(`etcd at ${origin}: ${error.rawMessage.replace(/^etcdserver: /, '')}`, {
      cause: error,
    })
    this.#state = { ...this.#state, connected: !PASSING.has(error.code), error: refusal.message }
    return refusal
  }
}

/** The gRPC code of a refusal by etcd. Undefined for any other error. */
export function refusal(cause: unknown): Code | undefined {
  return cause instanceof StoreError && cause.cause instanceof ConnectError ? cause.cause.code : undefined
}

// Members keep tokens in memory. A change of users or roles ends all tokens. An administrator may also turn on
// authentication during the connection.
function isTokenLost(cause: unknown): boolean {
  const { code, rawMessage } = ConnectError.from(cause)
  return (
    code === Code.Unauthenticated || (code === Code.InvalidArgument && /auth store|user name is empty/.test(rawMessage))
  )
}
