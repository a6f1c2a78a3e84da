import { capacity, type RangeSet, rangeOf, readRangeSets, type SetConf } from '../../../lib/pools/ranges.ts'
import { reservedIn } from '../../../lib/pools/reservations.ts'
import type { Json, PluginConf } from '../../../lib/runtime/network-list.ts'
import { type Cidr, type Ip, parseCidr, parseIp } from '../../../lib/text/ip.ts'
import { network } from './agent.ts'
import type { Fact } from './facts.ts'
import type { Lists } from './lists.ts'
import { type Journal, readJournal } from './pods.ts'
import { lists } from './runtimes.ts'

/** A range set of host-local: the addresses from which each pod of a network gets one. */
export interface Pool {
  readonly network: string
  readonly subnets: readonly Cidr[]
  /** The number of addresses that pods may have, and of those that are taken. */
  readonly size: number
  readonly taken: number
  /** The addresses of pods that are gone without DEL. */
  readonly left: number
}

/** Where host-local keeps addresses, unless a network names another folder. */
export const POOLS = '/var/lib/cni/networks'

/** The pools of host-local of the configured networks. */
export const pools: Fact<readonly Pool[]> = {
  async read({ of, once }) {
    const [found, net, { gone }] = await Promise.all([of(lists), of(network), once(readJournal)])
    return readPools(found, net?.subnets ?? [], gone)
  },
  inAgent: { missing: 'the pools' },
}

/**
 * Reads the pools of the configured networks. `subnets` are those of subnet.env, `gone` the addresses
 * of pods that went without DEL, by network. A network whose pool cannot be read is left out. Throws Error.
 */
export function readPools({ files }: Lists, subnets: readonly Cidr[], gone: Journal['gone']): Pool[] {
  const found = files.flatMap(({ list }) => {
    const [first] = list?.plugins ?? []
    const ipam = first && ipamOf(first, subnets)
    return list && ipam ? [{ name: list.name as string, ...ipam }] : []
  })
  return found.flatMap(({ name, dir, sets }) => {
    const held = reservedIn(`${dir}/${name}`)
    return sets.map((set): Pool => {
      const taken = held.filter((one) => rangeOf(set, parseIp(one)) !== undefined)
      const left = taken.filter((one) => gone.get(name)?.has(one)).length
      return {
        network: name,
        subnets: set.ranges.map(({ subnet }) => subnet),
        size: Number(capacity(set)),
        taken: taken.length,
        left,
      }
    })
  })
}

/** The folders that networks name for their pools. */
export function dataDirs({ files }: Lists): string[] {
  return files.flatMap(({ list }) => {
    const [first] = list?.plugins ?? []
    const ipam = first && hostLocalOf(first)
    return ipam ? [ipam.dir] : []
  })
}

interface Ipam {
  readonly dir: string
  readonly sets: readonly RangeSet[]
}

// The settings of host-local in a network that uses it.
function hostLocalOf({ type, conf }: PluginConf): { readonly dir: string; readonly ipam: Json } | undefined {
  const given = type === 'flannel' ? ((conf['delegate'] as Json | undefined)?.['ipam'] ?? {}) : conf['ipam']
  const ipam = (given ?? {}) as Json
  if (type !== 'flannel' && ipam['type'] !== 'host-local') return undefined
  return { dir: typeof ipam['dataDir'] === 'string' ? ipam['dataDir'] : POOLS, ipam }
}

// The plugin flannel gives its delegate the subnets of subnet.env.
function ipamOf(plugin: PluginConf, subnets: readonly Cidr[]): Ipam | undefined {
  const found = hostLocalOf(plugin)
  if (!found) return undefined
  try {
    const isFlannel = plugin.type === 'flannel'
    const sets = isFlannel ? subnets.map((one) => setOf([{ subnet: one }])) : setsOf(found.ipam)
    return { dir: found.dir, sets: readRangeSets(sets) }
  } catch {
    // The plugin refuses it and says why.
    return undefined
  }
}

function setsOf(ipam: Json): SetConf[] {
  const { ranges = [], subnet } = ipam as { ranges?: readonly (readonly Json[])[]; subnet?: unknown }
  return [...(subnet === undefined ? [] : [setOf([ipam])]), ...ranges.map(setOf)]
}

function setOf(ranges: readonly Json[]): SetConf {
  const address = (value: unknown): Ip | undefined => (value === undefined || value === '' ? undefined : parseIp(value))
  return {
    at: 'ipam.ranges',
    ranges: ranges.map(({ subnet, rangeStart, rangeEnd, gateway }) => ({
      subnet: parseCidr(subnet),
      rangeStart: address(rangeStart),
      rangeEnd: address(rangeEnd),
      gateway: address(gateway),
    })),
  }
}
