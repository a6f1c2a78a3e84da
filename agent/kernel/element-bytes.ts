import { bitsOf, format, parseIp } from '../../lib/text/ip.ts'

/**
 * The type of one part of a key or a value, by nft's name. `slot` is the result of `numgen`, and `bits128` are raw bytes
 * of a packet. nft has no names for them.
 */
export type Datatype =
  | 'ipv4_addr'
  | 'ipv6_addr'
  | 'bits128'
  | 'inet_proto'
  | 'inet_service'
  | 'mark'
  | 'slot'
  | 'ifname'

/** The kernel's codes of verdicts (linux/netfilter/nf_tables.h and nft(8)). */
const VERDICTS: Readonly<Record<string, number>> = { drop: 0, accept: 1, continue: -1, return: -5, jump: -3, goto: -4 }
const PROTOCOLS: Readonly<Record<string, number>> = { icmp: 1, tcp: 6, udp: 17, 'ipv6-icmp': 58, sctp: 132 }
const IFNAMSIZ = 16
/** Each part of a concatenation begins at a new register of 4 bytes. */
const REGISTER = 4
const utf8 = new TextEncoder()

/** Converts one datatype between the kernel's bytes and nft's text. */
interface Codec {
  /** The number of bytes, without the padding of a register. */
  readonly size: number
  write(text: string): Uint8Array
  read(bytes: Uint8Array): string
}

const CODECS: Readonly<Record<Datatype, Codec>> = {
  ipv4_addr: {
    size: 4,
    write: (text) => address(text, 4),
    read: (bytes) => format({ family: 4, bits: numberOf(bytes) }),
  },
  ipv6_addr: {
    size: 16,
    write: (text) => address(text, 16),
    read: (bytes) => format({ family: 6, bits: numberOf(bytes) }),
  },
  bits128: {
    size: 16,
    write: (text) => Uint8Array.from({ length: 16 }, (_, i) => Number(`0x${text.slice(2 + 2 * i, 4 + 2 * i)}`)),
    read: (bytes) => `0x${[...bytes].map((one) => one.toString(16).padStart(2, '0')).join('')}`,
  },
  inet_proto: {
    size: 1,
    write: (text) => Uint8Array.of(PROTOCOLS[text] ?? Number(text)),
    read: ([number = 0]) => Object.keys(PROTOCOLS).find((name) => PROTOCOLS[name] === number) ?? String(number),
  },
  inet_service: {
    size: 2,
    write: (text) => Uint8Array.of(Number(text) >> 8, Number(text) & 0xff),
    read: (bytes) => String(numberOf(bytes)),
  },
  // The kernel uses the byte order of the machine. All machines that plumb runs on are little-endian.
  mark: {
    size: 4,
    write: (text) => new Uint8Array(Uint32Array.of(Number(text)).buffer),
    read: (bytes) => `0x${numberOf(bytes.toReversed()).toString(16).padStart(8, '0')}`,
  },
  slot: {
    size: 4,
    write: (text) => new Uint8Array(Uint32Array.of(Number(text)).buffer),
    read: (bytes) => String(numberOf(bytes.toReversed())),
  },
  ifname: {
    size: IFNAMSIZ,
    write: (text) => padded(utf8.encode(text.replace(/^"(.*)"$/, '$1')), IFNAMSIZ),
    read: (bytes) => `"${String.fromCharCode(...bytes).replace(/\0.*$/s, '')}"`,
  },
}

/**
 * Gives a function that converts keys or values of these types from nft's text, such as `10.1.2.3 . tcp . 80`, to the
 * kernel's bytes (libnftnl, `NFTA_DATA_VALUE`). Its result is a string with one character per byte, for comparison. It
 * throws RangeError for a wrong number of parts. It remembers each part, because the keys of a map share most parts.
 */
export function encoder(types: readonly Datatype[]): (text: string) => string {
  const known = types.map((type) => ({ type, parts: new Map<string, string>() }))
  return (text) => {
    const parts = text.split(' . ')
    if (parts.length !== types.length)
      throw new RangeError(`Cannot read ${JSON.stringify(text)} as ${types.join(' . ')}`)
    let bytes = ''
    for (const [i, one] of known.entries()) {
      const part = parts[i] as string
      const found = one.parts.get(part) ?? latin1(align(CODECS[one.type].write(part), types.length > 1))
      one.parts.set(part, found)
      bytes += found
    }
    return bytes
  }
}

/** Converts the result of `encoder` back to text, as nft prints it. */
export function textOfBytes(bytes: string, types: readonly Datatype[]): string {
  let at = 0
  const parts = types.map((type) => {
    const { size, read } = CODECS[type]
    const part = Uint8Array.from(bytes.slice(at, at + size), (one) => one.charCodeAt(0))
    at += Math.ceil(size / REGISTER) * REGISTER
    return read(part)
  })
  return parts.join(' . ')
}

/**
 * Converts the verdict of a verdict map's element to the form of `verdict`: its code, and the chain of a jump or goto.
 * Throws RangeError.
 */
export function verdictOf(text: string): string {
  const [word = '', chain = ''] = text.split(' ')
  const code = VERDICTS[word]
  if (code === undefined) throw new RangeError(`Cannot read the verdict ${JSON.stringify(text)}`)
  return verdict(code, chain)
}

/** The text form of a verdict that the kernel reports. */
export function verdict(code: number, chain: string): string {
  return `${code} ${chain}`
}

/** Bytes as a string with one character per byte. */
export function latin1(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += String.fromCharCode(byte)
  return text
}

function address(text: string, size: number): Uint8Array {
  const bytes = new Uint8Array(size)
  let { bits } = bitsOf(parseIp(text))
  for (let at = size - 1; at >= 0; at--, bits >>= 8n) bytes[at] = Number(bits & 0xffn)
  return bytes
}

function numberOf(bytes: Uint8Array): bigint {
  return bytes.reduce((bits, byte) => (bits << 8n) | BigInt(byte), 0n)
}

function align(bytes: Uint8Array, isPart: boolean): Uint8Array {
  return isPart ? padded(bytes, Math.ceil(bytes.length / REGISTER) * REGISTER) : bytes
}

function padded(bytes: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size)
  out.set(bytes.subarray(0, size))
  return out
}
