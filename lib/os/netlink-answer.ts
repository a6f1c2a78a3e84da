// The one reader of netlink answers (netlink(7)), for rtnetlink, nf_tables and conntrack. An answer is whole, or it is
// no answer: a caller never gets a part of it (docs/decisions/0041).
import { CniError, CODE } from '../text/errors.ts'
import { libc } from './door.ts'
import { ERRORS } from './errors.ts'
import { lastError } from './libc.ts'

// linux/netlink.h. Types below NLMSG_MIN_TYPE are for control. The flags stand in the upper half of a word.
const [NLMSG_HEADER, NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN, NLMSG_MIN_TYPE] = [16, 2, 3, 4, 16]
const NLM_F_DUMP_INTR = 0x10 << 16
// The upper byte of the flags has those of NLM_F_DUMP.
const [TYPE, HIGH_FLAGS, DUMP] = [4, 7, 3]
// The length of an error, or of the end of a list with its error.
const WITH_ERRNO = NLMSG_HEADER + 4
const [MSG_TRUNC, MSG_DONTWAIT] = [0x20, 0x40]
// The largest part of a list that the kernel sends at once. A single object may be larger.
const USUAL_BYTES = 32_768
// EINTR, ENOMEM and ENOBUFS. They tell about the kernel's work on the question, and not about what was asked.
const HINDRANCES = [4, 12, 105]

/** What questions find out, and what requests do, by protocol and type. */
const PURPOSES: Readonly<Record<string, string>> = {
  '0 18': 'find out the links',
  '0 22': 'find out the addresses of links',
  '0 26': 'find out the routes',
  '0 30': 'find out the neighbours',
  '0 34': 'find out the routing rules',
  [`12 ${1 << 8}`]: 'mark a tracked connection',
  [`12 ${(1 << 8) | 1}`]: 'find out the tracked connections',
  [`12 ${(1 << 8) | 2}`]: 'end a tracked connection',
  [`12 ${(4 << 8) | 1}`]: 'receive the packets that nft logs',
  [`12 ${(10 << 8) | 1}`]: 'find out the nft tables',
  [`12 ${(10 << 8) | 4}`]: 'find out the nft chains',
  [`12 ${(10 << 8) | 7}`]: 'find out the nft rules',
  [`12 ${(10 << 8) | 10}`]: 'find out the nft sets',
  [`12 ${(10 << 8) | 13}`]: 'find out the elements of an nft set',
  [`12 ${(10 << 8) | 16}`]: 'find out the generation of the nft rules',
  [`12 ${(10 << 8) | 19}`]: 'find out an nft counter',
}

/** The kernel has not answered, or refuses. What was asked about may be there or not. */
export class NoAnswer extends CniError {
  override name = 'NoAnswer'
  /** The errno with which the kernel refuses. Undefined when its answer did not come whole. */
  readonly errno: number | undefined
  constructor(protocol: number, request: Uint8Array, why: string | number) {
    const type = request.length < NLMSG_HEADER ? 0 : viewOf(request).getUint16(TYPE, true)
    const purpose = `Cannot ${PURPOSES[`${protocol} ${type}`] ?? `ask the kernel (netlink ${protocol}, type ${type})`}`
    if (typeof why === 'string')
      super(CODE.tryLater, `${purpose}: the kernel's answer did not come whole: ${why}`, 'nothing counts as absent')
    else super(CODE.io, `${purpose}: the kernel refuses: ${named(why)}`, 'nothing counts as absent')
    this.errno = typeof why === 'string' ? undefined : why
  }
}

/** A whole answer. `errno` is the refusal of the kernel, or 0. */
export interface Whole {
  readonly messages: readonly DataView[]
  readonly errno: number
}

/** Whether a request asks for a list, whose end the kernel marks. Any other request has one message as its answer. */
export function isList(request: Uint8Array): boolean {
  return ((request[HIGH_FLAGS] as number) & DUMP) === DUMP
}

/** Receives the answer on a socket. The kernel has it ready, so this never waits. A text says why it is not whole. */
export function answerOn(fd: number, list: boolean): Whole | string {
  const messages: DataView[] = []
  for (;;) {
    const piece = receive(fd)
    if (typeof piece === 'string') return piece
    const end = readPiece(piece, list, messages)
    if (end !== undefined) return typeof end === 'string' ? end : { messages, errno: end }
  }
}

/**
 * Adds the objects in a piece of an answer to `into`. Returns the errno at the end of the answer, 0 without an error,
 * undefined when more pieces follow, and a text when the answer is not whole. Pure.
 */
export function readPiece(piece: DataView, list: boolean, into: DataView[]): number | string | undefined {
  const length = piece.byteLength
  for (let at = 0, size = 0; at < length; at += (size + 3) & ~3) {
    size = at + NLMSG_HEADER <= length ? piece.getUint32(at, true) : 0
    if (size < NLMSG_HEADER || at + size > length) return 'a message is cut off'
    // The type, and the flags in the upper half. One look for each of a hundred messages is the cheapest.
    const word = piece.getUint32(at + TYPE, true)
    if (word & NLM_F_DUMP_INTR) return 'it changed while the kernel listed it'
    const type = word & 0xffff
    if (type >= NLMSG_MIN_TYPE) {
      into.push(new DataView(piece.buffer, piece.byteOffset + at, size))
      if (!list) return 0
    } else if (type === NLMSG_ERROR || type === NLMSG_DONE) {
      // An old kernel ends a list without an errno.
      const errno = size < WITH_ERRNO ? 0 : -piece.getInt32(at + NLMSG_HEADER, true)
      return HINDRANCES.includes(errno) ? named(errno) : Math.max(0, errno)
    } else if (type === NLMSG_OVERRUN) return 'messages are lost'
  }
  return undefined
}

// All answers share one buffer. A new buffer costs the kernel eight pages that it has to find.
let buffer: Uint8Array<ArrayBuffer> | undefined

/** What one recv(2) gives, in a buffer of its own. A text says why it gives nothing: mostly the name of an errno. */
export function receive(fd: number): DataView | string {
  buffer ??= new Uint8Array(USUAL_BYTES)
  for (;;) {
    // With MSG_TRUNC the kernel returns the whole length, also of what does not fit.
    const length = Number(libc().recv(fd, buffer, BigInt(buffer.length), MSG_DONTWAIT | MSG_TRUNC))
    if (length > buffer.length) {
      // The next try has the room.
      buffer = new Uint8Array(length)
      return 'it is larger than the buffer'
    }
    if (length > 0) return new DataView(buffer.buffer.slice(0, length))
    if (length === 0) return 'the socket ended'
    const { code, meaning } = lastError()
    if (code === 'EAGAIN') return NOTHING
    if (code !== 'EINTR') return `${code} (${meaning})`
  }
}

/** What `receive` returns when no message has arrived. */
export const NOTHING = 'EAGAIN (no message has arrived)'

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function named(errno: number): string {
  const [name, meaning] = ERRORS[errno] ?? []
  return name === undefined ? `errno ${errno}` : `${name} (${meaning})`
}
