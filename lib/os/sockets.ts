import { CniError, CODE } from '../text/errors.ts'
import { libc, pointerTo } from './door.ts'
import { bytes, lastError } from './libc.ts'

// On an idle node the kernel reports a carrier after 0 to 0.2 ms.
const STEP_US = 50
const LONGEST_STEP_US = 50_000
const [AF_INET, AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC, SIOCGIFFLAGS, IFF_RUNNING] = [2, 1, 2, 0x80000, 0x8913n, 0x40]
// struct ifreq: 16 bytes of name, then the requested data.
const [IFREQ_BYTES, IFREQ_FLAGS, IFREQ_DATA] = [40, 16, 16]
// linux/ethtool.h: struct ethtool_value holds a command and a number.
const [SIOCETHTOOL, ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM] = [0x8946n, 0x16, 0x17]
const [AF_NETLINK, SOCK_RAW, MSG_DONTWAIT] = [16, 3, 0x40]
const [SOCK_STREAM, SOCK_NONBLOCK, MSG_NOSIGNAL, POLLIN, POLLOUT] = [1, 0x800, 0x4000, 1, 4]
// How long a program may leave a question in the full buffer of its socket.
const SEND_MS = 5000
// The size of struct nlmsghdr, and the largest part of a dump that the kernel sends at once.
const [NLMSG_HEADER, NETLINK_BYTES] = [16, 32768]
const [SOCKADDR_NL_BYTES, SOCKADDR_NL_GROUPS] = [12, 8]
// RTNLGRP_LINK is 1 (linux/rtnetlink.h). NFNLGRP_NFTABLES is 7, NFNLGRP_NFTRACE is 9 (linux/netfilter/nfnetlink.h).
const GROUPS = { links: [0, 1], nft: [12, 1 << 6], traces: [12, 1 << 8] } as const
// asm-generic/socket.h. The cookie exists since Linux 5.14.
const [SOL_SOCKET, SO_RCVBUFFORCE, SO_NETNS_COOKIE] = [1, 33, 71]
// linux/netlink.h, since Linux 4.20.
const [SOL_NETLINK, NETLINK_GET_STRICT_CHK] = [270, 12]

// All answers share one buffer. A new buffer costs the kernel eight pages that it has to find.
let buffer: Uint8Array<ArrayBuffer> | undefined

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
 * Whether the link computes the checksums of sent packets (`tx-checksum-ip-generic` of ethtool(8)). `to` sets that
 * first. ethtool need not be installed. Undefined when the kernel refuses to answer.
 */
export function txChecksum(name: string, to?: boolean): boolean | undefined {
  const c = libc()
  const fd = socket(AF_UNIX, SOCK_DGRAM)
  const value = new Uint32Array(2)
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(bytes(name))
  new DataView(request.buffer).setBigUint64(IFREQ_DATA, BigInt(pointerTo(value)), true)
  try {
    if (to !== undefined) value.set([ETHTOOL_STXCSUM, to ? 1 : 0])
    if (to !== undefined && c.ioctl(fd, SIOCETHTOOL, request) !== 0) return undefined
    value.set([ETHTOOL_GTXCSUM, 0])
    return c.ioctl(fd, SIOCETHTOOL, request) === 0 ? value[1] === 1 : undefined
  } finally {
    c.close(fd)
  }
}

/**
 * Sends one request to the kernel (netlink(7)) and returns the messages of its answer. The kernel has the answer ready,
 * so this never waits. With `isStrict` the kernel returns only objects that match the request's header, where it can
 * (Linux 4.20). Otherwise it goes through all objects. Throws Error with the errno, and CniError 5 without a socket.
 */
export function netlink(protocol: number, request: Uint8Array, isStrict = false): DataView[] {
  const c = libc()
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  try {
    if (isStrict) c.setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, Uint32Array.of(1), 4n)
    if (Number(c.send(fd, request, BigInt(request.length), 0)) < 0) throw new Error(`send: ${lastError().code}`)
    return received(fd)
  } finally {
    c.close(fd)
  }
}

/** A netlink socket for several requests. */
export interface Connected {
  /** Sends a request and returns the messages of its answer. Throws like `netlink`. */
  ask(request: Uint8Array): DataView[]
  /** The same, piece by piece as the kernel gives them. The caller may do other work in between. */
  pieces(request: Uint8Array): Generator<DataView[]>
  close(): void
}

