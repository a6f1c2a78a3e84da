import { contains, networkOf } from '../text/cidr.ts'
import { shown, ValueError } from '../text/errors.ts'
import { bitsOf, type Cidr, format, type Ip, split } from '../text/ip.ts'

/**
 * A range as configured, with host-local's keys. The start and the end lie in `subnet`. The gateway may lie elsewhere,
 * as upstream allows.
 */
export interface RangeConf {
  readonly subnet: Cidr
  readonly rangeStart?: Ip | undefined
  readonly rangeEnd?: Ip | undefined
  readonly gateway?: Ip | undefined
}
/**
 * A set as configured. `at` is its key, such as `ipam.ranges[0]`. `flat` means host-local's old style: a single range
 * directly in that key.
 */
export interface SetConf {
  readonly at: string
  readonly ranges: readonly RangeConf[]
  readonly flat?: true
}
/**
 * A checked range. `first` and `last` are the first and last number that may be given out. They are never the network
 * address, and never the broadcast address of IPv4, except in a /31 or /127. The gateway may lie between them.
 */
interface Range {
  readonly at: string
  readonly subnet: Cidr
  readonly family: 4 | 6
  readonly first: bigint
  readonly last: bigint
  readonly gateway: Ip
}
/** The ranges for one address of an attachment. The gateways in them are never given out. */
export interface RangeSet {
  readonly ranges: readonly Range[]
  readonly gateways: ReadonlySet<Ip>
}

/**
 * Checks range sets and fills in missing keys, as host-local does. `wanted` are the requested addresses. A /31 or /127
 * is usable only on request (RFC 3021, RFC 6164): by a requested address, or by rangeStart or rangeEnd. Throws
 * ValueError that names the key.
 */
export function readRangeSets(confs: readonly SetConf[], wanted: readonly Ip[] = []): readonly RangeSet[] {
  const sets = confs.map((conf) => readSet(conf, wanted))
  refuseOverlap(sets.flat())
  const gateways = new Set(sets.flat().map((range) => range.gateway))
  return sets.map((ranges, i) => {
    const set = { ranges, gateways }
    if (capacity(set) === 0n) {
      const subnets = ranges.map(({ subnet }) => subnet).join(',')
      const wish = 'want a range that holds more than its gateway, network and broadcast address'
      throw new ValueError(`Cannot read ${confs[i]?.at} (${subnets}): ${wish}`)
    }
    return set
  })
}

/**
 * The first free address of a set. The search begins after `after` and goes round to it. It begins at the first address
 * when `after` is not in the set. Calls `isFree` once per address.
 */
export function search(
  { ranges, gateways }: RangeSet,
  after: Ip | undefined,
  isFree: (ip: Ip) => boolean,
): Ip | undefined {
  for (const { family, first, last } of roundFrom(ranges, after)) {
    for (let bits = first; bits <= last; bits++) {
      const ip = format({ family, bits })
      if (!gateways.has(ip) && isFree(ip)) return ip
    }
  }
  return undefined
}

function roundFrom(ranges: readonly Range[], after: Ip | undefined): readonly Range[] {
  if (after === undefined) return ranges
  const start = ranges.findIndex((range) => holds(range, after))
  const range = ranges[start]
  if (range === undefined) return ranges
  const { bits } = bitsOf(after)
  const others = [...ranges.slice(start + 1), ...ranges.slice(0, start)]
  return [{ ...range, first: bits + 1n }, ...others, { ...range, last: bits }]
}

/** The number of addresses that a set can give out. */
export function capacity(set: RangeSet): bigint {
  let all = 0n
  for (const { first, last } of set.ranges) if (last >= first) all += last - first + 1n
  return all - BigInt([...set.gateways].filter((ip) => rangeOf(set, ip)).length)
}

/** The range of a set that contains an address. The address may be the gateway. */
export function rangeOf(set: RangeSet, ip: Ip): Range | undefined {
  return set.ranges.find((range) => holds(range, ip))
}

