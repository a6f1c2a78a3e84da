import { meets } from '../../lib/text/cidr.ts'
import { bitsOf, type Cidr, format, split } from '../../lib/text/ip.ts'
import type { Both } from './lease.ts'
import type { NetworkConf, Pool } from './network-configuration.ts'

type Pools = Pick<NetworkConf, 'v4' | 'v6'>
// The allocator uses at most this many subnets of a pool. Every index below the limit is exact as a JavaScript number.
const MOST = 2n ** 48n

/**
 * Allocates one free subnet for each enabled family. Takes the wanted subnet when it lies in the pool and no other
 * lease overlaps it. Otherwise draws one subnet from all free subnets, each with the same probability. flannel draws
 * from the first hundred free subnets. When a thousand nodes start at once, nine hundred of them collide there. Returns
 * undefined when an enabled family has no free subnet.
 */
export function allocate(
  conf: Pools,
  taken: readonly Both<Cidr>[],
  wanted: Both<Cidr> = {},
  random: () => number = Math.random,
): Both<Cidr> | undefined {
  const v4 = conf.v4 && pick(conf.v4, present(taken, 'v4'), wanted.v4, random)
  const v6 = conf.v6 && pick(conf.v6, present(taken, 'v6'), wanted.v6, random)
  if ((conf.v4 && !v4) || (conf.v6 && !v6)) return undefined
  return { ...(v4 && { v4 }), ...(v6 && { v6 }) }
}

/**
 * Whether the configuration could allocate these subnets. They must have exactly the enabled families, and the length
 * and bounds of the pools.
 */
export function fits({ v4, v6 }: Pools, subnets: Both<Cidr>): boolean {
  return inPool(v4, subnets.v4) && inPool(v6, subnets.v6)
}

/** Whether the subnets of two nodes have an address in common. */
export function overlaps(a: Both<Cidr>, b: Both<Cidr>): boolean {
  return meet(a.v4, b.v4) || meet(a.v6, b.v6)
}

function pick(pool: Pool, taken: readonly Cidr[], wanted: Cidr | undefined, random: () => number): Cidr | undefined {
  if (wanted && inPool(pool, wanted) && !taken.some((one) => meet(one, wanted))) return wanted
  const { family, bits: min } = bitsOf(pool.min)
  const host = BigInt((family === 4 ? 32 : 128) - pool.length)
  const all = ((bitsOf(pool.max).bits - min) >> host) + 1n
  const count = Number(all < MOST ? all : MOST)
  // Index of the pool subnet that holds the address. A lease from a time of another subnet length may cover several
  // indexes.
  const index = (bits: bigint) => (bits < min ? -1 : Number((bits - min) >> host))
  const blocks = taken.flatMap((cidr): Block[] => {
    const { first, last } = split(cidr)
    const block = { from: Math.max(0, index(first)), to: Math.min(count - 1, index(last)) }
    return block.from <= block.to ? [block] : []
  })
  const nth = free(count, blocks, random)
  return nth === undefined
    ? undefined
    : (`${format({ family, bits: min + (BigInt(nth) << host) })}/${pool.length}` as Cidr)
}

/** A range of subnet indexes. Both ends are included. */
interface Block {
  readonly from: number
  readonly to: number
}

// Draws one index below `count` that no block covers. Each such index has the same probability.
function free(count: number, blocks: readonly Block[], random: () => number): number | undefined {
  const gaps: Block[] = []
  let next = 0
  for (const { from, to } of blocks.toSorted((a, b) => a.from - b.from)) {
    if (from > next) gaps.push({ from: next, to: from - 1 })
    next = Math.max(next, to + 1)
  }
  if (next < count) gaps.push({ from: next, to: count - 1 })
  let left = Math.floor(random() * gaps.reduce((sum, { from, to }) => sum + to - from + 1, 0))
  for (const { from, to } of gaps) {
    if (from + left <= to) return from + left
    left -= to - from + 1
  }
  return undefined
}

function inPool(pool: Pool | undefined, cidr: Cidr | undefined): boolean {
  if (!pool || !cidr) return !pool && !cidr
  const { bits, first, length, family } = split(cidr)
  const [min, max] = [bitsOf(pool.min), bitsOf(pool.max)]
  return family === min.family && bits === first && length === pool.length && bits >= min.bits && bits <= max.bits
}

function meet(a: Cidr | undefined, b: Cidr | undefined): boolean {
  return a !== undefined && b !== undefined && meets(a, b)
}

function present(taken: readonly Both<Cidr>[], family: 'v4' | 'v6'): readonly Cidr[] {
  return taken.flatMap((one) => one[family] ?? [])
}
