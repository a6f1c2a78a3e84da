import { networkOf } from './cidr.ts'
import { shown, ValueError } from './errors.ts'
import { type Cidr, parseCidr } from './ip.ts'

/**
 * The content of the file subnet.env that a node agent writes. IPv4 stands before IPv6. Host bits are cleared, unlike
 * in the file.
 */
export interface SubnetEnv {
  readonly networks: readonly Cidr[]
  /** The node's own subnets, one per family. */
  readonly subnets: readonly Cidr[]
  /** The MTU of the pods' links, in bytes. */
  readonly mtu: number
  /** True when the agent masquerades. Then no plugin has to do it. */
  readonly ipMasq: boolean
}
/** A line `KEY=VALUE`. `line` counts from 1. A later line of the same key replaces an earlier line. */
export interface Entry {
  readonly value: string
  readonly line: number
}

/**
 * Reads subnet.env as flannel's CNI plugin does. The network keys may hold lists, and both families may stand in the
 * file. One network, one subnet, FLANNEL_MTU and FLANNEL_IPMASQ are required. Throws ValueError with the file's name
 * and every missing or malformed key. A malformed key has its line number.
 */
export function parseSubnetEnv(text: string, path: string): SubnetEnv {
  const entries = subnetEntries(text)
  const wrong: string[] = []
  function read<T>(key: string, parser: (value: string) => T): T | undefined {
    const { value, line } = entries.get(key) ?? {}
    if (!value) return undefined
    try {
      return parser(value)
    } catch (cause) {
      wrong.push(`line ${line}: ${key} ${(cause as Error).message}`)
      return undefined
    }
  }
  const networks = NETWORKS.flatMap((key) => read(key, (value) => value.split(',').map(network)) ?? [])
  const subnets = SUBNETS.flatMap((key) => read(key, network) ?? [])
  const mtu = read('FLANNEL_MTU', bytes)
  const ipMasq = read('FLANNEL_IPMASQ', truth)
  const missing = [NETWORKS, SUBNETS, ['FLANNEL_MTU'], ['FLANNEL_IPMASQ']]
    .filter((keys) => !keys.some((key) => entries.get(key)?.value))
    .map((keys) => `it is missing ${keys.join(' or ')}`)
  if (mtu !== undefined && ipMasq !== undefined && wrong.length + missing.length === 0)
    return { networks: [...new Set(networks)], subnets, mtu, ipMasq }
  throw new ValueError(`Cannot read ${path}: ${[...wrong, ...missing].join('; ')}`)
}

/**
 * The entries of subnet.env by key. Accepts what flanneld and a shell accept: blanks around key and value, quotes,
 * `export`, comment lines.
 */
export function subnetEntries(text: string): ReadonlyMap<string, Entry> {
  const found = text.split('\n').flatMap((row, i) => {
    const at = row.indexOf('=')
    const key = row
      .slice(0, Math.max(at, 0))
      .trim()
      .replace(/^export\s+/, '')
    const bare = row.slice(at + 1).trim()
    const [, , quoted] = /^(["'])(.*)\1$/.exec(bare) ?? []
    return /^\w+$/.test(key) ? [[key, { value: quoted ?? bare, line: i + 1 }] as const] : []
  })
  return new Map(found)
}

const NETWORKS = ['FLANNEL_NETWORK', 'FLANNEL_IPV6_NETWORK']
const SUBNETS = ['FLANNEL_SUBNET', 'FLANNEL_IPV6_SUBNET']

function network(value: string): Cidr {
  return networkOf(parseCidr(value.trim()))
}

function bytes(value: string): number {
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65535)
    throw new ValueError(`${shown(value)}: want a number of bytes, 0 to 65535`)
  return Number(value)
}

function truth(value: string): boolean {
  if (value !== 'true' && value !== 'false') throw new ValueError(`${shown(value)}: want true or false`)
  return value === 'true'
}
