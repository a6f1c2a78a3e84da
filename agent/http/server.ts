// What the agent answers to people and programs. Begin here, with the routes on the socket and the HTTP port. `guard.ts`
// says who may ask, `event-stream.ts` sends what changes, and `redaction.ts` leaves out what TCP must not show.
import { createHash, timingSafeEqual } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { type Asked, type ListenAddress, listen, plain, type Reply } from '../../lib/os/http.ts'
import { log, warn } from '../../lib/os/log.ts'
import { CniError, ValueError } from '../../lib/text/errors.ts'
import { apiRequests } from '../cluster/api.ts'
import { keepSocket, refused } from '../node/socket.ts'
import { withPlainStatus } from '../page/plain-status.ts'
import type { Comparison } from '../policy/comparison.ts'
import type { PolicyCounts } from '../policy/counters.ts'
import type { CellView, PolicyMatrix } from '../policy/matrix.ts'
import type { PodDetail, PodSummary } from '../policy/view.ts'
import type { Failures } from '../scheduler/failures.ts'
import type { ServiceView } from '../services/view.ts'
import type { PeerObjects, PodView } from '../state/details.ts'
import { Recorder } from '../state/recorder.ts'
import type { Status } from '../state/status.ts'
import { Summaries } from '../state/summary.ts'
import type { CallCount } from '../telemetry/calls.ts'
import type { NodeFigures, Usage } from '../telemetry/metric.ts'
import { metrics } from '../telemetry/metrics.ts'
import type { SpanCounts } from '../telemetry/otlp.ts'
import { Feed } from './event-stream.ts'
import {
  compressed,
  foreign,
  HEADERS,
  isForeign,
  isLocal,
  isLoopback,
  misdirected,
  packed,
  tagged,
  withHeaders,
} from './guard.ts'
import { Turns } from './turns.ts'

/** The socket of the agent on every node. Only root can use the socket. */
export const SOCKET = '/run/plumb/agent.sock'

/** The source of the state that this folder shows. */
export interface Source {
  status(): Status
  /** Gives the status on every change, until the signal. Changes during the consumer's work count as one change. */
  changes(signal: AbortSignal): AsyncIterable<Status>
  /** The Services of this node. Undefined when the agent serves none. */
  services?(): readonly ServiceView[] | undefined
  /** The pods of this node with their policies. Undefined when NetworkPolicy is not enforced. */
  policy?(): readonly PodSummary[] | undefined
  /** The objects of a peer by the key of its lease. Undefined for an unknown peer. Throws Error. */
  peer?(key: string): Promise<PeerObjects | undefined>
  /** The pods of this node that plugins have attached. Undefined before the node has a subnet. Throws Error. */
  pods?(): Promise<readonly PodView[] | undefined>
  /** The rules of a pod (`namespace/name`) of this node. Undefined when none are enforced, and for another pod. */
  pod?(name: string): PodDetail | undefined
  /** Which namespaces reach which. Undefined when NetworkPolicy is not enforced, and while objects are not known. */
  policyMatrix?(): Promise<PolicyMatrix | undefined> | PolicyMatrix | undefined
  /** The pods behind a cell of it. */
  policyCell?(from: string, to: string): Promise<CellView | undefined> | CellView | undefined
  /**
   * What the policies of a text would change, which nobody has applied. Undefined as above. Throws ValueError for a text
   * that is none.
   */
  policyComparison?(text: string): Promise<Comparison> | Comparison | undefined
  /**
   * The counters of policies. Undefined when NetworkPolicy is not enforced. Throws Error when nft does not give them.
   */
  policyCounts?(): Promise<PolicyCounts> | undefined
  /** What was, for the page. Absent when nobody keeps it: then it begins with the first reader. */
  readonly recorder?: Recorder
  /** The plugin calls on this node. */
  calls?(): readonly CallCount[]
  /** The spans that went to a collector. Undefined when they go nowhere. */
  spans?(): SpanCounts | undefined
  /** The figures of the node for metrics, without a process. Undefined before the node has a subnet. */
  figures?(): Promise<NodeFigures> | undefined
  /** Metrics have series for every peer. */
  readonly isPerPeer?: boolean
  /**
   * Gives this node another key. Undefined when its backend has none. Throws Error when that fails, and while the agent
   * waits for its backend.
   */
  rotate?(): string | undefined
  /**
   * The agent's part with the longest current step, and the start of the step (performance.now()). Undefined while all
   * parts are idle.
   */
  busy(): { readonly name: string; readonly since: number } | undefined
}
/** The socket, and the address and port of the HTTP server. `port` 0 means no port, as in flannel's `healthz-port`. */
export interface ServerAddresses {
  readonly address: string
  /**
   * The port serves only the paths of probes and metrics, except to a client with the token, and to one on the loopback
   * address. The latter gets what it would get of a port there.
   */
  readonly probesOnly?: true
  readonly token?: string
  readonly port: number
  readonly socket: string
}

