// One request to a port of a pod through the API server, over a WebSocket of the protocol v4.channel.k8s.io
// (k8s.io/kubelet/pkg/cri/streaming/portforward). It has two channels per port, data and error. The first message of
// each has the port, in two bytes.
import type { Api } from '../../agent/cluster/api.ts'
import { bodyText, longestOf, type Reply, tooLong } from './target.ts'

/** A port of a pod. */
export interface PodPort {
  readonly namespace: string
  readonly pod: string
  readonly port: number
}

const PROTOCOL = 'v4.channel.k8s.io'
const [DATA, ERROR] = [0, 1]
const HEAD_BYTES = 16_384

/**
 * Sends GET to a pod's port on its loopback address, and returns the answer. Throws Error when the API does not allow it,
 * when nobody listens there, and when the answer is cut or too long.
 */
export async function askByPortForward(
  api: Api,
  { namespace, pod, port }: PodPort,
  path: string,
  signal: AbortSignal,
): Promise<Reply> {
  const at = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}/portforward`
  const socket = await api.openSocket(at, { ports: port }, PROTOCOL, signal)
  try {
    return await exchange(socket, requestOf(path, port), { port, longest: longestOf(path) }, signal)
  } finally {
    socket.close()
  }
}

function requestOf(path: string, port: number): string {
  const headers = [`Host: 127.0.0.1:${port}`, 'Accept-Encoding: gzip', 'Connection: close']
  return `GET ${path} HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`
}

function exchange(
  socket: WebSocket,
  request: string,
  { port, longest }: { readonly port: number; readonly longest: number },
  signal: AbortSignal,
): Promise<Reply> {
  const { promise, resolve, reject } = Promise.withResolvers<Reply>()
  const begun = new Set<number>()
  const pieces: Uint8Array[] = []
  let [length, error] = [0, '']
  let head: Head | undefined
  // Puts the pieces together twice at most after the head: an agent may send each byte by itself.
  const settle = (isOver: boolean) => {
    try {
      head ??= headOf(Buffer.concat(pieces), longest)
      const isWhole = head !== undefined && length >= head.start + head.length
      if (head && isWhole) resolve(bodyOf(Buffer.concat(pieces), head, longest))
      else if (isOver) reject(new Error('the answer was cut'))
    } catch (cause) {
      reject(cause)
    }
  }
  socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) => {
    const [channel = 0, ...first] = new Uint8Array(data, 0, Math.min(3, data.byteLength))
    const isPort = !begun.has(channel)
    begun.add(channel)
    if (isPort && first[0] !== undefined && first[0] + (first[1] ?? 0) * 256 === port) return
    const body = new Uint8Array(data, 1)
    if (channel === ERROR) {
      error += new TextDecoder().decode(body)
      reject(new Error(refusalOf(error, port)))
    } else if (channel === DATA) {
      pieces.push(body)
      length += body.length
      settle(false)
    }
  }
  socket.onclose = () => {
    settle(true)
    reject(new Error('the API server closed the port-forward before the answer'))
  }
  const ended = () => reject(signal.reason)
  signal.addEventListener('abort', ended, { once: true })
  const message = Buffer.concat([Uint8Array.of(DATA), Buffer.from(request)])
  socket.send(message)
  return promise.finally(() => signal.removeEventListener('abort', ended))
}

// The kubelet's words name the pod, and so they differ for each node.
function refusalOf(error: string, port: number): string {
  if (/connection refused/i.test(error)) return `no agent listens on port ${port} of its node`
  return `the kubelet refuses the port-forward: ${error.replace(/^error forwarding port \d+ to pod \S+, uid ?\S* ?: /, '')}`
}

/** The head of an answer: its status, where its body begins, and how long and how packed that is. */
interface Head {
  readonly status: number
  readonly start: number
  readonly length: number
  readonly encoding: string | undefined
}

/**
 * Reads an answer of HTTP/1.1 with a Content-Length of at most `longest`. Undefined while it is not whole. Throws Error
 * for anything else than such an answer.
 */
export function replyOf(bytes: Uint8Array, longest: number): Reply | undefined {
  const head = headOf(bytes, longest)
  return head && bytes.length >= head.start + head.length ? bodyOf(bytes, head, longest) : undefined
}

function bodyOf(bytes: Uint8Array, { status, start, length, encoding }: Head, longest: number): Reply {
  return { status, body: bodyText(bytes.subarray(start, start + length), encoding, longest) }
}

function headOf(bytes: Uint8Array, longest: number): Head | undefined {
  const end = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, HEAD_BYTES)).indexOf('\r\n\r\n')
  if (end < 0 && bytes.length >= HEAD_BYTES) throw new Error('its answer is not HTTP: another program listens there')
  if (end < 0) return undefined
  const [first = '', ...fields] = Buffer.from(bytes.subarray(0, end)).toString('latin1').split('\r\n')
  const [, status] = /^HTTP\/1\.[01] (\d{3})\b/.exec(first) ?? []
  const headers = new Map(
    fields.map((field) => [field.split(':', 1)[0]?.toLowerCase(), field.replace(/^[^:]*:/, '').trim()]),
  )
  const length = Number(headers.get('content-length') ?? Number.NaN)
  if (status === undefined || !(length >= 0))
    throw new Error('its answer is not HTTP with a length: another program listens there')
  if (length > longest) throw tooLong(longest)
  return { status: Number(status), start: end + 4, length, encoding: headers.get('content-encoding') }
}
