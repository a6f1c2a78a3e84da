import * as v from 'valibot'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { bitsOf, type Cidr, format, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'
import { isDeep } from '../../lib/text/json.ts'
import { jsonPlace } from '../../lib/text/json-place.ts'
import { printable } from '../../lib/text/printable.ts'
import { field, read } from '../../lib/text/shape.ts'
import { MOST } from './lease.ts'

/**
 * The subnets of one family. Their network addresses have the prefix length `length`, from `min` to `max` inclusive.
 */
export interface Pool {
  readonly network: Cidr
  readonly length: number
  readonly min: Ip
  readonly max: Ip
}

/** The checked content of net-conf.json, with one pool for each enabled family. */
export interface NetworkConf {
  readonly v4?: Pool
  readonly v6?: Pool
  /** More networks that may contain the subnets of peers. Used while the cluster moves from one network to another. */
  readonly peers?: readonly Cidr[]
  /** `Backend`. Its Type is in lower case, with the default `vxlan`. `options` has the other keys unchanged. */
  readonly backend: { readonly type: string; readonly options: Readonly<Record<string, unknown>> }
  /** The value that flannel publishes. plumb always masquerades with nftables. */
  readonly enableNFTables: boolean
  /** Notes for the user about keys without a meaning and keys with another spelling. */
  readonly notes?: readonly string[]
}

/**
 * Reads net-conf.json by the rules of flannel's CheckNetworkConfig (pkg/subnet/config.go). The case of the keys does
 * not matter. Unknown keys give a note. Throws ValueError that names the key, the value and a correct value. It shows no
 * key of WireGuard, which may stand at a wrong place.
 */
export function parseNetworkConf(text: string): NetworkConf {
  try {
    return parsed(text)
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    throw new ValueError(cause.message.replace(SECRET, '(not shown)'), { cause })
  }
}

// 32 bytes in base64. A long value is cut in a message.
const SECRET = /[A-Za-z0-9+/]{20,43}(=|…)/g

function parsed(text: string): NetworkConf {
  const { value, notes } = read(shape, json(text))
  const families = FAMILIES.filter(({ on }) => value[on])
  if (families.length === 0)
    throw new ValueError('Cannot read EnableIPv4 and EnableIPv6: both are false; want true for one of them')
  const unused = FAMILIES.filter(({ on, network }) => !value[on] && value[network] !== undefined)
  const allNotes = [...notes, ...unused.map(({ on, network }) => `key ${shown(network)} is not used: ${on} is false`)]
  const { Type = '', ...options } = value.Backend
  // The agent compares the options with those in the store every minute.
  if (isDeep(options, DEEPEST))
    throw new ValueError('Cannot read Backend: it is nested too deep; want an object such as {"Type": "vxlan"}')
  return {
    ...Object.fromEntries(families.map((family) => [family.name, pool(family, value)])),
    ...(value.PeerNetworks.length > 0 && { peers: value.PeerNetworks.map(masked) }),
    // Without a Type, flannel's code takes udp, and flannel's documentation promises vxlan.
    backend: { type: Type.toLowerCase() || 'vxlan', options },
    enableNFTables: value.EnableNFTables,
    ...(allNotes.length > 0 && { notes: allNotes }),
  }
}

/** The text of net-conf.json for a configuration. Parsed again, it gives the same configuration without the notes. */
export function formatNetworkConf({ v4, v6, peers = [], backend, enableNFTables }: NetworkConf): string {
  return JSON.stringify({
    EnableIPv4: v4 !== undefined,
    EnableIPv6: v6 !== undefined,
    ...(v4 && { Network: v4.network, SubnetLen: v4.length, SubnetMin: v4.min, SubnetMax: v4.max }),
    ...(v6 && { IPv6Network: v6.network, IPv6SubnetLen: v6.length, IPv6SubnetMin: v6.min, IPv6SubnetMax: v6.max }),
    ...(peers.length > 0 && { PeerNetworks: peers }),
    EnableNFTables: enableNFTables,
    Backend: { Type: backend.type, ...backend.options },
  })
}

/**
 * The keys in which two configurations differ, such as `PeerNetworks` or `Backend.MTU`. Limits of subnets that only
 * follow from another network are left out.
 */
export function changedKeys(before: NetworkConf, now: NetworkConf): string[] {
  const [old, fresh] = [flat(before), flat(now)]
  const keys = [...new Map([...old, ...fresh]).keys()].filter((key) => old.get(key)?.json !== fresh.get(key)?.json)
  const names = keys.map((key) => (fresh.get(key) ?? old.get(key))?.name as string)
  const derived = FAMILIES.flatMap(({ network, len, min, max }) =>
    names.includes(network) || names.includes(len) ? [min, max] : [],
  ) as string[]
  return names.filter((name) => !derived.includes(name))
}

/** Keys that nodes may have unlike for a while, so that each node takes a change at once. */
export const LIVE_KEYS: readonly string[] = ['PeerNetworks', 'EnableNFTables']

// The values by their keys in lower case, as `Backend` has its keys in any case.
function flat(conf: NetworkConf): Map<string, { readonly name: string; readonly json: string }> {
  const { Backend, ...rest } = JSON.parse(formatNetworkConf(conf)) as Record<string, unknown>
  const all = [
    ...Object.entries(rest),
    ...Object.entries(Backend as object).map(([key, value]) => [`Backend.${key}`, value]),
  ]
  return new Map(
    all.map(([name, value]) => [String(name).toLowerCase(), { name: String(name), json: JSON.stringify(value) }]),
  )
}

/** The networks that pod addresses of the cluster may belong to. */
export function networksOf({ v4, v6, peers = [] }: Pick<NetworkConf, 'v4' | 'v6' | 'peers'>): readonly Cidr[] {
  return [...(v4 ? [v4.network] : []), ...(v6 ? [v6.network] : []), ...peers]
}

/**
 * The differences between the families: names of the keys, and lengths from the rules of flannel. `usual` is the length
 * of a node subnet when the network has room for four such subnets. `longest` is the longest length with room for the
 * addresses of a tunnel and a bridge.
 */
interface Family {
  readonly name: 'v4' | 'v6'
  readonly family: 4 | 6
  readonly width: number
  readonly usual: number
  readonly longest: number
  readonly on: 'EnableIPv4' | 'EnableIPv6'
  readonly network: 'Network' | 'IPv6Network'
  readonly len: 'SubnetLen' | 'IPv6SubnetLen'
  readonly min: 'SubnetMin' | 'IPv6SubnetMin'
  readonly max: 'SubnetMax' | 'IPv6SubnetMax'
  readonly example: string
}
const V4: Family = {
  name: 'v4',
  family: 4,
  width: 32,
  usual: 24,
  longest: 30,
  on: 'EnableIPv4',
  network: 'Network',
  len: 'SubnetLen',
  min: 'SubnetMin',
  max: 'SubnetMax',
  example: '10.244.0.0/16',
}
const V6: Family = {
  name: 'v6',
  family: 6,
  width: 128,
  usual: 64,
  longest: 126,
  on: 'EnableIPv6',
  network: 'IPv6Network',
  len: 'IPv6SubnetLen',
  min: 'IPv6SubnetMin',
  max: 'IPv6SubnetMax',
  example: 'fd00:10:244::/48',
}
const FAMILIES: readonly Family[] = [V4, V6]
const DEEPEST = 8

const shape = v.object({
  EnableIPv4: v.optional(field.flag, true),
  EnableIPv6: v.optional(field.flag, false),
  EnableNFTables: v.optional(field.flag, false),
  PeerNetworks: v.optional(v.array(field.cidr), []),
  ...keys(V4),
  ...keys(V6),
  Backend: v.optional(v.looseObject({ Type: v.exactOptional(field.text) }), {}),
})
type Conf = v.InferOutput<typeof shape>

function keys<F extends Family>({ network, len, min, max, width, family, example }: F) {
  const address = field.by((value) => inFamily(parseIp, value, family, `an IPv${family} address`))
  const wanted = `an IPv${family} network such as ${example}`
  return {
    [network]: v.exactOptional(field.by((value) => masked(inFamily(parseCidr, value, family, wanted)))),
    [len]: v.optional(field.int(0, width), 0),
    [min]: v.exactOptional(address),
    [max]: v.exactOptional(address),
  } as Record<F['network'], v.ExactOptionalSchema<v.GenericSchema<unknown, Cidr>, undefined>> &
    Record<F['len'], v.GenericSchema<unknown, number>> &
    Record<F['min'] | F['max'], v.ExactOptionalSchema<v.GenericSchema<unknown, Ip>, undefined>>
}

function pool(family: Family, conf: Conf): Pool {
  const { width, len, min, max, on, example } = family
  const network = conf[family.network]
  if (network === undefined) {
    const want = `want a network such as ${example}, or "${on}": false`
    throw new ValueError(`Cannot read ${family.network}: it is missing; ${want}`)
  }
  const { first, last } = split(network)
  const length = subnetLength(family, network, conf[len])
  const size = 1n << BigInt(width - length)
  // Leaves out the first subnet, as flannel does. Its first address is the address of the network.
  const from = boundary(family, min, network, length, conf[min]) ?? first + size
  const to = boundary(family, max, network, length, conf[max]) ?? last + 1n - size
  const [lowest, highest] = [text(family, from), text(family, to)]
  if (from > to)
    throw new ValueError(`Cannot read ${max} ${shown(highest)}: want an address not before ${min}, ${lowest}`)
  return { network, length, min: lowest, max: highest }
}

// The subnet length is at least two bits longer than the network length. This gives four subnets. The first is unused.
function subnetLength({ network: key, len, usual, longest }: Family, network: Cidr, given: number): number {
  const least = split(network).length + 2
  if (least > longest) {
    const want = `want /${longest - 2} or shorter, room for four subnets of /${longest}`
    throw new ValueError(`Cannot read ${key} ${shown(network)}: ${want}`)
  }
  if (given === 0) return Math.max(usual, least)
  if (given < least || given > longest) {
    const reason = `so that ${network} has room for four subnets of two addresses and more`
    throw new ValueError(`Cannot read ${len} ${given}: want ${least} to ${longest}, ${reason}`)
  }
  return given
}

function boundary({ family }: Family, key: string, network: Cidr, length: number, given?: Ip): bigint | undefined {
  // flannel reads the zero address as absent.
  if (given === undefined || bitsOf(given).bits === 0n) return undefined
  const { bits } = bitsOf(given)
  const { first, last } = split(network)
  if (bits < first || bits > last)
    throw new ValueError(`Cannot read ${key} ${shown(given)}: want an address in ${network}`)
  const aligned = split(`${given}/${length}` as Cidr).first
  if (bits === aligned) return bits
  const wanted = format({ family, bits: aligned })
  throw new ValueError(`Cannot read ${key} ${shown(given)}: want the first address of a /${length}, here ${wanted}`)
}

function inFamily<T extends Ip | Cidr>(parse: (value: unknown) => T, value: unknown, family: 4 | 6, want: string): T {
  const wrong = new ValueError(`${shown(value)}: want ${want}`)
  try {
    const found = parse(value)
    if (bitsOf(found).family === family) return found
  } catch {
    throw wrong
  }
  throw wrong
}

function masked(cidr: Cidr): Cidr {
  const { family, first, length } = split(cidr)
  return `${format({ family, bits: first })}/${length}` as Cidr
}

function text({ family }: Family, bits: bigint): Ip {
  return format({ family, bits })
}

// The message does not show the text, because backend options may contain keys and passwords.
function json(text: string): unknown {
  const want = `want JSON such as {"Network": "${V4.example}"}`
  if (text.length > MOST)
    throw new ValueError(`Cannot read the network's configuration: it has more than ${MOST} characters; ${want}`)
  try {
    return JSON.parse(text)
  } catch (cause) {
    const where = jsonPlace(text) || printable((cause as Error).message)
    throw new ValueError(`Cannot read the network's configuration: ${want} (${where})`, { cause })
  }
}