/** The limit for one step. A longer step never ends, and its part counts as dead. */
const STUCK_MS = 60_000
/** The interval between two attempts to listen on the port. */
const AGAIN_MS = 5000
const PORT = 'status port'
/** The path that gives the node another WireGuard key, by POST. */
export const ROTATE = '/wireguard/rotate'
/** What a route answers from. */
interface Answering {
  readonly source: Source
  readonly feed: Feed
  readonly recorder: Recorder
  readonly summaries: Summaries
  readonly turns: Turns
  readonly asked: Asked
}
type Route = (from: Answering) => Reply | Promise<Reply>
const ROUTES: Readonly<Record<string, Route>> = {
  '/healthz': healthz,
  '/readyz': readyz,
  '/metrics': async ({ source }) => {
    const [counts, figures] = await Promise.all([countsOf(source), figuresOf(source)])
    const calls = source.calls?.() ?? []
    const isPerPeer = source.isPerPeer ?? false
    const additions = { counts, figures, calls, requests: apiRequests(), spans: source.spans?.(), isPerPeer }
    return {
      status: 200,
      type: 'text/plain; version=0.0.4; charset=utf-8',
      body: metrics(source.status(), usage(), Date.now(), additions),
    }
  },
  '/status': ({ source }) => json(source.status()),
  '/summary': ({ summaries, asked }) => json(summaries.get(asked.query.has('row'))),
  '/services': ({ source }) => json(source.services?.() ?? null),
  '/policy': ({ source }) => json(source.policy?.() ?? null),
  '/policy/matrix': ({ source }) => answered(async () => json((await source.policyMatrix?.()) ?? null)),
  '/policy/cell': ({ source, turns, asked: { query } }) =>
    answered(() => inTurn(turns, () => source.policyCell?.(query.get('from') ?? '', query.get('to') ?? ''))),
  '/policy/compare': compare,
  '/peer': async ({ source, asked }) => json((await source.peer?.(asked.query.get('key') ?? '')) ?? null),
  '/pods': async ({ source }) => json((await source.pods?.()) ?? null),
  '/pod': ({ source, asked }) => json(source.pod?.(asked.query.get('name') ?? '') ?? null),
  '/log': ({ recorder }) => json(recorder.happenings()),
  '/past': ({ recorder, asked }) => past(recorder, asked.query.get('peer')),
  '/events': ({ feed, asked }) => feed.listen(asked),
  '/': (from) => asset('html', 'text/html; charset=utf-8', from),
  '/page.js': (from) => asset('js', 'text/javascript; charset=utf-8', from),
  '/page.css': (from) => asset('css', 'text/css; charset=utf-8', from),
  '/icon.svg': (from) => asset('icon', 'image/svg+xml', from),
}

/**
 * Answers on the socket, and on the port if there is one, until stopped.
 * The port answers from `overTcp`, when it is to tell less than the socket.
 * When it cannot listen on the port, it reports the failure and tries again. Pods do not need the port.
 * Throws CniError 5 when it cannot listen on the socket, and 11 when another agent already answers there.
 */
