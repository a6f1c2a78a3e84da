import { openEchoes } from '../../lib/os/echo.ts'
import { run } from '../../lib/os/exec.ts'
import { lastError } from '../../lib/os/libc.ts'
import { inside } from '../../lib/os/netns.ts'
import { openRaw } from '../../lib/os/raw-packets.ts'
import { askForRoute } from '../../lib/os/route-question.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'
import { type DnsAnswer, dnsAnswer, dnsQuestion } from './dns.ts'
import { type InitAnswer, initMessage, readAnswer, SCTP } from './sctp.ts'
import { pour } from './sink.ts'

/** What is sent, and where to. */
export interface Attempt {
  readonly protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP'
  readonly to: Ip
  /** 0 for ICMP. */
  readonly port: number
  /**
   * TCP and UDP: bytes of data; 0 only opens a connection. SCTP: 0, only the first message of an association is sent.
   * ICMP: the length of the packet with its IP header, which nobody may fragment.
   */
  readonly bytes: number
  /** Sends as much as the way takes, to a sink (`sink.ts`). */
  readonly isPour?: true
  /** Asks a name server for the addresses of a name, and wants this one. Nothing is echoed then. */
  readonly lookUp?: { readonly name: string; readonly has: Ip }
}
/** What became of it. */
export interface Outcome {
  /** `refused`: the kernel does not send the packet, because it is too long. */
  readonly state: 'arrived' | 'refused' | 'lost'
  /** In words, for a sentence that goes on after a colon. */
  readonly says: string
  /** The sender's address, as the other side saw it. */
  readonly saw?: Ip
  /** What arrived at a sink, in megabits a second. */
  readonly mbits?: number
  /** The MTU of the path in bytes that a router told. */
  readonly mtu?: number
}

/** The limits in milliseconds. A connection that moves no byte for QUIET_MS is lost. */
const [CONNECT_MS, QUIET_MS, DATAGRAM_MS, ECHO_MS, AGAIN_MS, LOOK_MS] = [4000, 4000, 3000, 3000, 500, 5]
/** The smallest packet that a link with IPv4 and one with IPv6 carries in one piece (RFC 791, RFC 8200). */
const SMALLEST = { 4: 576, 6: 1280 } as const
/** After so long without an echo, the kernel is asked for what routers told, in milliseconds. */
const SOON_MS = 500
/** After the ABORT of a kernel, the INIT ACK of the echo server is waited for so long, in milliseconds. */
const ABORT_MS = 500
/** The ports and tags of clients are random numbers of these ranges. */
const [FIRST_PORT, PORTS, TAGS] = [32_768, 28_232, 2 ** 32 - 1]
/** The limit for each size in the search for the largest packet, in milliseconds. */
const SIZE_MS = 400
const NEWLINE = 10

/** Sends from a namespace, and waits for the echo. Takes at most about ten seconds. Never throws. */
export async function attempt(ns: Netns, tried: Attempt): Promise<Outcome> {
  try {
    const route = inside(ns, () => askForRoute({ to: tried.to }))
    if ('errno' in route) return lost(`there is no route to ${tried.to}`)
    if (tried.lookUp) return await lookUp(ns, tried, tried.lookUp)
    if (tried.isPour) {
      const mbits = await pour(ns, tried.to, tried.port)
      return typeof mbits === 'string' ? lost(mbits) : { state: 'arrived', says: `${mbits} Mbit/s arrive`, mbits }
    }
    if (tried.protocol === 'TCP') return await stream(ns, tried)
    if (tried.protocol === 'UDP') return await datagram(ns, tried)
    if (route.source === undefined) return lost('the sender has no address of the family')
    if (tried.protocol === 'SCTP') return await association(ns, route.source, tried)
    return await echo(ns, route.source, tried)
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    return code === 'EPERM' ? refusedBy(tried.to, code) : lost(message)
  }
}

function lost(says: string): Outcome {
  return { state: 'lost', says }
}

// EPERM is the kernel's answer for a packet that a rule of the output hook drops or rejects.
function refusedBy(to: Ip, code: string): Outcome {
  return lost(
    code === 'EPERM'
      ? `a rule of the sender's node refuses packets to ${to}`
      : `the sender's kernel refuses the packet: ${code}`,
  )
}

