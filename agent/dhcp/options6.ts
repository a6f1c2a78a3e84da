import { joined, numberOf } from './bytes.ts'

/** Options with their numbers, in order. An option can occur several times. */
export type Options6 = readonly (readonly [code: number, value: Uint8Array])[]

/** The numbers of the options that the client reads or writes (RFC 8415 section 21, RFC 3646). */
export const OPTION6 = {
  client: 1,
  server: 2,
  association: 3,
  address: 5,
  request: 6,
  preference: 7,
  elapsed: 8,
  status: 13,
  rapid: 14,
  dns: 23,
  search: 24,
} as const

/** The value of the first option with this number. Undefined when there is none. */
export function option6(options: Options6, code: number): Uint8Array | undefined {
  return options.find(([one]) => one === code)?.[1]
}

/** Encodes options, one after the other. */
export function encodeOptions(options: Options6): Uint8Array {
  return joined(...options.map(([code, value]) => joined([code, 2], [value.length, 2], value)))
}

/** Decodes options. Undefined when an option is truncated. */
export function readOptions(area: Uint8Array): Options6 | undefined {
  const options: [number, Uint8Array][] = []
  for (let at = 0; at < area.length; ) {
    if (at + 4 > area.length) return undefined
    const length = numberOf(area.subarray(at + 2, at + 4))
    if (at + 4 + length > area.length) return undefined
    options.push([numberOf(area.subarray(at, at + 2)), area.slice(at + 4, at + 4 + length)])
    at += 4 + length
  }
  return options
}
