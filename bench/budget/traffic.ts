// Makes and answers TCP connections in the counted machine: one process asks, another one answers. Commands come on
// stdin, a line of JSON each, and each has a line of JSON as its answer.
//
// It calls libc itself, and blocks: a loop of the program is a system call and some hundred instructions, always the
// same ones. So 99 of 100 instructions of a round trip are the kernel's, and a path repeats to 0.1 % [measured on
// loopback: 32,876 and 32,889 instructions a round trip]. A program on an event loop takes as many again as the kernel,
// and never the same number. iperf3 and sockperf count in seconds, and need a package. The bench is in TypeScript alone.
//
// It runs with BUN_JSC_useDFGJIT=0 and BUN_JSC_useConcurrentJIT=0: then its code is ready after the first batch, and no
// thread works beside it.
import { dlopen, FFIType, ptr } from 'bun:ffi'
import { inside } from '../../lib/os/netns.ts'
import { linesOf } from '../../lib/text/lines.ts'
import type { Place } from '../call.ts'
import { busy } from './busy.ts'

/** Where a client asks. */
export interface Target {
  readonly place: Place
  readonly address: string
  readonly port: number
}
/** What the program is told. */
export type Command =
  /** Listens there instead of where it listened before. */
  | { readonly do: 'listen'; readonly place: Place; readonly port: number }
  /** Answers one connection, a byte for a byte, or a byte for each `STREAM_BYTES`, until it is closed. */
  | { readonly do: 'echo' | 'sink' }
  /** Answers connections of one byte each, until one sends the last byte. */
  | { readonly do: 'accept' }
  /** Whether a connection is made within a second. */
  | ({ readonly do: 'probe' } & Target)
  /** Measures. The connections of `request` and `stream` stay until `close`. */
  | ({ readonly do: Kind } & Target)
  | { readonly do: 'close' }
/** What is measured. */
export type Kind = 'stream' | 'request' | 'connection' | 'first'
/** Nanoseconds of each batch for one unit, and the largest part of a batch in which nothing ran. */
export interface Batches {
  readonly each: readonly number[]
  readonly idle: number
}

/** What one batch of each kind has: exchanges, connections, or pieces of a stream. */
export const UNITS: Readonly<Record<Kind, number>> = { stream: 8, request: 400, connection: 100, first: 60 }
/** A piece of a stream, in bytes. */
export const STREAM_BYTES = 2 ** 20
/** Figures that differ by less are the same. */
const SAME = 0.003
const [LEAST, MOST] = [3, 12]
/** Between batches: the kernel frees then what the last one closed. The clock jumps over it. */
const REST_MS = 2000

