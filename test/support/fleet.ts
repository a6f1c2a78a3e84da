import type { Known } from '../../agent/fleet/fleet.ts'
import { Recorder } from '../../agent/health/recorder.ts'
import type { Peer } from '../../agent/health/status.ts'
import { summaryOf } from '../../agent/health/summary.ts'
import { peers, type Scripted, scripted } from './scripted.ts'

/** A node of a scripted cluster. */
export interface Member {
  readonly name: string
  readonly zone: string
  /** Where its agent may listen: 127.0.1.1 and up. */
  readonly ip: string
  readonly source: Scripted
}

const ZONES = ['a', 'b', 'c']

/** A cluster of nodes node-1 and up, in three zones by turns. Each has all others as peers. */
export function cluster(count: number): Member[] {
  const all = peers(count).map((peer, i) => ({ ...peer, zone: zoneOf(i) }))
  return all.map(({ node, subnets }, i) => ({
    name: node as string,
    zone: zoneOf(i),
    ip: `127.0.${1 + Math.floor(i / 250)}.${1 + (i % 250)}`,
    source: scripted({
      node: node as string,
      version: '0.2.0',
      zone: zoneOf(i),
      subnets,
      peers: all.filter((one) => one.node !== node),
    }),
  }))
}

/** The peer as it is when nothing of it comes back. */
export function silent(peer: Peer): Peer {
  return { ...peer, probe: { state: 'silent', sent: 10, lost: 10 } }
}

function zoneOf(i: number): string {
  return ZONES[i % ZONES.length] as string
}

/** What a collector knows of a node that answered at `now`, or that did not answer when it was asked last. */
export function knownOf({ name, source }: Member, now: number, failure?: Known['failure']): Known {
  const recorder = new Recorder(() => now)
  const rows = recorder.record(source.status()).values()
  const summary = summaryOf(source.status(), rows, recorder, { now, withRow: true })
  return { name, summary, at: now, tookMs: 3, ...(failure && { failure }) }
}