export async function serveHealth(
  { address, port, probesOnly, token, socket }: ServerAddresses,
  source: Source,
  failures: Pick<Failures, 'report'> = { report() {} },
  overTcp: Source = source,
): Promise<{ stop(): void }> {
  const own = answering(source)
  const onTcp = overTcp === source ? own : answering(overTcp)
  const onSocket = await keepSocket(socket, () =>
    listen({ unix: socket }, (asked) => order(asked, source) ?? own.tell(asked)),
  )
  const local = isLoopback(address)
  const answerOnPort = (asked: Asked) => {
    if (local && !isLocal(asked.host)) return misdirected(asked)
    const isOpen = !probesOnly || PROBES.includes(asked.path) || isInside(asked)
    return isOpen || (token !== undefined && hasToken(asked, token))
      ? onTcp.tell(asked)
      : withheld(asked, token !== undefined)
  }
  const onPort = port === 0 ? undefined : insist({ hostname: address, port }, answerOnPort, failures)
  return {
    stop() {
      own.stop()
      onTcp.stop()
      onPort?.stop()
      onSocket.stop()
    },
  }
}

function answering(source: Source): { tell(asked: Asked): Promise<Reply>; stop(): void } {
  const { recorder = new Recorder() } = source
  const feed = new Feed(source, recorder)
  const summaries = new Summaries(source, recorder)
  const turns = new Turns()
  return { tell: (asked) => answer({ source, feed, recorder, summaries, turns, asked }), stop: () => feed.stop() }
}

// What changes something is for the socket alone, which only root may use.
function order({ method, path }: Asked, source: Source): Reply | undefined {
  if (method !== 'POST' || path !== ROTATE) return undefined
  try {
    const publicKey = source.rotate?.()
    return publicKey === undefined
      ? plain(404, 'the backend of this node has no keys; want wireguard')
      : json({ publicKey })
  } catch (cause) {
    return plain(500, (cause as Error).message)
  }
}

async function answer(from: Answering): Promise<Reply> {
  const { method, path } = from.asked
  if (method !== 'GET') return withHeaders(plain(405, `${method} is not for here: everything is asked with GET`, ALLOW))
  if (!OPEN.includes(path) && isForeign(from.asked)) return withHeaders(foreign(from.asked))
  const route = Object.hasOwn(ROUTES, path) ? ROUTES[path] : undefined
  const reply = (await route?.(from)) ?? plain(404, `there is ${Object.keys(ROUTES).join(' ')}`)
  return withHeaders(PROBES.includes(path) ? reply : compressed(reply, from.asked))
}

function json(value: unknown): Reply {
  return { status: 200, type: 'application/json', body: `${JSON.stringify(value)}\n` }
}

async function inTurn(turns: Turns, work: () => unknown): Promise<Reply> {
  const turn = turns.take(work)
  return turn ? json((await turn) ?? null) : plain(503, 'many others wait for this already', { 'Retry-After': '5' })
}

// Policies that nobody has applied: the text of `drafts` as `unpack` takes it.
async function compare({ source, turns, asked }: Answering): Promise<Reply> {
  const { policyComparison } = source
  if (!policyComparison) return json(null)
  const { unpack } = await import('../page/packed.ts')
  return answered(() => inTurn(turns, () => policyComparison(unpack(asked.query.get('drafts') ?? ''))))
}

// Why there is no answer about policies, for the page.
async function answered(work: () => Promise<Reply>): Promise<Reply> {
  try {
    return await work()
  } catch (cause) {
    if (cause instanceof ValueError) return plain(400, cause.message)
    if (cause instanceof CniError) return plain(503, `${cause.message}; ${cause.details}`)
    throw cause
  }
}

// A peer is named by its subnets as in a lease's key, such as `10.64.1.0-24`.
function past(recorder: Recorder, peer: string | null): Reply {
  return json((peer === null ? recorder.past() : recorder.pastOf(peer)) ?? null)
}

// The first line is the same as in flannel.
function healthz({ source }: Answering): Reply {
  const dead = stuck(source)
  return dead ? plain(503, dead) : plain(200, `flanneld is running\nplumb ${source.status().version}`)
}

function readyz({ source }: Answering): Reply {
  const status = source.status()
  const { ready, reasons, degraded } = status
  const dead = stuck(source)
  const line = (text: string) => text.replace(/\s+/g, ' ')
  const why = [...(dead ? [dead] : []), ...reasons].map(line)
  const warnings = degraded.map((text) => `degraded: ${line(text)}`)
  // A degraded node is still ready, because the node serves its pods. A problem with a peer must not move pods away
  // from this node.
  if (ready && !dead) return plain(200, warnings.join('\n') || 'ready')
  return plain(503, [...(why.length > 0 ? why : ['the first full sync is not done']), ...warnings].join('\n'))
}

