import * as v from 'valibot'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { bitsOf, type Cidr, format, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'
import { isDeep } from '../../lib/text/json.ts'
import { jsonPlace } from '../../lib/text/json-place.ts'
import { printable } from '../../lib/text/printable.ts'
import { field, read } from '../../lib/text/shape.ts'
import { MOST } from './limits.ts'

/** The subnets of one family: network addresses of `length` from `min` to `max`, both included. */
export interface Pool {
  readonly network: Cidr
  readonly length: number
  readonly min: Ip
  readonly max: Ip
}

/** net-conf.json, read and judged: a pool for each family that is on. */
export interface NetworkConf {
  readonly v4?: Pool
  readonly v6?: Pool
  /** Networks beside these two that peers' subnets may be of: while a network moves. */
  readonly peers?: readonly Cidr[]
  /** `Backend`: its Type in lower case, `vxlan` unless given, and the other keys as they came. */
  readonly backend: { readonly type: string; readonly options: Readonly<Record<string, unknown>> }
  /** As flannel publishes it; plumb masquerades by nft either way. */
  readonly enableNFTables: boolean
  /** What the reader should be told: keys that mean nothing, or are spelled otherwise. */
  readonly notes?: readonly string[]
}

/** Reads net-conf.json by the rules of flannel's CheckNetworkConfig (pkg/subnet/config.go), its keys in any case. Unknown keys are noted. Throws ValueError naming key, value and what would be right. */
export function parseNetworkConf(text: string): NetworkConf {
  const { value, notes } = read(shape, json(text))
  const families = FAMILIES.filter(({ on }) => value[on])
  if (families.length === 0) throw new ValueError('Cannot read EnableIPv4 and EnableIPv6: both are false; want true for one of them')
  const unused = FAMILIES.filter(({ on, network }) => !value[on] && value[network] !== undefined).map(({ on, network }) => `key ${shown(network)} is not used: ${on} is false`)
  const { Type = '', ...options } = value.Backend
  // They are compared every minute with what the store has by then.
  if (isDeep(options, DEEPEST)) throw new ValueError('Cannot read Backend: it is nested too deep; want an object such as {"Type": "vxlan"}')
  return {
    ...Object.fromEntries(families.map((family) => [family.name, pool(family, value)])),
    ...(value.PeerNetworks.length > 0 && { peers: value.PeerNetworks.map(masked) }),
    // flannel's code takes udp where there is none, its documents promise vxlan.
    backend: { type: Type.toLowerCase() || 'vxlan', options },
    enableNFTables: value.EnableNFTables,
    ...(notes.length + unused.length > 0 && { notes: [...notes, ...unused] }),
  }
}

/** net-conf.json's text of a configuration, which reads as the same again, but for its notes. */
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

/** The networks that pods of the cluster may have addresses of. */
export function networksOf({ v4, v6, peers = [] }: Pick<NetworkConf, 'v4' | 'v6' | 'peers'>): readonly Cidr[] {
  return [...(v4 ? [v4.network] : []), ...(v6 ? [v6.network] : []), ...peers]
}

/** What differs between the families: the names of the keys, and the lengths of flannel's rules. `usual` is the length of a node's subnet where the network has room for four of them, `longest` the last that has room for a tunnel's and a bridge's address. */
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
const V4: Family = { name: 'v4', family: 4, width: 32, usual: 24, longest: 30, on: 'EnableIPv4', network: 'Network', len: 'SubnetLen', min: 'SubnetMin', max: 'SubnetMax', example: '10.244.0.0/16' }
const V6: Family = { name: 'v6', family: 6, width: 128, usual: 64, longest: 126, on: 'EnableIPv6', network: 'IPv6Network', len: 'IPv6SubnetLen', min: 'IPv6SubnetMin', max: 'IPv6SubnetMax', example: 'fd00:10:244::/48' }
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
  return {
    [network]: v.exactOptional(field.by((value) => masked(inFamily(parseCidr, value, family, `an IPv${family} network such as ${example}`)))),
    [len]: v.optional(field.int(0, width), 0),
    [min]: v.exactOptional(address),
    [max]: v.exactOptional(address),
  } as Record<F['network'], v.ExactOptionalSchema<v.GenericSchema<unknown, Cidr>, undefined>> & Record<F['len'], v.GenericSchema<unknown, number>> & Record<F['min'] | F['max'], v.ExactOptionalSchema<v.GenericSchema<unknown, Ip>, undefined>>
}

function pool(family: Family, conf: Conf): Pool {
  const { width, len, min, max, on, example } = family
  const network = conf[family.network]
  if (network === undefined) throw new ValueError(`Cannot read ${family.network}: it is missing; want a network such as ${example}, or "${on}": false`)
  const { first, last } = split(network)
  const length = subnetLength(family, network, conf[len])
  const size = 1n << BigInt(width - length)
  // The first subnet is left out: its first address is that of the network (flannel).
  const from = boundary(family, min, network, length, conf[min]) ?? first + size
  const to = boundary(family, max, network, length, conf[max]) ?? last + 1n - size
  if (from > to) throw new ValueError(`Cannot read ${max} ${shown(text(family, to))}: want an address not before ${min}, ${text(family, from)}`)
  return { network, length, min: text(family, from), max: text(family, to) }
}

// Two bits more than the network: four subnets, of which the first is not used.
function subnetLength({ network: key, len, usual, longest }: Family, network: Cidr, given: number): number {
  const least = split(network).length + 2
  if (least > longest) throw new ValueError(`Cannot read ${key} ${shown(network)}: want /${longest - 2} or shorter, room for four subnets of /${longest}`)
  if (given === 0) return Math.max(usual, least)
  if (given < least || given > longest) throw new ValueError(`Cannot read ${len} ${given}: want ${least} to ${longest}, so that ${network} has room for four subnets of two addresses and more`)
  return given
}

function boundary({ family }: Family, key: string, network: Cidr, length: number, given: Ip | undefined): bigint | undefined {
  // Zero is absent to flannel.
  if (given === undefined || bitsOf(given).bits === 0n) return undefined
  const { bits } = bitsOf(given)
  const { first, last } = split(network)
  if (bits < first || bits > last) throw new ValueError(`Cannot read ${key} ${shown(given)}: want an address in ${network}`)
  const aligned = split(`${given}/${length}` as Cidr).first
  if (bits !== aligned) throw new ValueError(`Cannot read ${key} ${shown(given)}: want the first address of a /${length}, here ${format({ family, bits: aligned })}`)
  return bits
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

// The text is not shown: a backend's options may hold keys and passwords.
function json(text: string): unknown {
  if (text.length > MOST) throw new ValueError(`Cannot read the network's configuration: it has more than ${MOST} characters; want JSON such as {"Network": "${V4.example}"}`)
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new ValueError(`Cannot read the network's configuration: want JSON such as {"Network": "${V4.example}"} (${jsonPlace(text) || printable((cause as Error).message)})`, { cause })
  }
}
