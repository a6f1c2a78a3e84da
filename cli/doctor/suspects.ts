// What stands on the way of packets and is not plumb's: rules, routes, neighbours and settings of a namespace that differ
// from what plumb and the kernel make. The doctor reads them only when packets are lost, and names those that are about
// the lost packets.
import { run as runIn } from '../../lib/os/exec.ts'
import type { Run } from '../../lib/os/run.ts'
import { readLegacy, readNft, readXfrm } from './suspects/filters.ts'
import { readLinks, readPorts, readTc } from './suspects/links.ts'
import { readForwarding, readNeighbours } from './suspects/neighbours.ts'
import { foreignRoutes, foreignRules } from './suspects/routing.ts'
import { readSettings } from './suspects/settings.ts'
import type { Scope, Suspect } from './suspects/suspect.ts'

type Reader = (run: Run, scope: Scope) => Promise<Suspect[]>

/** Reads all suspects of a namespace. A kind that cannot be read is left out, and named in `unread`. */
export async function readSuspects(scope: Scope): Promise<{ readonly suspects: Suspect[]; readonly unread: string[] }> {
  const run: Run = (argv, stdin) => runIn(argv, stdin, scope.ns)
  const suspects: Suspect[] = []
  const unread: string[] = []
  const all = await Promise.allSettled(Object.values(READERS).map((read) => read(run, scope)))
  for (const [i, one] of all.entries()) {
    if (one.status === 'fulfilled') suspects.push(...one.value)
    else unread.push(`${Object.keys(READERS)[i]}: ${(one.reason as Error).message}`)
  }
  return { suspects, unread }
}

const READERS: Readonly<Record<string, Reader>> = {
  links: readLinks,
  nft: readNft,
  'the old iptables': readLegacy,
  'rules of routing': foreignRules,
  routes: foreignRoutes,
  neighbours: readNeighbours,
  'forwarding entries': readForwarding,
  'ports of the bridge': readPorts,
  'queues and filters of tc': readTc,
  xfrm: readXfrm,
  settings: readSettings,
}
