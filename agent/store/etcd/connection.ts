import { type CallOptions, Code, ConnectError } from '@connectrpc/connect'
import { delays, pause } from '../../scheduler/pause.ts'
import { StoreError, type StoreState } from '../store.ts'
import type { WatchResponse } from './generated/etcd_pb.js'
import { ANSWER_MS, type Link, openLink, type Range } from './link.ts'
import { type EtcdOptions, loginOf, origins } from './options.ts'

const [LEAST_MS, MOST_MS] = [100, 5000]
const PATIENCE_MS = 10_000
// No answer to what was asked: another member may give it, or the same one a moment later.
const PASSING: ReadonlySet<Code> = new Set([Code.Canceled, Code.Unknown, Code.DeadlineExceeded, Code.ResourceExhausted, Code.Aborted, Code.Internal, Code.Unavailable])

/** A way to etcd: one member at a time, the next when it fails. */
export class Connection {
  readonly #options: EtcdOptions
  readonly #origins: readonly string[]
  #at = 0
  #link: Link | undefined
  #state: StoreState = { name: 'etcd', connected: false }

  /** Nothing is sent before the first call. Throws ValueError for options that cannot be used. */
  constructor(options: EtcdOptions) {
    this.#options = options
    this.#origins = origins(options)
    loginOf(options)
    this.#use()
  }

  /** Asks until a member answers: `ask` is called again for each attempt. Throws StoreError when etcd refuses, when none has answered for ten seconds, or with the signal. */
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

  /** One watch, from its start to its end. Throws StoreError for whatever ended it, but the signal, and a compaction, which is its last answer. */
  async *watch(wanted: Range, signal: AbortSignal): AsyncGenerator<WatchResponse> {
    const link = this.#use()
    try {
      for await (const answer of link.watch(wanted, signal)) {
        // A lost token is among the reasons, and not told from others; so is a member without a leader.
        if (answer.canceled && answer.compactRevision === 0n) throw new ConnectError(`the watch was ended: ${answer.cancelReason || 'no reason given'}`, Code.Unavailable)
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

  async #attempt<T>(ask: (to: Link, options: CallOptions) => Promise<T>, signal: AbortSignal, isSecond = false): Promise<T> {
    const link = this.#use()
    try {
      const answer = await ask(link, { headers: await link.headers(), timeoutMs: ANSWER_MS, signal })
      this.#hear()
      return answer
    } catch (cause) {
      if (signal.aborted) throw new StoreError(this.#state.error ?? `etcd at ${link.origin} has not answered yet`, { cause })
      if (!isSecond && isTokenLost(cause)) {
        link.forget()
        return this.#attempt(ask, signal, true)
      }
      throw PASSING.has(ConnectError.from(cause).code) ? this.#fail(link, cause) : this.#note(link, cause)
    }
  }

  // A connection for each attempt after a failure, with the files of TLS as they are then: certificates are renewed under the same name.
  #use(): Link {
    this.#link ??= openLink(this.#origins[this.#at % this.#origins.length] as string, this.#options)
    return this.#link
  }

  #hear(): void {
    this.#state = { name: 'etcd', connected: true, heard: Date.now() }
  }

  // The member is left. What else was under way on the connection fails with it, and does not make it leave the next one too.
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
    const told = new StoreError(`etcd at ${origin}: ${error.rawMessage.replace(/^etcdserver: /, '')}`, { cause: error })
    this.#state = { ...this.#state, connected: !PASSING.has(error.code), error: told.message }
    return told
  }
}

/** What etcd answered when it refused, as a gRPC code; undefined for any other error. */
export function refusal(cause: unknown): Code | undefined {
  return cause instanceof StoreError && cause.cause instanceof ConnectError ? cause.cause.code : undefined
}

// Tokens live in the memory of the members; a change of users or roles ends them all; authentication may be turned on meanwhile.
function isTokenLost(cause: unknown): boolean {
  const { code, rawMessage } = ConnectError.from(cause)
  return code === Code.Unauthenticated || (code === Code.InvalidArgument && /auth store|user name is empty/.test(rawMessage))
}