// Sends all bytes, and compares what comes back.
function stream(ns: Netns, { to, port, bytes }: Attempt): Promise<Outcome> {
  const sent = randomBytes(bytes)
  const received: Uint8Array[] = []
  let [isOpen, put, got] = [false, 0, 0]
  return new Promise((resolve) => {
    let socket: Bun.Socket<undefined> | undefined
    let timer = setTimeout(late, CONNECT_MS)
    function end(outcome: Outcome): void {
      clearTimeout(timer)
      resolve(outcome)
      socket?.terminate()
    }
    function late(): void {
      const at = `${to} port ${port}`
      if (!isOpen) end(lost(`no answer from ${at} in ${CONNECT_MS / 1000} s`))
      else end(lost(`connected to ${at}, but after ${got} of ${bytes} bytes nothing more came in ${QUIET_MS / 1000} s`))
    }
    function alive(): void {
      clearTimeout(timer)
      timer = setTimeout(late, QUIET_MS)
    }
    function push(to: Bun.Socket<undefined>): void {
      if (put < sent.length) put += Math.max(0, to.write(sent.subarray(put)))
    }
    const refusal = `${to} port ${port} refuses the connection, or a rule or router on the way does`
    const connecting = inside(ns, () =>
      Bun.connect({
        hostname: to,
        port,
        socket: {
          open(opened) {
            socket = opened
            isOpen = true
            if (bytes === 0) return end({ state: 'arrived', says: 'the connection opens' })
            alive()
            push(opened)
          },
          drain: push,
          data(_, piece) {
            alive()
            received.push(Uint8Array.from(piece))
            got += piece.length
            const first = received[0] as Uint8Array
            const line = first.indexOf(NEWLINE)
            if (line < 0 || got < line + 1 + sent.length) return
            const all = Buffer.concat(received)
            const saw = parseIp(all.subarray(0, line).toString())
            const isSame = all.subarray(line + 1).equals(sent)
            end(
              isSame ? { state: 'arrived', says: `${bytes} bytes there and back`, saw } : lost('other bytes came back'),
            )
          },
          close: () => end(lost(`the connection ended after ${got} of ${bytes} bytes`)),
          error: (_, cause) => end(lost(cause.message)),
          connectError: () => end(lost(refusal)),
        },
      }),
    )
    connecting.catch(() => end(lost(refusal)))
  })
}

// Sends again after a while: UDP may lose a datagram.
async function datagram(ns: Netns, { to, port, bytes }: Attempt): Promise<Outcome> {
  const sent = randomBytes(bytes)
  let outcome: Outcome | undefined
  const socket = await inside(ns, () =>
    Bun.udpSocket({
      hostname: isSix(to) ? '::' : '0.0.0.0',
      connect: { hostname: to, port },
      socket: {
        data(_, answer) {
          const line = answer.indexOf(NEWLINE)
          if (!answer.subarray(line + 1).equals(sent)) return
          const saw = parseIp(answer.subarray(0, line).toString())
          outcome = { state: 'arrived', says: `${bytes} bytes there and back`, saw }
        },
        error: () => {
          outcome ??= lost(`${to} refuses UDP port ${port}, or a rule or router on the way does`)
        },
      },
    }),
  )
  try {
    const start = performance.now()
    for (let again = start; performance.now() < start + DATAGRAM_MS && !outcome; await Bun.sleep(LOOK_MS)) {
      if (performance.now() < again) continue
      socket.send(sent)
      again += AGAIN_MS
    }
    return outcome ?? lost(`no answer to datagrams of ${bytes} bytes in ${DATAGRAM_MS / 1000} s`)
  } finally {
    socket.close()
  }
}

// Sends the first message of an association. The echo server answers with INIT ACK. A kernel with SCTP of its own says
// ABORT before, as no program of it listens. Either has our tag, so the way is open in both directions.
async function association(ns: Netns, from: Ip, { to, port }: Attempt): Promise<Outcome> {
  const sourcePort = FIRST_PORT + Math.floor(Math.random() * PORTS)
  const init = { sourcePort, port, tag: 1 + Math.floor(Math.random() * TAGS) }
  const message = initMessage(init)
  const raw = inside(ns, () => openRaw(from, SCTP))
  let aborted: number | undefined
  const next = (): InitAnswer | undefined => {
    for (let heard = raw.hear(); heard; heard = raw.hear()) {
      const answer = heard.from === to ? readAnswer(heard.bytes, init) : undefined
      if (answer?.kind === 'INIT ACK') return answer
      if (answer) aborted ??= performance.now()
    }
    return undefined
  }
  try {
    const start = performance.now()
    for (let again = start; performance.now() < start + DATAGRAM_MS; await Bun.sleep(LOOK_MS)) {
      const answer = next()
      if (answer) return { state: 'arrived', says: 'INIT ACK comes back', ...(answer.saw && { saw: answer.saw }) }
      if (aborted !== undefined && performance.now() > aborted + ABORT_MS) break
      if (performance.now() < again) continue
      if (!raw.send(to, message)) return refusedBy(to, lastError().code)
      again += AGAIN_MS
    }
    if (aborted !== undefined) return { state: 'arrived', says: "ABORT comes back from the receiver's kernel" }
    return lost(`no answer to the first message of an association in ${DATAGRAM_MS / 1000} s`)
  } finally {
    raw.close()
  }
}

