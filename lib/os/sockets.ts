import { CniError, CODE } from '../text/errors.ts'
import { libc, pointerTo } from './door.ts'
import { bytes, lastError } from './libc.ts'
import { answerOn, isList, NOTHING, NoAnswer, readPiece, receive, type Whole } from './netlink-answer.ts'

// On an idle node the kernel reports a carrier after 0 to 0.2 ms.
const STEP_US = 50
const LONGEST_STEP_US = 50_000
const [AF_INET, AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC] = [2, 1, 2, 0x80000]
const [SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP, IFF_RUNNING] = [0x8913n, 0x8914n, 1, 0x40]
// struct ifreq: 16 bytes of name, then the requested data.
const [IFREQ_BYTES, IFREQ_FLAGS, IFREQ_DATA] = [40, 16, 16]
// linux/ethtool.h: struct ethtool_value holds a command and a number.
const [SIOCETHTOOL, ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM] = [0x8946n, 0x16, 0x17]
const [AF_NETLINK, SOCK_RAW, MSG_DONTWAIT] = [16, 3, 0x40]
const [SOCK_STREAM, SOCK_NONBLOCK, MSG_NOSIGNAL, POLLIN, POLLOUT] = [1, 0x800, 0x4000, 1, 4]
const HEARD_BYTES = 4096
// How long a program may leave a question in the full buffer of its socket.
const SEND_MS = 5000
const [SOCKADDR_NL_BYTES, SOCKADDR_NL_GROUPS] = [12, 8]
// RTNLGRP_LINK is 1 (linux/rtnetlink.h). NFNLGRP_NFTABLES is 7, NFNLGRP_NFTRACE is 9 (linux/netfilter/nfnetlink.h).
const GROUPS = { links: [0, 1], nft: [12, 1 << 6], traces: [12, 1 << 8] } as const
// asm-generic/socket.h. The cookie exists since Linux 5.14.
const [SOL_SOCKET, SO_RCVBUFFORCE, SO_NETNS_COOKIE] = [1, 33, 71]
// linux/netlink.h, since Linux 4.20.
const [SOL_NETLINK, NETLINK_GET_STRICT_CHK] = [270, 12]

/**
 * The state of a link of this thread's namespace (SIOCGIFFLAGS, netdevice(7)). `running`: the link is up and the kernel
 * has noticed its carrier. `there`: the link exists, or the kernel refuses to answer. Waits up to `waitMs` for
 * `running`. Throws CniError 5 when there is no socket.
 */
export function linkState(name: string, waitMs = 0): 'absent' | 'there' | 'running' {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(bytes(name))
  try {
    // Each wait is twice as long as the last. Hundreds of ADDs that ask every 50 µs would slow the kernel work for
    // which they wait.
    const until = performance.now() + waitMs
    for (let step = STEP_US; ; step = Math.min(step * 2, LONGEST_STEP_US)) {
      const isRefused = c.ioctl(fd, SIOCGIFFLAGS, request) !== 0
      const isAbsent = isRefused && lastError().code === 'ENODEV'
      if (!isRefused && (request[IFREQ_FLAGS] as number) & IFF_RUNNING) return 'running'
      if (performance.now() >= until) return isAbsent ? 'absent' : 'there'
      c.usleep(step)
    }
  } finally {
    c.close(fd)
  }
}

/**
 * Sets a link of this thread's namespace up or down (SIOCSIFFLAGS, netdevice(7)). Throws Error with the errno, and
 * CniError 5 when there is no socket.
 */
export function setUp(name: string, isUp: boolean): void {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(bytes(name))
  try {
    if (c.ioctl(fd, SIOCGIFFLAGS, request) !== 0) throw new Error(`ioctl: ${lastError().code}`)
    const flags = request[IFREQ_FLAGS] as number
    request[IFREQ_FLAGS] = isUp ? flags | IFF_UP : flags & ~IFF_UP
    if (c.ioctl(fd, SIOCSIFFLAGS, request) !== 0) throw new Error(`ioctl: ${lastError().code}`)
  } finally {
    c.close(fd)
  }
}

