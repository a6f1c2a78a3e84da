import { shown, ValueError } from './errors.ts'

/** An IP address in canonical text: dotted quad, or RFC 5952. */
export type Ip = string & { readonly __brand: 'Ip' }
/** An address with its prefix length, host bits kept: `10.1.2.3/24`. */
export type Cidr = string & { readonly __brand: 'Cidr' }
/** The number of an address, and its family. Family 4 has 32 bits, family 6 has 128 bits. */
export interface Bits {
  readonly family: 4 | 6
  readonly bits: bigint
}

/**
 * Converts address text to its canonical form. Strict like Go's net.ParseIP: no leading zeros, no zone. An IPv4-mapped
 * IPv6 address becomes its IPv4 address, as in Go. Throws ValueError.
 */
export function parseIp(text: unknown): Ip {
  const found = typeof text === 'string' ? read(text) : undefined
  if (!found) throw new ValueError(`${shown(text)}: want an IP address such as 10.1.0.2 or fd00::2`)
  return format(found)
}

/** Converts `address/length` to its canonical form and keeps the host bits. Throws ValueError. */
export function parseCidr(text: unknown): Cidr {
  const slash = typeof text === 'string' ? text.indexOf('/') : -1
  const found = slash < 0 ? undefined : read((text as string).slice(0, slash))
  const length = found && decimal((text as string).slice(slash + 1), width(found.family))
  if (!found || length === undefined)
    throw new ValueError(`${shown(text)}: want an address with a prefix length such as 10.1.0.0/24 or fd00::/64`)
  return `${format(found)}/${length}` as Cidr
}

/** The number of a parsed address, or of the address part of a Cidr. */
export function bitsOf(value: Ip | Cidr): Bits {
  const slash = value.indexOf('/')
  return read(slash < 0 ? value : value.slice(0, slash)) as Bits
}

/** An address as its bytes in network order: 4 or 16. */
export function bytesOf(ip: Ip): Uint8Array {
  const { family, bits } = bitsOf(ip)
  const size = family === 4 ? 4 : 16
  return Uint8Array.from({ length: size }, (_, i) => Number((bits >> BigInt(8 * (size - 1 - i))) & 0xffn))
}

/** An IPv6 address as nft writes raw bytes of a packet: `0x`, and 32 hexadecimal digits. */
export function bits128(ip: Ip): string {
  return `0x${bitsOf(ip).bits.toString(16).padStart(32, '0')}`
}

/** The address of a number. The caller keeps the number within the family's width. */
export function format({ family, bits }: Bits): Ip {
  return (family === 4 ? format4(Number(bits)) : format6(bits)) as Ip
}

/** The parts of a Cidr: the address, the prefix length, and the first and last number of its network. */
export function split(
  cidr: Cidr,
): Bits & { readonly ip: Ip; readonly length: number; readonly first: bigint; readonly last: bigint } {
  const slash = cidr.indexOf('/')
  const length = Number(cidr.slice(slash + 1))
  const own = bitsOf(cidr)
  const host = BigInt(width(own.family) - length)
  const first = (own.bits >> host) << host
  return { ...own, ip: cidr.slice(0, slash) as Ip, length, first, last: first | ((1n << host) - 1n) }
}

function width(family: 4 | 6): number {
  return family === 4 ? 32 : 128
}

function read(text: string): Bits | undefined {
  if (text.length > 45) return undefined
  return text.includes(':') ? read6(text) : read4(text)
}

function read4(text: string): Bits | undefined {
  const parts = text.split('.')
  if (parts.length !== 4) return undefined
  let bits = 0
  for (const part of parts) {
    const byte = decimal(part, 255)
    if (byte === undefined) return undefined
    bits = bits * 256 + byte
  }
  return { family: 4, bits: BigInt(bits) }
}

// Accepts at most three digits, no leading zero, and values up to `most`.
function decimal(text: string, most: number): number | undefined {
  return /^(?:0|[1-9]\d{0,2})$/.test(text) && Number(text) <= most ? Number(text) : undefined
}

function read6(text: string): Bits | undefined {
  const dotted = /^(.*:)([^:]*\.[^:]*)$/.exec(text)
  const tail = dotted ? read4(dotted[2] as string) : undefined
  if (dotted && !tail) return undefined
  const groups = tail ? `${dotted?.[1]}${(tail.bits >> 16n).toString(16)}:${(tail.bits & 0xffffn).toString(16)}` : text
  const halves = groups.split('::')
  if (halves.length > 2) return undefined
  const [head = [], rest = []] = halves.map((half) => (half === '' ? [] : half.split(':')))
  const missing = 8 - head.length - rest.length
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined
  let bits = 0n
  for (const group of [...head, ...Array<string>(missing).fill('0'), ...rest]) {
    if (!/^[0-9a-fA-F]{1,4}$/.test(group)) return undefined
    bits = (bits << 16n) | BigInt(`0x${group}`)
  }
  return bits >> 32n === 0xffffn ? { family: 4, bits: bits & 0xffffffffn } : { family: 6, bits }
}

function format4(n: number): string {
  return `${n >>> 24}.${(n >>> 16) & 255}.${(n >>> 8) & 255}.${n & 255}`
}

// RFC 5952: lower case and no leading zeros. The longest run of two or more zero groups becomes "::". Of equal runs the
// first is chosen.
function format6(bits: bigint): string {
  const groups = Array.from({ length: 8 }, (_, i) => Number((bits >> BigInt(112 - 16 * i)) & 0xffffn))
  let [start, length] = [0, 1]
  for (let i = 0, run = 0; i < 8; i++) {
    run = groups[i] === 0 ? run + 1 : 0
    if (run > length) [start, length] = [i - run + 1, run]
  }
  const hex = (some: number[]) => some.map((group) => group.toString(16)).join(':')
  return length < 2 ? hex(groups) : `${hex(groups.slice(0, start))}::${hex(groups.slice(start + length))}`
}