/** Opens a netlink socket for several requests. Throws CniError 5 when there is no socket. */
export function connect(protocol: number): Connected {
  const c = libc()
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  const send = (request: Uint8Array) => {
    if (Number(c.send(fd, request, BigInt(request.length), 0)) < 0) throw new Error(`send: ${lastError().code}`)
  }
  return {
    ask(request) {
      send(request)
      return received(fd)
    },
    *pieces(request) {
      send(request)
      for (let piece = receivedOnce(fd); piece; piece = receivedOnce(fd)) yield piece
    },
    close: () => void c.close(fd),
  }
}

/** A socket that receives the kernel's messages about this thread's namespace, from now on. */
export interface Listener {
  /** The descriptor to poll. */
  readonly fd: number
  /** The messages that have arrived since the last call. Does not wait. */
  messages(): DataView[]
  close(): void
}

/**
 * Listens to messages about links, nft transactions, or packets with nft's `nftrace`. `room` is the size of the receive buffer in bytes, for
 * callers that expect many messages. Throws like `netlink`.
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
    return { fd, messages: () => received(fd), close }
  const said = lastError().code
  close()
  throw new Error(`bind: ${said}`)
}

/** A connection to another program on this node. */
export interface Dialled {
  /** Sends a text. Waits while the buffer of the socket is full. Throws Error with the errno. */
  say(text: string): void
  /** Waits for bytes, at most `waitMs`. Empty at the end of the connection. Undefined when none came. */
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
  // struct sockaddr_un: two bytes of family, then the path.
  const address = new Uint8Array([AF_UNIX, 0, ...bytes(path)])
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
      // struct pollfd: a descriptor, then the requested and the returned events.
      if (c.poll(new Int32Array([fd, POLLIN]), 1n, Math.max(0, Math.ceil(waitMs))) <= 0) return undefined
      buffer ??= new Uint8Array(NETLINK_BYTES)
      const length = Number(c.recv(fd, buffer, BigInt(NETLINK_BYTES), MSG_DONTWAIT))
      return buffer.slice(0, Math.max(0, length))
    },
    close,
  }
}

/**
 * Sends one request to the kernel on a socket that stays open, because the kernel answers on this socket later (NFLOG).
 * `room` is the size of the receive buffer in bytes. The answer waits in `heard`. Throws like `netlink`.
 */
export function subscribe(protocol: number, request: Uint8Array, room: number): Listener {
  const c = libc()
  const fd = socket(AF_NETLINK, SOCK_RAW, protocol)
  const close = () => void c.close(fd)
  c.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, Uint32Array.of(room), 4n)
  if (Number(c.send(fd, request, BigInt(request.length), 0)) >= 0) return { fd, messages: () => received(fd), close }
  const said = lastError().code
  close()
  throw new Error(`send: ${said}`)
}

function socket(family: number, type: number, protocol = 0): number {
  const fd = libc().socket(family, type | SOCK_CLOEXEC, protocol)
  if (fd >= 0) return fd
  throw new CniError(CODE.io, `Cannot ask the kernel: ${lastError().code}`, 'it gives no socket')
}

function received(fd: number): DataView[] {
  const found: DataView[] = []
  for (let piece = receivedOnce(fd); piece; piece = receivedOnce(fd)) found.push(...piece)
  return found
}

// The messages of one recv(2). Undefined when nothing has come.
function receivedOnce(fd: number): DataView[] | undefined {
  buffer ??= new Uint8Array(NETLINK_BYTES)
  const length = Number(libc().recv(fd, buffer, BigInt(NETLINK_BYTES), MSG_DONTWAIT))
  if (length <= 0) return undefined
  const found: DataView[] = []
  const answer = new DataView(buffer.buffer.slice(0, length))
  for (let at = 0, size = 0; at + NLMSG_HEADER <= length; at += (size + 3) & ~3) {
    size = answer.getUint32(at, true)
    if (size < NLMSG_HEADER) break
    found.push(new DataView(answer.buffer, at, Math.min(size, length - at)))
  }
  return found
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
