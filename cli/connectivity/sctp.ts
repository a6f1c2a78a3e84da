import { type Ip, parseIp } from '../../lib/text/ip.ts'

// The two messages that begin an association of SCTP (RFC 9260): INIT, and its answer INIT ACK. Many kernels have no
// sockets for SCTP, so these messages go through raw sockets.

/** The number of SCTP in the IP header. */
export const SCTP = 132

const [HEADER, CHUNK, INIT_BYTES, PARAMETER] = [12, 4, 20, 4]
const [INIT, INIT_ACK, ABORT] = [1, 2, 6]
/** The parameter that an INIT ACK must have (RFC 9260, 3.3.3). */
const STATE_COOKIE = 7
/** What the cookie of an echo server begins with. The address of the client follows. */
const MARK = 'plumb '
const WINDOW = 65_536

/** The first message of an association. */
export interface Init {
  readonly sourcePort: number
  readonly port: number
  /** The initiate tag. The answer has it as its verification tag. Not 0. */
  readonly tag: number
}
/** What came back for an INIT. */
export interface InitAnswer {
  /** `INIT ACK` comes from an echo server, `ABORT` from a kernel with SCTP of its own. */
  readonly kind: 'INIT ACK' | 'ABORT'
  /** The client's address, as the echo server saw it. */
  readonly saw?: Ip
}

/** An INIT without parameters, with its checksum. */
export function initMessage({ sourcePort, port, tag }: Init): Uint8Array {
  return message(sourcePort, port, 0, chunk(INIT, tag, new Uint8Array()))
}

/** The INIT ACK for an INIT. Its cookie has the address of the client. */
export function answerMessage({ sourcePort, port, tag }: Init, client: Ip): Uint8Array {
  const cookie = Buffer.from(`${MARK}${client}`)
  // A parameter is filled with zeros to a multiple of four bytes. Its length does not count them.
  const parameter = Buffer.alloc(PARAMETER + Math.ceil(cookie.length / 4) * 4)
  parameter.writeUInt16BE(STATE_COOKIE, 0)
  parameter.writeUInt16BE(PARAMETER + cookie.length, 2)
  parameter.set(cookie, PARAMETER)
  return message(port, sourcePort, tag, chunk(INIT_ACK, tag, parameter))
}

/** Reads an INIT. Undefined for any other message, and for a damaged one. */
export function readInit(bytes: Uint8Array): Init | undefined {
  if (bytes.length < HEADER + INIT_BYTES) return undefined
  const view = viewOf(bytes)
  const length = view.getUint16(HEADER + 2)
  if (view.getUint8(HEADER) !== INIT || length < INIT_BYTES || HEADER + length > bytes.length) return undefined
  const tag = view.getUint32(HEADER + CHUNK)
  // An INIT has the verification tag 0 (RFC 9260, 8.5.1), and its own tag is not 0 (3.3.2).
  if (view.getUint32(4) !== 0 || tag === 0 || view.getUint32(8, true) !== checksumOf(bytes)) return undefined
  return { sourcePort: view.getUint16(0), port: view.getUint16(2), tag }
}

/**
 * Reads the answer to an INIT. Undefined for all that does not have its ports and its tag. The checksum is not looked
 * at: a kernel leaves that of an ABORT to the link, and a virtual link does not fill it in.
 */
export function readAnswer(bytes: Uint8Array, { sourcePort, port, tag }: Init): InitAnswer | undefined {
  if (bytes.length < HEADER + CHUNK) return undefined
  const view = viewOf(bytes)
  if (view.getUint16(0) !== port || view.getUint16(2) !== sourcePort || view.getUint32(4) !== tag) return undefined
  const kind = view.getUint8(HEADER)
  if (kind === ABORT) return { kind: 'ABORT' }
  return kind === INIT_ACK ? answerOf(bytes, view) : undefined
}

function answerOf(bytes: Uint8Array, view: DataView): InitAnswer | undefined {
  const at = HEADER + INIT_BYTES
  if (bytes.length < at + PARAMETER || view.getUint16(at) !== STATE_COOKIE) return undefined
  const cookie = Buffer.from(bytes.subarray(at + PARAMETER, at + view.getUint16(at + 2))).toString()
  try {
    return cookie.startsWith(MARK) ? { kind: 'INIT ACK', saw: parseIp(cookie.slice(MARK.length)) } : undefined
  } catch {
    return undefined
  }
}

// INIT and INIT ACK: type, flags, length, tag, window, the streams each way, the first number of the sender, parameters.
function chunk(type: number, tag: number, parameters: Uint8Array): Uint8Array {
  const bytes = Buffer.alloc(INIT_BYTES + parameters.length)
  bytes.writeUInt8(type, 0)
  bytes.writeUInt16BE(bytes.length, 2)
  bytes.writeUInt32BE(tag, 4)
  bytes.writeUInt32BE(WINDOW, 8)
  bytes.writeUInt16BE(1, 12)
  bytes.writeUInt16BE(1, 14)
  bytes.writeUInt32BE(1, 16)
  bytes.set(parameters, INIT_BYTES)
  return bytes
}

function message(sourcePort: number, port: number, verificationTag: number, chunk: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEADER + chunk.length)
  const view = viewOf(bytes)
  view.setUint16(0, sourcePort)
  view.setUint16(2, port)
  view.setUint32(4, verificationTag)
  bytes.set(chunk, HEADER)
  view.setUint32(8, checksumOf(bytes), true)
  return bytes
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

// CRC32c of the message with its checksum set to 0 (RFC 9260, appendix A).
function checksumOf(bytes: Uint8Array): number {
  let crc = 0xffff_ffff
  for (const [i, byte] of bytes.entries()) {
    crc ^= i >= 8 && i < HEADER ? 0 : byte
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f6_3b78 : crc >>> 1
  }
  return (crc ^ 0xffff_ffff) >>> 0
}