// Asks a name server. TCP has the length of each message before it (RFC 1035, 4.2.2).
async function lookUp(ns: Netns, { protocol, to, port }: Attempt, asked: NonNullable<Attempt['lookUp']>) {
  const id = Math.floor(Math.random() * 65_536)
  const question = Buffer.from(dnsQuestion(id, asked.name, asked.has))
  const length = Buffer.alloc(2)
  length.writeUInt16BE(question.length)
  let said = Buffer.alloc(0)
  let outcome: Outcome | undefined
  const hear = (message: Uint8Array) => {
    const answer = dnsAnswer(message, id)
    if (answer) outcome ??= outcomeOf(answer, asked)
  }
  const refused = () => {
    outcome ??= lost(`${to} refuses ${protocol} port ${port}, or a rule or router on the way does`)
  }
  const open = async () => {
    if (protocol === 'UDP') {
      const socket = await inside(ns, () =>
        Bun.udpSocket({
          hostname: isSix(to) ? '::' : '0.0.0.0',
          connect: { hostname: to, port },
          socket: { data: (_, message) => hear(message), error: refused },
        }),
      )
      return { ask: () => void socket.send(question), close: () => socket.close() }
    }
    const socket = await inside(ns, () =>
      Bun.connect({
        hostname: to,
        port,
        socket: {
          open: (opened) => void opened.write(Buffer.concat([length, question])),
          data(_, piece) {
            said = Buffer.concat([said, piece])
            if (said.length >= 2 && said.length >= 2 + said.readUInt16BE(0)) hear(said.subarray(2))
          },
          close: () => {
            outcome ??= lost(`${to} port ${port} ended the connection without an answer`)
          },
          error: refused,
          connectError: refused,
        },
      }),
    )
    return { ask: () => undefined, close: () => socket.terminate() }
  }
  const start = performance.now()
  // A connection that nobody answers opens or fails only after minutes.
  let opened: Awaited<ReturnType<typeof open>> | undefined
  let isOver = false
  open().then((one) => {
    if (isOver) one.close()
    else opened = one
  }, refused)
  for (let again = start; performance.now() < start + DATAGRAM_MS && !outcome; await Bun.sleep(LOOK_MS)) {
    if (!opened || performance.now() < again) continue
    opened.ask()
    again = performance.now() + AGAIN_MS
  }
  isOver = true
  opened?.close()
  return outcome ?? lost(`no answer from ${to} port ${port} in ${DATAGRAM_MS / 1000} s`)
}

function outcomeOf(answer: DnsAnswer, { name, has }: NonNullable<Attempt['lookUp']>): Outcome {
  if ('error' in answer) return lost(`the name server answers ${answer.error} for ${name}`)
  if (answer.ips.includes(has)) return { state: 'arrived', says: `${name} has ${has}` }
  return lost(`${name} has ${answer.ips.join(', ') || 'no address'} for the name server, not ${has}`)
}

async function echo(ns: Netns, from: Ip, { to, bytes }: Attempt): Promise<Outcome> {
  const smallest = SMALLEST[isSix(to) ? 6 : 4]
  // A router answers as fast as the receiver does.
  for (const ms of [SOON_MS, ECHO_MS - SOON_MS]) {
    const found = await echoed(ns, from, to, bytes, ms)
    if (found === 'arrived') return { state: 'arrived', says: `the echo of ${bytes} bytes comes back` }
    if (found === 'EMSGSIZE')
      return { state: 'refused', says: `the sender's own link takes no packet of ${bytes} bytes` }
    if (found !== 'lost') return refusedBy(to, found)
    const mtu = bytes > smallest ? await pathMtu(ns, to) : undefined
    if (mtu !== undefined && mtu < bytes)
      return { ...lost(`a router says that the path carries only ${mtu} bytes`), mtu }
  }
  if (bytes <= smallest) return lost(`no echo in ${ECHO_MS / 1000} s`)
  if ((await echoed(ns, from, to, smallest, SIZE_MS)) !== 'arrived')
    return lost(`no echo of ${bytes} bytes in ${ECHO_MS / 1000} s, nor of ${smallest} bytes`)
  let [low, high]: [number, number] = [smallest, bytes - 1]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if ((await echoed(ns, from, to, middle, SIZE_MS)) === 'arrived') low = middle
    else high = middle - 1
  }
  return lost(`it vanishes: ${low} bytes arrive, no longer packet does, and no router says so`)
}

// The name of an errno when the kernel refuses to send.
async function echoed(ns: Netns, from: Ip, to: Ip, bytes: number, ms: number): Promise<string> {
  const echoes = inside(ns, () => openEchoes(from))
  try {
    const start = performance.now()
    for (let [again, serial] = [start, 1]; performance.now() < start + ms; await Bun.sleep(LOOK_MS)) {
      if (echoes.hear()) return 'arrived'
      if (performance.now() < again) continue
      if (!echoes.send(to, 0, serial++, bytes)) return lastError().code
      again += ms / 4
    }
    return echoes.hear() ? 'arrived' : 'lost'
  } finally {
    echoes.close()
  }
}

// What the kernel learnt of the path. Undefined when no router told an MTU.
async function pathMtu(ns: Netns, to: Ip): Promise<number | undefined> {
  const { status, stdout } = await run(['ip', '-json', 'route', 'get', to], '', ns)
  if (status !== 0) return undefined
  const [route] = JSON.parse(stdout) as { readonly metrics?: readonly { readonly mtu?: number }[]; expires?: number }[]
  return route?.metrics?.find(({ mtu }) => mtu !== undefined)?.mtu
}

function randomBytes(count: number): Buffer {
  const bytes = Buffer.alloc(count)
  // One call gives at most 65,536 bytes.
  for (let at = 0; at < count; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536))
  return bytes
}
