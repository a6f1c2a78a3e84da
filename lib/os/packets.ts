import { dlopen, FFIType, type Pointer, ptr, read } from 'bun:ffi'
import type { Mac, Netns } from '../text/values.ts'
import { type LinkFacts, linkFacts, linkIn } from './links.ts'
import { inside } from './netns.ts'

/** A packet as it came: the address that sent it, and its bytes from the IP header on. */
export interface Heard {
  readonly from: Mac
  readonly bytes: Uint8Array
}
/** An open packet socket of one link (packet(7)). It belongs to the link's namespace, and works from wherever the process is. */
export interface Wire extends Pick<LinkFacts, 'index' | 'mac'> {
  /** `type` is another EtherType than the socket's. */
  send(to: Mac, bytes: Uint8Array, type?: number): void
  /** The next packet that has come, undefined when none has. */
  hear(): Heard | undefined
  close(): void
}

const [AF_INET, AF_PACKET, SOCK_DGRAM, SOCK_FLAGS, MSG_DONTWAIT] = [2, 17, 2, 0x80000, 0x40]
const [SIOCGIFFLAGS, SIOCSIFFLAGS] = [0x8913n, 0x8914n]
const [SOL_SOCKET, SO_ATTACH_FILTER, IFF_UP] = [1, 26, 1]
// struct ifreq is 16 bytes of name, then what is asked for; struct sockaddr_ll has 20 bytes.
const [IFREQ_BYTES, IFREQ_DATA, ADDRESS_BYTES, PACKET_BYTES] = [40, 16, 20, 65_535]
/** What EtherType an IP version has, and the port on which a client of DHCP listens there. */
const KINDS = { 4: { type: 0x0800, port: 68 }, 6: { type: 0x86dd, port: 546 } } as const

/** Opens a link for packets of an IP version; only UDP to the port of DHCP's clients is heard. Throws CniError 3 when the namespace cannot be entered, Error when the link is not there or is no Ethernet link. */
export function openWire(ns: Netns, ifname: string, version: 4 | 6): Wire {
  const { type, port } = KINDS[version]
  return inside(ns, () => {
    const facts = linkFacts(ifname)
    if (!facts?.isEthernet) throw new Error(`Cannot use the link ${ifname}: ${facts ? 'it is no Ethernet link' : 'there is none'}`)
    const c = libc()
    // No packets before the filter stands: of protocol 0, then bound to the right one.
    const fd = c.socket(AF_PACKET, SOCK_DGRAM | SOCK_FLAGS, 0)
    if (fd < 0) throw new Error(`socket: errno ${errno()}`)
    const filter = program(version, port)
    const address = linkAddress(type, facts.index)
    const isFiltered = c.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, filter.head, 16) === 0
    // An address in a struct is no reference: until here the program must not be collected.
    filter.code.fill(0)
    if (!isFiltered || c.bind(fd, address, ADDRESS_BYTES) !== 0) {
      const code = errno()
      c.close(fd)
      throw new Error(`Cannot listen on ${ifname}: errno ${code}`)
    }
    return wire(fd, type, facts)
  })
}

/** What the kernel says of an Ethernet link, undefined when the namespace or such a link is not there. */
export function ethernetIn(ns: Netns, ifname: string): LinkFacts | undefined {
  try {
    const facts = linkIn(ifname, ns)
    return facts?.isEthernet ? facts : undefined
  } catch {
    return undefined
  }
}

/** Switches a link on or off. Throws CniError 3 when the namespace cannot be entered, Error with the errno. */
export function setLink(ns: Netns, ifname: string, up: boolean): void {
  inside(ns, () => {
    const request = ask(ifname, SIOCGIFFLAGS)
    const flags = request.getUint16(IFREQ_DATA, true)
    request.setUint16(IFREQ_DATA, up ? flags | IFF_UP : flags & ~IFF_UP, true)
    control(SIOCSIFFLAGS, request, ifname)
  })
}

function wire(fd: number, type: number, { index, mac }: LinkFacts): Wire {
  const c = libc()
  const buffer = new Uint8Array(PACKET_BYTES)
  const sender = new Uint8Array(ADDRESS_BYTES)
  const length = new Uint32Array(1)
  let open = true
  return {
    index,
    mac,
    send(to, bytes, other = type) {
      const address = linkAddress(other, index, to)
      if (Number(c.sendto(fd, bytes, BigInt(bytes.length), MSG_DONTWAIT, address, ADDRESS_BYTES)) < 0) throw new Error(`Cannot send: errno ${errno()}`)
    },
    hear() {
      length[0] = ADDRESS_BYTES
      const size = open ? Number(c.recvfrom(fd, buffer, BigInt(buffer.length), MSG_DONTWAIT, sender, length)) : -1
      return size < 0 ? undefined : { from: macAt(sender, 12), bytes: buffer.slice(0, size) }
    },
    close() {
      if (open) c.close(fd)
      open = false
    },
  }
}

