import { readdirSync, readFileSync } from 'node:fs'
import { BUCKETS } from '../../../agent/state/status.ts'
import { type Namespace, snapshot } from '../../support/harness.ts'
import type { Agent } from '../../support/nodes.ts'

/** What an agent has of the machine at a moment, as the kernel tells it. */
interface Sample {
  readonly rssKb: number
  readonly files: number
  readonly children: number
}
/**
 * How long the steps of an agent took that began after another moment's: how many, how many of them longer than a
 * second, and seconds in all.
 */
export interface Steps {
  readonly count: number
  readonly long: number
  readonly sum: number
}
/** Looks at an agent from time to time. */
export interface Watch {
  look(): void
  /** For each quarter of what was seen, the middle of each figure. */
  quarters(): readonly Sample[]
  /** Those of now. */
  steps(): Promise<Steps>
}

/** Begins to watch one. */
export function watch(agent: Agent): Watch {
  const samples: Sample[] = []
  return {
    look: () => void samples.push(sampleOf(agent.pid)),
    quarters: () =>
      [0, 1, 2, 3].map((n) => {
        const part = samples.slice(Math.floor((n * samples.length) / 4), Math.floor(((n + 1) * samples.length) / 4))
        const middle = (key: keyof Sample) =>
          part.map((one) => one[key]).sort((a, b) => a - b)[part.length >> 1] ?? Number.NaN
        return { rssKb: middle('rssKb'), files: middle('files'), children: middle('children') }
      }),
    async steps() {
      const { steps } = (await agent.status()) ?? { steps: { count: Number.NaN, sum: Number.NaN, buckets: [] } }
      return {
        count: steps.count,
        long: steps.count - (steps.buckets[BUCKETS.indexOf(1)] ?? Number.NaN),
        sum: steps.sum,
      }
    },
  }
}

/**
 * All there is on a node, as lines to compare. They have no order, because objects that are made again come last. They
 * leave out what the kernel chooses by itself for a link: a bridge's MAC, and link-local IPv6 addresses.
 */
export async function objectsOf(ns: Namespace): Promise<string> {
  const text = (await snapshot(ns)).replace(/\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b/g, 'MAC')
  const lines = text.split('\n').filter((line) => !line.includes('fe80::'))
  return lines.sort().join('\n')
}

/** How many links, addresses, routes, neighbours, forwarding entries, nexthops and lines of nft rules a node has. */
export async function inventory(ns: Namespace): Promise<Readonly<Record<string, number>>> {
  const asked = {
    links: 'ip -o link',
    addresses: 'ip -o addr',
    routes: 'ip -o route show table all',
    routes6: 'ip -o -6 route show table all',
    neighbours: 'ip neigh show nud permanent',
    fdb: 'bridge fdb',
    nexthops: 'ip nexthop',
    nft: 'nft --stateless list ruleset',
  }
  const counts = await Promise.all(
    Object.entries(asked).map(
      async ([what, line]) =>
        [what, (await ns.exec(line.split(' '))).stdout.split('\n').filter(Boolean).length] as const,
    ),
  )
  return Object.fromEntries(counts)
}

function sampleOf(pid: number): Sample {
  const [, rssKb] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return {
    rssKb: Number(rssKb),
    files: readdirSync(`/proc/${pid}/fd`).length,
    children: readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).length,
  }
}