const { i32, u32, u64, ptr: pointer } = FFIType
const { symbols: c } = dlopen('libc.so.6', {
  socket: { args: [i32, i32, i32], returns: i32 },
  bind: { args: [i32, pointer, u32], returns: i32 },
  listen: { args: [i32, i32], returns: i32 },
  accept: { args: [i32, pointer, pointer], returns: i32 },
  connect: { args: [i32, pointer, u32], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
  send: { args: [i32, pointer, u64, i32], returns: i32 },
  recv: { args: [i32, pointer, u64, i32], returns: i32 },
  close: { args: [i32], returns: i32 },
})
// socket(7), ip(7), tcp(7).
const [AF_INET, SOCK_STREAM, SOL_SOCKET, IPPROTO_TCP, TCP_NODELAY] = [2, 1, 1, 6, 1]
const [SO_REUSEADDR, SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_RCVTIMEO, SO_SNDTIMEO, SO_LINGER] = [2, 32, 33, 20, 21, 13]
const MSG_NOSIGNAL = 0x4000
const [BUFFER, PATIENCE_S, PROBE_S, BACKLOG] = [2 ** 20, 60, 1, 4096]
const [ASK, LAST] = [Uint8Array.of(1), Uint8Array.of(2)]
const bytes = new Uint8Array(2 ** 16)
// The address of the other end (struct sockaddr_in): one that lives as long as its pointer.
const peer = new Uint8Array(16)
// struct linger: on, for 0 seconds.
const LINGERING = Int32Array.of(1, 0)
const lingering = ptr(LINGERING)
const [ask, last, chunk, to] = [ptr(ASK), ptr(LAST), ptr(bytes), ptr(peer)]

let listener = -1
let open = -1

function option(fd: number, level: number, name: number, ...values: number[]): void {
  const value = values.length === 1 ? Int32Array.from(values) : BigInt64Array.from(values.map(BigInt))
  must('setsockopt', c.setsockopt(fd, level, name, ptr(value), value.byteLength))
}

function linger(fd: number): void {
  must('setsockopt', c.setsockopt(fd, SOL_SOCKET, SO_LINGER, lingering, LINGERING.byteLength))
}

function must(what: string, result: number): number {
  if (result < 0) throw new Error(`${what} failed`)
  return result
}

// Buffers of one size: the kernel would make them larger as it goes, and each batch would be another.
function made(fd: number, seconds: number): number {
  option(fd, IPPROTO_TCP, TCP_NODELAY, 1)
  for (const name of [SO_SNDBUFFORCE, SO_RCVBUFFORCE]) option(fd, SOL_SOCKET, name, BUFFER)
  for (const name of [SO_RCVTIMEO, SO_SNDTIMEO]) option(fd, SOL_SOCKET, name, seconds, 0)
  return fd
}

function meant(address: string, port: number): typeof to {
  peer.set([AF_INET, 0, port >> 8, port & 255, ...address.split('.').map(Number)])
  return to
}

function accepted(): number {
  return must('accept', c.accept(listener, null, null))
}

function listen({ place, port }: { readonly place: Place; readonly port: number }): void {
  if (listener >= 0) c.close(listener)
  listener = inside(place, () => {
    const fd = made(c.socket(AF_INET, SOCK_STREAM, 0), PATIENCE_S)
    option(fd, SOL_SOCKET, SO_REUSEADDR, 1)
    must('bind', c.bind(fd, meant('0.0.0.0', port), peer.length))
    must('listen', c.listen(fd, BACKLOG))
    return fd
  })
}

function echo(): void {
  const fd = accepted()
  while (c.recv(fd, ask, 1, 0) === 1) c.send(fd, ask, 1, MSG_NOSIGNAL)
  c.close(fd)
}

function sink(): void {
  const fd = accepted()
  for (let left = STREAM_BYTES * UNITS.stream; ; ) {
    const got = c.recv(fd, chunk, Math.min(left, bytes.length), 0)
    if (got <= 0) break
    left -= got
    if (left > 0) continue
    left = STREAM_BYTES * UNITS.stream
    c.send(fd, ask, 1, MSG_NOSIGNAL)
  }
  c.close(fd)
}

function accept(): void {
  for (let isOver = false; !isOver; ) {
    const fd = accepted()
    must('recv', c.recv(fd, chunk, 1, 0))
    isOver = bytes[0] === LAST[0]
    c.send(fd, ask, 1, MSG_NOSIGNAL)
    // The client closes first.
    c.recv(fd, chunk, 1, 0)
    c.close(fd)
  }
}

function connected({ place, address, port }: Target, seconds = PATIENCE_S): number {
  const fd = inside(place, () => made(must('socket', c.socket(AF_INET, SOCK_STREAM, 0)), seconds))
  if (c.connect(fd, meant(address, port), peer.length) === 0) return fd
  c.close(fd)
  return -1
}

function exchange(fd: number, what: typeof ask): void {
  if (c.send(fd, what, 1, MSG_NOSIGNAL) !== 1 || c.recv(fd, chunk, 1, 0) !== 1) throw new Error('no answer came')
}

// One batch; gives the nanoseconds of it.
function batch(kind: Kind, target: Target): number {
  const count = UNITS[kind]
  const began = Bun.nanoseconds()
  if (kind === 'request') for (let i = 0; i < count; i++) exchange(open, ask)
  else if (kind === 'stream') {
    for (let left = STREAM_BYTES * count; left > 0; )
      left -= must('send', c.send(open, chunk, Math.min(left, bytes.length), MSG_NOSIGNAL))
    if (c.recv(open, ask, 1, 0) !== 1) throw new Error('no answer came')
  } else if (kind === 'connection') return connections(target, count)
  else return handshakes(target, count)
  return Bun.nanoseconds() - began
}

// Sockets are made before and closed within: the namespace is entered once.
function connections({ place, address, port }: Target, count: number): number {
  meant(address, port)
  return inside(place, () => {
    const began = Bun.nanoseconds()
    for (let i = 0; i < count; i++) {
      const fd = made(c.socket(AF_INET, SOCK_STREAM, 0), PATIENCE_S)
      must('connect', c.connect(fd, to, peer.length))
      exchange(fd, ask)
      c.close(fd)
    }
    return Bun.nanoseconds() - began
  })
}

// Nobody accepts: the kernel alone answers, within connect(2).
function handshakes({ place, address, port }: Target, count: number): number {
  meant(address, port)
  const all: number[] = []
  const took = inside(place, () => {
    let sum = 0
    for (let i = 0; i < count; i++) {
      const fd = made(c.socket(AF_INET, SOCK_STREAM, 0), PATIENCE_S)
      // Reset when it is closed, so that the kernel forgets it at both ends.
      linger(fd)
      const began = Bun.nanoseconds()
      const result = c.connect(fd, to, peer.length)
      sum += Bun.nanoseconds() - began
      must('connect', result)
      all.push(fd)
    }
    return sum
  })
  for (const fd of all) c.close(fd)
  return took
}

// Until two batches are as fast as the fastest one. The first one warms up.
function measure(kind: Kind, target: Target): Batches {
  if (kind === 'request' || kind === 'stream') open = must('connect', connected(target))
  batch(kind, target)
  const each: number[] = []
  let idle = 0
  while (each.length < MOST) {
    // The kernel adds what this process has used when it sleeps, too.
    Bun.sleepSync(REST_MS)
    const [before, began] = [busy(), Bun.nanoseconds()]
    each.push(batch(kind, target) / UNITS[kind])
    const elapsed = Bun.nanoseconds() - began
    Bun.sleepSync(1)
    idle = Math.max(idle, (elapsed - (busy() - before)) / elapsed)
    const least = Math.min(...each)
    if (each.length >= LEAST && each.filter((one) => one <= least * (1 + SAME)).length > 1) break
  }
  if (kind === 'connection') {
    const fd = must('connect', connected(target))
    exchange(fd, last)
    c.close(fd)
  }
  return { each, idle }
}

function obey(command: Command): unknown {
  switch (command.do) {
    case 'listen':
      return listen(command)
    case 'echo':
      return echo()
    case 'sink':
      return sink()
    case 'accept':
      return accept()
    case 'close':
      return c.close(open)
    case 'probe': {
      const fd = connected(command, PROBE_S)
      if (fd >= 0) c.close(fd)
      return fd >= 0
    }
    default:
      return measure(command.do, command)
  }
}

if (import.meta.main)
  for await (const line of linesOf(Bun.stdin.stream() as never)) {
    const answer = obey(JSON.parse(line))
    process.stdout.write(`${JSON.stringify(answer ?? null)}\n`)
  }