/**
 * Whether the link computes the checksums of sent packets (`tx-checksum-ip-generic` of ethtool(8)). `to` sets that
 * first. ethtool need not be installed. Undefined when the kernel refuses to answer.
 */
export function txChecksum(name: string, to?: boolean): boolean | undefined {
  if (to !== undefined && !ethtool(name, Uint32Array.of(ETHTOOL_STXCSUM, to ? 1 : 0))) return undefined
  const value = Uint32Array.of(ETHTOOL_GTXCSUM, 0)
  return ethtool(name, value) ? value[1] === 1 : undefined
}

/**
 * Gives a link a command of ethtool(8), and writes the answer over it (SIOCETHTOOL). `command` is a struct of
 * linux/ethtool.h. False when the kernel refuses: no such link, or its driver does not know the command.
 */
export function ethtool(name: string, command: Uint8Array | Uint32Array): boolean {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(bytes(name))
  new DataView(request.buffer).setBigUint64(IFREQ_DATA, BigInt(pointerTo(command)), true)
  try {
    return c.ioctl(fd, SIOCETHTOOL, request) === 0
  } finally {
    c.close(fd)
  }
}

/** How often a question is asked again. The kernel's objects change, or it lacks memory, for a moment. */
const TRIES = 8

/**
 * Asks the kernel a question (netlink(7)), without waiting, and returns the objects of its whole answer. Empty when
 * there are none, also when the kernel answers with one of the errnos in `absent`. With `isStrict` the kernel returns
 * only objects that match the request's header, where it can (Linux 4.20). Otherwise it goes through all objects.
 * Throws NoAnswer when the answer does not come whole or the kernel refuses, and CniError 5 without a socket.
 */
export function netlink(
  protocol: number,
  request: Uint8Array,
  absent: readonly number[] = [],
  isStrict = false,
): readonly DataView[] {
  const list = isList(request)
  for (let tries = 1; ; tries++) {
    // A new socket for each try: what was not read of an answer must not be taken for the next one.
    const fd = open(protocol, isStrict)
    const answer = sent(fd, request) ?? answerOn(fd, list)
    libc().close(fd)
    if (typeof answer !== 'string') {
      if (answer.errno === 0) return answer.messages
      if (absent.includes(answer.errno)) return []
      throw new NoAnswer(protocol, request, answer.errno)
    }
    if (tries === TRIES) throw new NoAnswer(protocol, request, answer)
  }
}

function open(protocol: number, isStrict = false): number {
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  if (isStrict) libc().setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, Uint32Array.of(1), 4n)
  return fd
}

// Undefined after a success, else the name of the errno.
function sent(fd: number, request: Uint8Array): string | undefined {
  return Number(libc().send(fd, request, BigInt(request.length), 0)) < 0 ? lastError().code : undefined
}

/** A netlink socket for several requests. Opens at the first one. */
export class Connected {
  readonly #protocol: number
  #fd = -1

  constructor(protocol: number) {
    this.#protocol = protocol
  }