function stuck(source: Source): string | undefined {
  const busy = source.busy()
  const ms = busy === undefined ? 0 : performance.now() - busy.since
  return ms > STUCK_MS ? `the part ${busy?.name} has been in one step for ${Math.round(ms / 1000)} s` : undefined
}

// Loads the page at the first request for it. An agent that only serves metrics does not need this memory.
async function asset(name: 'html' | 'js' | 'css' | 'icon', type: string, { asked, source }: Answering): Promise<Reply> {
  const { page } = await import('../page/index.ts')
  return name === 'html'
    ? tagged(withPlainStatus(page.html, source.status()), type, asked)
    : packed(page[name], type, asked)
}

// The metrics of everything else are worth more than none.
async function countsOf(source: Source): Promise<PolicyCounts | undefined> {
  try {
    return await source.policyCounts?.()
  } catch (cause) {
    warn(`agent: ${(cause as Error).message}; going on without its metrics`)
    return undefined
  }
}

async function figuresOf(source: Source): Promise<NodeFigures | undefined> {
  try {
    return await source.figures?.()
  } catch (cause) {
    warn(`agent: Cannot read the figures of the node: ${(cause as Error).message}; going on without its metrics`)
    return undefined
  }
}

function usage(): Usage {
  const { user, system } = process.cpuUsage()
  // proc(5): the name of the program, in parentheses, is the second word of stat. vsize is the 23rd, in bytes.
  const words = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  const [, most = 'unlimited'] = /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
  // Subtracts the file descriptor of the listing itself.
  return {
    rssBytes: process.memoryUsage.rss(),
    virtualBytes: Number(words[20]),
    cpuSeconds: (user + system) / 1e6,
    openFiles: readdirSync('/proc/self/fd').length - 1,
    mostFiles: most === 'unlimited' ? 2 ** 64 : Number(most),
  }
}

const ALLOW = { Allow: 'GET' }
/** What a link on any other page may open. */
const OPEN: readonly string[] = ['/', '/page.js', '/page.css', '/icon.svg', '/healthz', '/readyz', '/metrics']
// The paths that flannel's flags promise, and that kubelet and Prometheus use.
const PROBES: readonly string[] = ['/healthz', '/readyz', '/metrics']

function withheld({ path }: Asked, hasToken: boolean): Reply {
  const text = `${path} is not served at this address, only ${PROBES.join(', ')}`
  if (hasToken) {
    const headers = { ...HEADERS, 'WWW-Authenticate': 'Bearer realm="plumb"' }
    return plain(401, `${text}; want the header Authorization: Bearer with the token of --status-token-file`, headers)
  }
  return plain(403, `${text}; --status-token-file=FILE serves all to a client with its token`, HEADERS)
}

// Port-forward of Kubernetes and of ssh end on the loopback address. Who is there reads a port of that address, too.
function isInside({ isOnLoopback, host }: Asked): boolean {
  return isOnLoopback && isLocal(host)
}

// The time that it takes says nothing about the token.
function hasToken({ header }: Asked, token: string): boolean {
  const given = /^Bearer +(\S+)$/i.exec(header('authorization') ?? '')?.[1] ?? ''
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(token))
}

// Listens on the port and repeats failed attempts, because the other program on the port may end.
function insist(
  place: Extract<ListenAddress, { port: number }>,
  how: (asked: Asked) => Promise<Reply> | Reply,
  failures: Pick<Failures, 'report'>,
): { stop(): void } {
  let listener: { stop(): void } | undefined
  let warned = ''
  let timer: Timer | undefined
  const attempt = () => {
    try {
      listener = listen(place, how)
      failures.report(PORT, [])
      if (warned !== '') log(`agent: listening on ${place.hostname} port ${place.port}`)
    } catch (cause) {
      const { message } = refused(`${place.hostname} port ${place.port}`, cause)
      if (message !== warned) warn(`agent: ${message}; going on without, and trying again`)
      warned = message
      failures.report(PORT, [{ scope: 'part', text: message }])
      timer = setTimeout(attempt, AGAIN_MS)
    }
  }
  attempt()
  return {
    stop() {
      clearTimeout(timer)
      failures.report(PORT, [])
      listener?.stop()
    },
  }
}
