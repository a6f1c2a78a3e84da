// The lines of JSON between the two halves of a trace. Their values reach nft, so both sides read them by these shapes.
import * as v from 'valibot'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import { HOPS } from './hops.ts'

/** How much of a wrong line an error shows, in letters. */
const LONGEST = 100
const whole = (most: number) => v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(most))
const ip = v.pipe(
  v.string(),
  v.transform((text): Ip => parseIp(text)),
)
const port = whole(0xffff)
const protocol = v.picklist(['TCP', 'UDP', 'ICMP'])
const endpoint = v.object({ ip, port })
const probe = v.object({
  protocol,
  source: ip,
  destination: ip,
  port,
  sourcePort: port,
  token: whole(0xffff_ffff),
  size: v.exactOptional(whole(0xffff)),
  real: v.exactOptional(v.object({ tokenAt: whole(8), number: port, bytes: whole(0xffff_ffff), isFirst: v.boolean() })),
})
const wish = v.object({
  protocol: v.exactOptional(protocol),
  source: ip,
  destination: ip,
  port: v.exactOptional(port),
  endpoints: v.pipe(v.array(endpoint), v.readonly()),
})
const outcome = v.object({ passes: v.boolean(), says: v.string(), key: v.exactOptional(v.string()) })
const outcomes = v.array(v.tuple([v.picklist(HOPS), outcome]))

/** What the other node is to follow: the packet that will be sent, or packets of programs. */
export const question = v.union([
  v.object({ probe, destinations: v.pipe(v.array(ip), v.readonly()) }),
  v.object({ wish, destinations: v.pipe(v.array(ip), v.readonly()) }),
])
/** The destination that the packet has there, and the packet. */
export const arrival = v.object({ ip, port, probe })
/** What the other node says of its hops. */
export const answer = v.object({ expected: outcomes, seen: outcomes })

/** Reads a line by its shape. Throws ValueError for any other line. */
export function read<Shape extends v.GenericSchema>(shape: Shape, line: string): v.InferOutput<Shape> {
  try {
    return v.parse(shape, JSON.parse(line))
  } catch (cause) {
    throw new ValueError(`Cannot read ${shown(line.slice(0, LONGEST))}: want a line of the other half of a trace`, {
      cause,
    })
  }
}