function ask(ifname: string, what: bigint): DataView<ArrayBuffer> {
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(new TextEncoder().encode(ifname).subarray(0, 15))
  return control(what, new DataView(request.buffer), ifname)
}

function control(what: bigint, request: DataView<ArrayBuffer>, ifname: string): DataView<ArrayBuffer> {
  const c = libc()
  const fd = c.socket(AF_INET, SOCK_DGRAM | SOCK_FLAGS, 0)
  try {
    if (c.ioctl(fd, what, new Uint8Array(request.buffer)) !== 0) throw new Error(`Cannot use the link ${ifname}: ${errno() === 19 ? 'there is none' : `errno ${errno()}`}`)
    return request
  } finally {
    c.close(fd)
  }
}

// struct sockaddr_ll: family, EtherType in network order, index, hardware type, packet type, length of the address, the address.
function linkAddress(type: number, index: number, to?: Mac): Uint8Array {
  const view = new DataView(new ArrayBuffer(ADDRESS_BYTES))
  view.setUint16(0, AF_PACKET, true)
  view.setUint16(2, type)
  view.setInt32(4, index, true)
  if (to === undefined) return new Uint8Array(view.buffer)
  view.setUint8(11, 6)
  for (const [i, pair] of to.split(':').entries()) view.setUint8(12 + i, Number.parseInt(pair, 16))
  return new Uint8Array(view.buffer)
}

function macAt(bytes: Uint8Array, at: number): Mac {
  return [...bytes.subarray(at, at + 6)].map((byte) => byte.toString(16).padStart(2, '0')).join(':') as Mac
}

// Classic BPF (linux/filter.h): instruction, jumps when true and false, operand. Offsets count from the IP header.
function program(version: 4 | 6, port: number): { readonly head: BigUint64Array; readonly code: Uint8Array } {
  const [LOAD_BYTE, LOAD_HALF, LOAD_X_HEADER, LOAD_HALF_X, EQUAL, SOME, END] = [0x30, 0x28, 0xb1, 0x48, 0x15, 0x45, 0x06]
  const UDP = 17
  const steps =
    version === 4
      ? [
          [LOAD_BYTE, 0, 0, 9],
          [EQUAL, 0, 6, UDP],
          // A fragment but the first has no ports.
          [LOAD_HALF, 0, 0, 6],
          [SOME, 4, 0, 0x1fff],
          [LOAD_X_HEADER, 0, 0, 0],
          [LOAD_HALF_X, 0, 0, 2],
          [EQUAL, 0, 1, port],
        ]
      : [
          [LOAD_BYTE, 0, 0, 6],
          [EQUAL, 0, 3, UDP],
          [LOAD_HALF, 0, 0, 42],
          [EQUAL, 0, 1, port],
        ]
  const all = [...steps, [END, 0, 0, PACKET_BYTES], [END, 0, 0, 0]]
  const code = new DataView(new ArrayBuffer(all.length * 8))
  for (const [i, [what = 0, yes = 0, no = 0, operand = 0]] of all.entries()) {
    code.setUint16(i * 8, what, true)
    code.setUint8(i * 8 + 2, yes)
    code.setUint8(i * 8 + 3, no)
    code.setUint32(i * 8 + 4, operand, true)
  }
  const bytes = new Uint8Array(code.buffer)
  // struct sock_fprog: a count, and where the program is. The program is returned too: it must live as long as its address is used.
  return { head: new BigUint64Array([BigInt(all.length), BigInt(ptr(bytes))]), code: bytes }
}

const { i32, u32, u64, i64, ptr: pointer } = FFIType
let opened: ReturnType<typeof load> | undefined

// Not with those of libc.ts: each costs a plugin time to open, and none of them has a use for these.
function libc(): ReturnType<typeof load> {
  opened ??= load()
  return opened
}

function load() {
  return dlopen('libc.so.6', {
    socket: { args: [i32, i32, i32], returns: i32 },
    ioctl: { args: [i32, u64, pointer], returns: i32 },
    bind: { args: [i32, pointer, u32], returns: i32 },
    setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
    sendto: { args: [i32, pointer, u64, i32, pointer, u32], returns: i64 },
    recvfrom: { args: [i32, pointer, u64, i32, pointer, pointer], returns: i64 },
    close: { args: [i32], returns: i32 },
    __errno_location: { args: [], returns: pointer },
  }).symbols
}

function errno(): number {
  return read.i32(libc().__errno_location() as Pointer, 0)
}
