import type { Ip } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'
import { bytesOf, ipOf, joined, macBytes, numberOf } from './bytes.ts'

/** Options by number. The pieces of a split option are joined (RFC 3396). */
export type Options = ReadonlyMap<number, Uint8Array>
/** The fields of a DHCPv4 message that a client needs (RFC 2131 section 2). */
export interface Message4 {
  /** The message type (option 53). */
  readonly type: number
  readonly xid: number
  readonly secs?: number
  readonly broadcast?: boolean
  /** The client's current address, if it has one. */
  readonly ciaddr?: Ip
  /** The address that the server offers or assigns. */
  readonly yiaddr?: Ip
  readonly chaddr: Mac
  readonly options: Options
}

/** The message types (RFC 2132 section 9.6). */
export const TYPE4 = { discover: 1, offer: 2, request: 3, decline: 4, ack: 5, nak: 6, release: 7 } as const
/** The options that the client itself reads or writes. The configuration can request and provide others. */
export const OPTION4 = {
  mask: 1,
  router: 3,
  dns: 6,
  domain: 15,
  mtu: 26,
  static: 33,
  address: 50,
  lease: 51,
  overload: 52,
  type: 53,
  server: 54,
  request: 55,
  renewal: 58,
  rebinding: 59,
  client: 61,
  search: 119,
  classless: 121,
} as const

const [BOOT_REQUEST, BOOT_REPLY, ETHERNET, PAD, END] = [1, 2, 1, 0, 255]
const COOKIE = 0x63825363
const [HEADER, COOKIE_AT, SNAME_AT, FILE_AT] = [240, 236, 44, 108]
// The minimum length of a BOOTP message. Some servers drop shorter messages.
const LEAST = 300

/** Encodes a client's message. */
export function encode4({ type, xid, secs = 0, broadcast = false, ciaddr, chaddr, options }: Message4): Uint8Array {
  const none = new Uint8Array(4)
  const head = joined(
    BOOT_REQUEST,
    ETHERNET,
    6,
    0,
    [xid, 4],
    [secs, 2],
    [broadcast ? 0x8000 : 0, 2],
    ciaddr ? bytesOf(ciaddr) : none,
    none,
    none,
    none,
    macBytes(chaddr),
    new Uint8Array(10 + 64 + 128),
    [COOKIE, 4],
  )
  const all = [[OPTION4.type, joined(type)] as const, ...options].flatMap(([code, value]) =>
    pieces(value).map((piece) => joined(code, piece.length, piece)),
  )
  const text = joined(head, ...all, END)
  return text.length < LEAST ? joined(text, new Uint8Array(LEAST - text.length)) : text
}

// Splits an option of more than 255 bytes into pieces (RFC 3396).
function pieces(value: Uint8Array): Uint8Array[] {
  const length = Math.max(1, Math.ceil(value.length / 255))
  return Array.from({ length }, (_, i) => value.subarray(i * 255, (i + 1) * 255))
}

/** Decodes a server's message. Undefined for bytes that are not a DHCPv4 reply. */
export function decode4(bytes: Uint8Array): Message4 | undefined {
  const isReply = bytes[0] === BOOT_REPLY && bytes[1] === ETHERNET && bytes[2] === 6
  if (!isReply || bytes.length < HEADER) return undefined
  if (numberOf(bytes.subarray(COOKIE_AT, HEADER)) !== COOKIE) return undefined
  const options = new Map<number, Uint8Array>()
  read(bytes.subarray(HEADER), options)
  const overload = options.get(OPTION4.overload)?.[0] ?? 0
  if (overload & 1) read(bytes.subarray(FILE_AT, COOKIE_AT), options)
  if (overload & 2) read(bytes.subarray(SNAME_AT, FILE_AT), options)
  const [type, yiaddr] = [options.get(OPTION4.type), ipOf(bytes.slice(16, 20))]
  if (type?.length !== 1) return undefined
  const chaddr = [...bytes.subarray(28, 34)].map((byte) => byte.toString(16).padStart(2, '0')).join(':') as Mac
  return {
    type: type[0] as number,
    xid: numberOf(bytes.subarray(4, 8)),
    chaddr,
    options,
    ...(yiaddr === '0.0.0.0' ? {} : { yiaddr }),
  }
}

// Ignores a truncated option.
function read(area: Uint8Array, into: Map<number, Uint8Array>): void {
  for (let at = 0; at < area.length && area[at] !== END; ) {
    const code = area[at] as number
    if (code === PAD) {
      at++
      continue
    }
    const length = area[at + 1] ?? 0
    if (at + 2 + length > area.length) return
    into.set(code, joined(into.get(code) ?? new Uint8Array(), area.subarray(at + 2, at + 2 + length)))
    at += 2 + length
  }
}

/** Decodes an option's value as a list of addresses of `size` bytes. Ignores a rest that is too short for one. */
export function addressesIn(value: Uint8Array = new Uint8Array(), size: 4 | 16 = 4): Ip[] {
  const length = Math.floor(value.length / size)
  return Array.from({ length }, (_, i) => ipOf(value.slice(i * size, (i + 1) * size)))
}
