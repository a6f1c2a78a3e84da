import { line } from '../agent/state/phrases.ts'
import { nameOf, ordered, reach } from '../agent/state/reachability.ts'
import type { Peer, Status } from '../agent/state/status.ts'
import { ask } from './ask.ts'
import type { Entry } from './options.ts'
import { table } from './output.ts'

/** Its row in the list of commands. */
export const entry: Entry = { place: 10, about: 'show which node has which subnet, and which cannot be reached' }

/** What may follow this command. */
export { grammar } from './ask.ts'

/**
 * Runs `plumb leases ARGV` and returns the exit status. The status is 0 when the node is ready, 1 when it is not ready,
 * 3 when it is degraded. Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  return ask(
    {
      name: 'leases',
      about: 'which node has which subnet, and which of them cannot be reached from here',
      text: leasesText,
      json: leases,
    },
    argv,
  )
}

/** A row of `plumb leases`. */
export interface Row extends Peer {
  /** True for the lease of this node. */
  readonly self?: true
}

/** Returns all leases that the agent knows. The lease of this node comes first. */
function leases({ node, subnets, uplink, backend, peers }: Status): Row[] {
  const own: Row[] =
    subnets.v4 || subnets.v6
      ? [{ node, subnets, ips: (uplink?.advertise ?? {}) as Peer['ips'], backend, self: true }]
      : []
  return [...own, ...ordered(peers)]
}

/** Formats the leases as a table for people. */
export function leasesText(status: Status): string {
  const rows = leases(status).map((row) => [nameOf(row), line(row.subnets), line(row.ips), row.backend, stateOf(row)])
  const unreadable =
    status.unreadable > 0 ? `\n${status.unreadable} more cannot be read: the agent’s log names them` : ''
  const text =
    rows.length === 0
      ? 'no node has a lease that the agent knows of'
      : table(['NODE', 'SUBNETS', 'ADDRESSES', 'BACKEND', 'STATE'], rows)
  return `${text}${unreadable}`
}

function stateOf(row: Row): string {
  if (row.self) return 'this node'
  return reach(row)
}
