import { dlopen, FFIType, ptr } from 'bun:ffi'
import { inside } from '../../lib/os/netns.ts'
import type { Place } from '../call.ts'

/**
 * Something that changed in the kernel: `route 10.128.5.0/24`, `neigh 10.128.5.0`, `fdb 02:…`, `addr 10.128.5.0/32`,
 * `link flannel.1`, `rule TABLE`, `element TABLE`.
 */
export interface Happening {
  readonly what: string
  readonly gone: boolean
}
/**
 * Hears what the kernel tells of one network namespace. While it waits this thread sleeps in the kernel: it takes
 * nothing from what is measured.
 */
export interface Watcher {
  /**
   * Waits until `seen` says that all has happened, at most `ms`: when that was, by performance.now(); undefined when it
   * was not.
   */
  until(seen: (one: Happening) => boolean, ms: number): number | undefined
  /** Waits until nothing has happened for so long, at most ten seconds, and forgets what did. */
  quiet(ms: number): void
  close(): void
}

const [AF_NETLINK, SOCK_RAW, SOL_SOCKET, SO_RCVBUFFORCE, MSG_DONTWAIT, POLLIN] = [16, 3, 1, 33, 0x40, 1]
const [NETLINK_ROUTE, NETLINK_NETFILTER] = [0, 12]
// linux/rtnetlink.h: links, neighbours, IPv4 addresses, IPv4 routes; linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES.
const [RTMGRP, NFTABLES] = [0x1 | 0x4 | 0x10 | 0x40, 0x40]
const [AF_INET, AF_BRIDGE, IFF_UP, NUD_PERMANENT] = [2, 7, 1, 0x80]
// One list of a hundred thousand messages.
const LONGEST_MS = 10_000
const [ROOM, MESSAGE] = [1 << 28, 1 << 16]
const { i32, u64, i64, ptr: pointer } = FFIType
const c = dlopen('libc.so.6', {
  socket: { args: [i32, i32, i32], returns: i32 },
  bind: { args: [i32, pointer, i32], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, i32], returns: i32 },
  recv: { args: [i32, pointer, u64, i32], returns: i64 },
  poll: { args: [pointer, u64, i32], returns: i32 },
  close: { args: [i32], returns: i32 },
}).symbols

/** Begins to listen in a namespace. Throws Error. */
export function watch(place: Place): Watcher {
  const fds = inside(place, () => [open(NETLINK_ROUTE, RTMGRP), open(NETLINK_NETFILTER, NFTABLES)])
  const buffer = new Uint8Array(MESSAGE)
  const polled = new Int32Array(fds.flatMap((fd) => [fd, POLLIN]))
  function* told(): Generator<Happening> {
    for (const fd of fds)
      for (let length = received(fd, buffer); length > 0; length = received(fd, buffer))
        for (let at = 0, size = 0; at + 16 <= length; at += (size + 3) & ~3) {
          size = new DataView(buffer.buffer).getUint32(at, true)
          const one = happening(new DataView(buffer.buffer, at, size))
          if (one) yield one
        }
  }
  const wait = (ms: number) => c.poll(ptr(polled), BigInt(fds.length), Math.max(1, Math.ceil(ms)))
  return {
    until(seen, ms) {
      for (const end = performance.now() + ms; performance.now() < end; wait(end - performance.now()))
        for (const one of told()) if (seen(one)) return performance.now()
      return undefined
    },
    quiet(ms) {
      const end = performance.now() + LONGEST_MS
      do for (const _ of told());
      while (wait(ms) > 0 && performance.now() < end)
    },
    close() {
      for (const fd of fds) c.close(fd)
    },
  }
}

function open(protocol: number, groups: number): number {
  const fd = c.socket(AF_NETLINK, SOCK_RAW, protocol)
  // struct sockaddr_nl: family, padding, port, groups.
  const address = new Uint32Array([AF_NETLINK, 0, groups])
  c.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, ptr(new Int32Array([ROOM])), 4)
  if (fd < 0 || c.bind(fd, ptr(address), address.byteLength) !== 0)
    throw new Error('Cannot listen to the kernel (netlink)')
  return fd
}

function received(fd: number, buffer: Uint8Array): number {
  return Number(c.recv(fd, ptr(buffer), BigInt(buffer.length), MSG_DONTWAIT))
}

// What each kind of message begins with, after struct nlmsghdr, and the part of it that makes its name.
const KINDS: Readonly<
  Record<
    number,
    {
      readonly header: number
      readonly gone: boolean
      name(message: DataView, attribute: (type: number) => Uint8Array | undefined): string | undefined
    }
  >
> = {
  ...both(16, 16, (message, attribute) =>
    message.getUint8(16) === 0 && (message.getUint32(24, true) & IFF_UP || message.getUint16(4, true) === 17)
      ? `link ${text(attribute(3))}`
      : undefined,
  ),
  ...both(20, 8, (message, attribute) => `addr ${dotted(attribute(2))}/${message.getUint8(17)}`),
  ...both(24, 12, (message, attribute) =>
    message.getUint8(16) === AF_INET ? `route ${dotted(attribute(1))}/${message.getUint8(17)}` : undefined,
  ),
  ...both(28, 12, (message, attribute) => neighbour(message, attribute)),
  ...both((10 << 8) | 6, 4, (_, attribute) => `rule ${text(attribute(1))}`, 2),
  ...both((10 << 8) | 12, 4, (_, attribute) => `element ${text(attribute(1))}`, 2),
}

function both(
  type: number,
  header: number,
  name: (message: DataView, attribute: (type: number) => Uint8Array | undefined) => string | undefined,
  step = 1,
) {
  return { [type]: { header, gone: false, name }, [type + step]: { header, gone: true, name } }
}

// A neighbour that is being deleted is first told of as one that has failed.
function neighbour(message: DataView, attribute: (type: number) => Uint8Array | undefined): string | undefined {
  const family = message.getUint8(16)
  if (message.getUint16(4, true) === 28 && (message.getUint16(24, true) & NUD_PERMANENT) === 0) return undefined
  if (family === AF_BRIDGE)
    return `fdb ${Buffer.from(attribute(2) ?? [])
      .toString('hex')
      .replace(/..(?=.)/g, '$&:')}`
  return family === AF_INET ? `neigh ${dotted(attribute(1))}` : undefined
}

function happening(message: DataView): Happening | undefined {
  const kind = KINDS[message.getUint16(4, true)]
  if (!kind) return undefined
  const what = kind.name(message, (type) => {
    for (let at = 16 + kind.header, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
      size = message.getUint16(at, true)
      if (size < 4) return undefined
      if ((message.getUint16(at + 2, true) & 0x3fff) === type)
        return new Uint8Array(message.buffer, message.byteOffset + at + 4, size - 4)
    }
    return undefined
  })
  return what === undefined ? undefined : { what, gone: kind.gone }
}

function dotted(bytes: Uint8Array | undefined): string {
  return bytes ? bytes.join('.') : '0.0.0.0'
}

function text(bytes: Uint8Array | undefined): string {
  return Buffer.from(bytes ?? [])
    .toString()
    .replace(/\0$/, '')
}