  /**
   * Sends a request and returns the whole answer. Its `errno` is the kernel's refusal. Asks again when the answer does
   * not come whole. Throws NoAnswer when it never does, and CniError 5 without a socket.
   */
  ask(request: Uint8Array): Whole {
    const list = isList(request)
    for (let tries = 1; ; tries++) {
      const answer = this.#send(request) ?? answerOn(this.#fd, list)
      if (typeof answer !== 'string') return answer
      // As in `netlink`.
      this.close()
      if (tries === TRIES) throw new NoAnswer(this.#protocol, request, answer)
    }
  }

  /**
   * The objects of a list, piece by piece as the kernel gives them. The caller may do other work in between. Never asks
   * again, because the caller has used some pieces already. Throws like `ask` when the list does not come to its end.
   */
  *pieces(request: Uint8Array): Generator<readonly DataView[]> {
    let end: number | string | undefined = this.#send(request)
    while (end === undefined) {
      const [messages, piece] = [[] as DataView[], receive(this.#fd)]
      end = typeof piece === 'string' ? piece : readPiece(piece, true, messages)
      if (messages.length > 0) yield messages
    }
    if (end === 0) return
    this.close()
    throw new NoAnswer(this.#protocol, request, end)
  }

  close(): void {
    if (this.#fd >= 0) libc().close(this.#fd)
    this.#fd = -1
  }

  #send(request: Uint8Array): string | undefined {
    if (this.#fd < 0) this.#fd = open(this.#protocol)
    return sent(this.#fd, request)
  }
}

/** A socket that receives the kernel's messages about this thread's namespace, from now on. */
export interface Listener {
  /** The descriptor to poll. */
  readonly fd: number
  /** The messages that have arrived since the last call. Does not wait. Calls `lost` when some were lost. */
  messages(lost?: () => void): DataView[]
  close(): void
}

/**
 * Listens to messages about links, nft transactions, or packets with nft's `nftrace`. `room` is the size of the receive
 * buffer in bytes, for callers that expect many messages. Throws like `netlink`.
 */
export function listen(group: keyof typeof GROUPS, room?: number): Listener {
  const c = libc()
  const [protocol, bit] = GROUPS[group]
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  // When the kernel refuses this, the usual buffer is used.
  if (room !== undefined) c.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, Uint32Array.of(room), 4n)
  const close = () => void c.close(fd)
  const address = new DataView(new ArrayBuffer(SOCKADDR_NL_BYTES))
  address.setUint16(0, AF_NETLINK, true)
  address.setUint32(SOCKADDR_NL_GROUPS, bit, true)
  if (c.bind(fd, new Uint8Array(address.buffer), SOCKADDR_NL_BYTES) === 0)
    return { fd, messages: (lost) => arrived(fd, lost), close }
  const said = lastError().code
  close()
  throw new Error(`bind: ${said}`)
}

/** A connection to another program on this node. */
export interface Dialled {
  /** Sends a text. Waits while the buffer of the socket is full. Throws Error with the errno. */
  say(text: string): void
  /**
   * Waits for bytes, at most `waitMs`. Empty at the end of the connection. Undefined when none came. Throws Error with
   * the errno.
   */
  hear(waitMs: number): Uint8Array | undefined
  close(): void
}

/**
 * Connects to a socket in the file system (unix(7)), without waiting. Throws Error with the errno: `ENOENT`, or
 * `EAGAIN` when too many connect at once.
 */
export function dial(path: string): Dialled {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK)
  const close = () => void c.close(fd)
  const refused = () => {
    const { code } = lastError()
    close()
    return new Error(code)
  }
  const address = addressOf(path)
  if (c.connect(fd, address, address.length) !== 0) throw refused()
  return {
    say(text) {
      for (let rest: Uint8Array = new TextEncoder().encode(text); rest.length > 0; ) {
        const sent = Number(c.send(fd, rest, BigInt(rest.length), MSG_NOSIGNAL))
        if (sent >= 0) rest = rest.subarray(sent)
        else if (lastError().code !== 'EAGAIN' || c.poll(new Int32Array([fd, POLLOUT]), 1n, SEND_MS) <= 0)
          throw refused()
      }
    },
    hear(waitMs) {
      const heard = new Uint8Array(HEARD_BYTES)
      for (const until = performance.now() + waitMs; ; ) {
        // struct pollfd: a descriptor, then the requested and the returned events.
        const ready = c.poll(new Int32Array([fd, POLLIN]), 1n, Math.max(0, Math.ceil(until - performance.now())))
        if (ready === 0) return undefined
        const length = ready < 0 ? -1 : Number(c.recv(fd, heard, BigInt(heard.length), MSG_DONTWAIT))
        if (length >= 0) return heard.subarray(0, length)
        const { code } = lastError()
        if (code !== 'EINTR' && code !== 'EAGAIN') throw new Error(code)
      }
    },
    close,
  }
}

/**
 * Sends one request to the kernel on a socket that stays open, because the kernel sends more on this socket later
 * (NFLOG). `room` is the size of the receive buffer in bytes. The request asks for an acknowledgement (NLM_F_ACK).
 * Throws NoAnswer when the kernel refuses, and Error with the errno.
 */
export function subscribe(protocol: number, request: Uint8Array, room: number): Listener {
  const c = libc()
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  const close = () => void c.close(fd)
  c.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, Uint32Array.of(room), 4n)
  const answer = sent(fd, request) ?? answerOn(fd, true)
  if (typeof answer !== 'string' && answer.errno === 0) return { fd, messages: (lost) => arrived(fd, lost), close }
  close()
  throw new NoAnswer(protocol, request, typeof answer === 'string' ? answer : answer.errno)
}

function socket(family: number, type: number, protocol = 0): number {
  const fd = libc().socket(family, type | SOCK_CLOEXEC, protocol)
  if (fd >= 0) return fd
  throw new CniError(CODE.io, `Cannot ask the kernel: ${lastError().code}`, 'it gives no socket')
}

// struct sockaddr_un: two bytes of family, then the path.
function addressOf(path: string): Uint8Array {
  return new Uint8Array([AF_UNIX, 0, ...new TextEncoder().encode(path)])
}

function arrived(fd: number, lost = () => {}): DataView[] {
  const found: DataView[] = []
  for (;;) {
    const piece = receive(fd)
    if (piece === NOTHING) return found
    // After an error of the socket the next messages come as usual.
    const isLost = typeof piece === 'string' || typeof readPiece(piece, true, found) === 'string'
    if (isLost) lost()
    if (typeof piece === 'string') return found
  }
}

/**
 * Sends one UDP packet to an IPv4 address, by this thread's routes and without waiting (udp(7)). Throws Error with the
 * errno.
 */
export function sendUdp(to: Uint8Array, port: number, data: Uint8Array): void {
  const c = libc()
  const fd = socket(AF_INET, SOCK_DGRAM)
  try {
    // struct sockaddr_in: the family, then port and address in network order.
    const address = new Uint8Array([AF_INET, 0, port >> 8, port & 0xff, ...to, 0, 0, 0, 0, 0, 0, 0, 0])
    if (Number(c.sendto(fd, data, BigInt(data.length), MSG_DONTWAIT, address, address.length)) < 0)
      throw new Error(`sendto: ${lastError().code}`)
  } finally {
    c.close(fd)
  }
}

/**
 * The cookie of this thread's network namespace (SO_NETNS_COOKIE). No other namespace gets it until the node boots
 * again. Undefined before Linux 5.14.
 */
export function netnsCookie(): bigint | undefined {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  const [value, length] = [new BigUint64Array(1), new Uint32Array([BigUint64Array.BYTES_PER_ELEMENT])]
  try {
    return c.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, value, length) === 0 ? value[0] : undefined
  } finally {
    c.close(fd)
  }
}

/**
 * Sends one message to a socket in the file system (unix(7)). A path that begins with @ names an abstract socket.
 * Throws Error when no process receives the message.
 */
export function datagram(path: string, text: string): void {
  const { connect, send, close } = libc()
  const address = addressOf(path.replace(/^@/, '\0'))
  const message = new TextEncoder().encode(text)
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  try {
    if (connect(fd, address, address.length) !== 0) throw new Error('nobody listens there')
    if (Number(send(fd, message, BigInt(message.length), MSG_DONTWAIT)) < 0)
      throw new Error('the listener does not take it')
  } finally {
    close(fd)
  }
}
