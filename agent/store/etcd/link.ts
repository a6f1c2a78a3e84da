import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect'
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node'
import { Auth, KV, Lease, Watch, type WatchResponse } from './generated/etcd_pb.js'
import { type EtcdOptions, loginOf, secrets } from './options.ts'

/** Time limit for an answer of a member, in milliseconds. */
export const ANSWER_MS = 5000
// A dead peer is detected 12.5 s after its last sign of life. etcd disconnects clients that ping more often than every
// five seconds (--grpc-keepalive-min-time).
const PINGS = { pingIntervalMs: 7500, pingTimeoutMs: 5000 }

/** A connection to one member of etcd, with its services. */
export interface Link {
  readonly origin: string
  readonly kv: Client<typeof KV>
  readonly lease: Client<typeof Lease>
  /** The headers that identify the user. Rejects with the answer of etcd to the password. */
  headers(): Promise<Record<string, string>>
  /** Drops the token, because etcd no longer accepts it. */
  forget(): void
  /** Runs one watch, from its start to its end. The first answer comes at once. */
  watch(wanted: Range, signal: AbortSignal): AsyncGenerator<WatchResponse>
  close(): void
}

/** The scope of a watch: the keys from `key` up to but not including `rangeEnd`, since `startRevision`. */
export interface Range {
  readonly key: Uint8Array
  readonly rangeEnd: Uint8Array
  readonly startRevision: bigint
}

/**
 * Opens a connection to one member. Sends nothing before the first call. Throws ValueError for an unreadable TLS file.
 */
export function openLink(origin: string, options: EtcdOptions): Link {
  const sessionManager = new Http2SessionManager(origin, PINGS, { ...secrets(options), minVersion: 'TLSv1.2' })
  const transport = createGrpcTransport({
    baseUrl: origin,
    sessionManager,
    acceptCompression: [],
    binaryOptions: { readUnknownFields: false },
  })
  const [auth, watches] = [createClient(Auth, transport), createClient(Watch, transport)]
  const login = loginOf(options)
  let token: Promise<string> | undefined
  async function headers(): Promise<Record<string, string>> {
    if (!login) return {}
    token ??= authenticate(auth, login)
    try {
      const text = await token
      return text ? { token: text } : {}
    } catch (cause) {
      token = undefined
      throw cause
    }
  }
  return {
    origin,
    kv: createClient(KV, transport),
    lease: createClient(Lease, transport),
    headers,
    forget: () => {
      token = undefined
    },
    watch: (wanted, signal) => stream(watches, wanted, headers, signal),
    close: () => sessionManager.abort(),
  }
}

async function authenticate(
  auth: Client<typeof Auth>,
  login: { readonly name: string; readonly password: string },
): Promise<string> {
  try {
    return (await auth.authenticate(login, { timeoutMs: ANSWER_MS })).token
  } catch (cause) {
    // A cluster with authentication off accepts every client. etcd's own client does the same.
    if (ConnectError.from(cause).code === Code.FailedPrecondition) return ''
    throw cause
  }
}

async function* stream(
  watches: Client<typeof Watch>,
  wanted: Range,
  headers: () => Promise<Record<string, string>>,
  signal: AbortSignal,
): AsyncGenerator<WatchResponse> {
  const ends = new AbortController()
  const end = () => ends.abort()
  signal.addEventListener('abort', end, { once: true })
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    end()
  }, ANSWER_MS)
  try {
    // With the header `hasleader`, a member that loses contact with the other members ends the watch.
    const options = { headers: { ...(await headers()), hasleader: 'true' }, signal: ends.signal }
    for await (const answer of watches.watch(question(wanted, ends.signal), options)) {
      // etcd confirms at once that the watch exists.
      clearTimeout(timer)
      yield answer
    }
  } catch (cause) {
    throw isLate ? new ConnectError(`no answer to a watch within ${ANSWER_MS / 1000} s`, Code.DeadlineExceeded) : cause
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', end)
    end()
  }
}

// etcd closes a stream when its sender has finished. This sender finishes only at the end of the watch.
async function* question(wanted: Range, signal: AbortSignal) {
  yield { requestUnion: { case: 'createRequest' as const, value: { ...wanted, progressNotify: true } } }
  await new Promise<void>((resolve) =>
    signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true }),
  )
}