/** The text for a set in messages, as host-local writes it: `10.1.0.1-10.1.0.254,10.2.0.10-10.2.0.20`. */
export function describe(set: Pick<RangeSet, 'ranges'>): string {
  return set.ranges
    .map(({ family, first, last }) => `${format({ family, bits: first })}-${format({ family, bits: last })}`)
    .join(',')
}

function readSet({ at, ranges, flat }: SetConf, wanted: readonly Ip[]): Range[] {
  const [head, ...others] = ranges.map((range, i) => readRange(range, flat ? at : `${at}[${i}]`, wanted))
  if (!head) throw new ValueError(`Cannot read ${at} []: want at least one range`)
  const stranger = others.find(({ family }) => family !== head.family)
  if (stranger) {
    const wish = `want IPv${head.family} as in ${head.at}; a set gives one address`
    throw new ValueError(`Cannot read ${stranger.at}.subnet "${stranger.subnet}": ${wish}`)
  }
  return [head, ...others]
}

function readRange(conf: RangeConf, at: string, wanted: readonly Ip[]): Range {
  const { subnet } = conf
  const { family, length, bits, first, last } = split(subnet)
  if (bits !== first)
    throw new ValueError(
      `Cannot read ${at}.subnet "${subnet}": want a network without host bits, here ${networkOf(subnet)}`,
    )
  const longest = family === 4 ? 30 : 126
  const pair = length === longest + 1
  const asked =
    conf.rangeStart !== undefined || conf.rangeEnd !== undefined || wanted.some((ip) => contains(subnet, ip))
  if (length > longest && !(pair && asked)) {
    const hint = pair ? '; with rangeStart or rangeEnd both its addresses count' : ''
    const wish = `want a /${longest} or wider, it is too small to allocate from${hint}`
    throw new ValueError(`Cannot read ${at}.subnet "${subnet}": ${wish}`)
  }
  const low = pair ? first : first + 1n
  const high = pair || family === 6 ? last : last - 1n
  const from = bound(conf, at, 'rangeStart') ?? first
  const to = bound(conf, at, 'rangeEnd') ?? last
  if (from > to) {
    const wish = `want an address not before rangeStart, ${format({ family, bits: from })}`
    throw new ValueError(`Cannot read ${at}.rangeEnd "${format({ family, bits: to })}": ${wish}`)
  }
  // In a /31 or /127 the gateway is the address that was not requested.
  const lower = pair && (from === last || wanted.includes(format({ family, bits: last })))
  const gateway = conf.gateway ?? format({ family, bits: lower ? first : first + 1n })
  return { at, subnet, family, first: from < low ? low : from, last: to > high ? high : to, gateway }
}

function bound(conf: RangeConf, at: string, key: 'rangeStart' | 'rangeEnd'): bigint | undefined {
  const ip = conf[key]
  if (ip !== undefined && !contains(conf.subnet, ip))
    throw new ValueError(`Cannot read ${at}.${key} ${shown(ip)}: want an address in ${conf.subnet}`)
  return ip === undefined ? undefined : bitsOf(ip).bits
}

// In a sorted list, overlapping ranges stand side by side, or a neighbour overlaps, too.
function refuseOverlap(ranges: readonly Range[]): void {
  const sorted = ranges
    .filter(({ first, last }) => first <= last)
    .sort((a, b) => a.family - b.family || (a.first < b.first ? -1 : 1))
  for (const [i, range] of sorted.entries()) {
    const before = sorted[i - 1]
    if (!before || before.family !== range.family || before.last < range.first) continue
    const [late, early] = ranges.indexOf(before) < ranges.indexOf(range) ? [range, before] : [before, range]
    const wish = `want a range that does not overlap ${early.at} (${describe({ ranges: [early] })})`
    throw new ValueError(`Cannot read ${late.at} (${describe({ ranges: [late] })}): ${wish}`)
  }
}

function holds(range: Range, ip: Ip): boolean {
  const { family, bits } = bitsOf(ip)
  return family === range.family && bits >= range.first && bits <= range.last
}
