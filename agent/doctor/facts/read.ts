import { run as runTool } from '../../../lib/os/exec.ts'
import { uncountedNeighbours } from '../../../lib/os/neighbours.ts'
import type { Run } from '../../../lib/os/run.ts'
import { maybeSysctl } from '../../../lib/os/sysctls.ts'
import type { ServiceView } from '../../services/view.ts'
import type { Status } from '../../state/status.ts'
import { readCertificates } from './certificates.ts'
import { readConfigurations } from './configurations.ts'
import { grown, readCounters } from './counters.ts'
import { type Disk, foldersOfPlugins, readDisks } from './disks.ts'
import { type Facts, factsOf, known, networkOf, readNow } from './facts.ts'
import { readLegacyRules } from './legacy-rules.ts'
import { readLinks } from './links.ts'
import { readListeners } from './listeners.ts'
import { type Lists, readLists } from './lists.ts'
import { readNft } from './nft.ts'
import { readJournal } from './pods.ts'
import { readPools } from './pools.ts'
import { readProcesses } from './processes.ts'
import { readReach } from './reach.ts'
import { readResolver } from './resolver.ts'
import { readRoutes, readRules } from './routes.ts'
import { readRuleset } from './ruleset.ts'
import { type Runtime, readRuntimes } from './runtimes.ts'
import { readNameless, readUnheard } from './services.ts'
import { readSubnetFile } from './subnet-file.ts'
import { readTwins } from './twins.ts'

/** Where the facts are read. */
export interface FactSources {
  readonly subnetFile: string
  readonly confDir: string
  readonly binDirs: readonly string[]
  /** Nobody named these two. A runtime may read other ones, as that of k3s does. */
  readonly isUsual: boolean
  /** The folders that the agent writes to. Those of plugins are known. */
  readonly written: readonly string[]
  /** Asks the agent for its status. Rejects when no agent answers, with the cause ENOENT or ECONNREFUSED when none runs. */
  status(): Promise<Status>
  /** Asks it for the Services that it serves. Null when it serves none. */
  services(): Promise<readonly ServiceView[] | null>
  /** Where the agent answers questions about policy. */
  readonly policySocket: string
}

/** The shortest time between two readings of the counters, in milliseconds. */
const GROWTH_MS = 1000

/**
 * Reads the facts of this node and changes nothing. Takes about a second, because counters are read twice. Never
 * throws: a fact that cannot be read throws NotRead at its use.
 */
export async function readFacts(places: FactSources, run: Run = runTool): Promise<Facts> {
  const [started, first] = [performance.now(), await settled(readCounters)]
  const [journal, links, routes, rules, ruleset, agent, subnetFile, processes, legacy, configurations, listeners] =
    await Promise.all([
      settled(readJournal),
      settled(() => readLinks(run)),
      settled(() => readRoutes(run)),
      settled(() => readRules(run)),
      settled(() => readRuleset(run)),
      settled(() => places.status()),
      settled(() => readSubnetFile(places.subnetFile)),
      settled(readProcesses),
      settled(() => readLegacyRules(run)),
      settled(readConfigurations),
      settled(() => readListeners(run)),
    ])
  const status = agent.status === 'fulfilled' ? agent.value : undefined
  const network = networkOf(status, subnetFile.status === 'fulfilled' ? subnetFile.value : undefined)
  const unread = ruleset.status === 'rejected' ? (ruleset.reason as Error).message : ruleset.value.unread
  const statusNow = () => (isWithoutAgent(agent) ? undefined : known(agent))
  const services = await settled(async () =>
    statusNow()?.services ? ((await places.services()) ?? undefined) : undefined,
  )
  const runtimesRead = settled(() => readRuntimes(known(processes)))
  const listsRead = settled(async () => listsOf(places, await runtimesRead))
  const [disks, reach, twins, runtimes, lists, nft, certificates, pools, unheard, nameless, resolver] =
    await Promise.all([
      settled(async () => disksOf(places, await listsRead)),
      settled(() => readReach(statusNow())),
      settled(() => readTwins(known(links), known(routes), status)),
      runtimesRead,
      listsRead,
      settled(() => readNft(run, unread)),
      settled(() => readCertificates(known(processes))),
      settled(async () => readPools(known(await listsRead), network?.subnets ?? [], known(journal).gone)),
      settled(() => readUnheard(known(services))),
      settled(() => (statusNow()?.policy ? readNameless(places.policySocket, known(services)) : [])),
      settled(() => readResolver(known(processes))),
    ])
  await Bun.sleep(Math.max(0, started + GROWTH_MS - performance.now()))
  const second = await settled(readCounters)
  const ms = performance.now() - started
  return factsOf({
    sysctl: () => maybeSysctl,
    uncountedNeighbours: () => (family) => readNow(() => uncountedNeighbours(family)),
    links: () => known(links),
    routes: () => known(routes),
    rules: () => known(rules),
    ruleset: () => known(ruleset),
    counters: () => grown(known(first), known(second), ms),
    pods: () => known(journal).pods,
    processes: () => known(processes),
    legacyRules: () => known(legacy),
    configurations: () => known(configurations),
    reach: () => known(reach),
    disks: () => known(disks),
    services: () => known(services),
    unheard: () => known(unheard),
    nameless: () => known(nameless),
    resolver: () => known(resolver),
    nft: () => known(nft),
    runtimes: () => known(runtimes),
    listeners: () => known(listeners),
    twins: () => known(twins),
    certificates: () => known(certificates),
    now: Date.now,
    pools: () => known(pools),
    subnetFile: () => known(subnetFile),
    lists: () => known(lists),
    agent: statusNow,
    status: statusNow,
    network: () => network,
  })
}

// Networks that cannot be read name no folders.
function disksOf({ written }: FactSources, lists: PromiseSettledResult<Lists>): Disk[] {
  const folders = foldersOfPlugins(lists.status === 'fulfilled' ? lists.value : undefined)
  return [...readDisks(folders, 'plugins'), ...readDisks(written, 'agent')]
}

// No agent runs. One that may not be asked, or does not answer, may be there.
function isWithoutAgent(asked: PromiseSettledResult<Status>): boolean {
  if (asked.status === 'fulfilled') return false
  const { code } = ((asked.reason as Error).cause ?? {}) as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ECONNREFUSED'
}

// Those of the one runtime that has networks, when the usual folder has none.
function listsOf(
  { confDir, binDirs, isUsual }: FactSources,
  runtimes: PromiseSettledResult<readonly Runtime[]>,
): ReturnType<typeof readLists> {
  const usual = readLists(confDir, binDirs)
  if (!isUsual || usual.files.length > 0 || runtimes.status === 'rejected') return usual
  const [one, ...others] = runtimes.value.filter(({ networks }) => networks.length > 0)
  return one && others.length === 0 ? readLists(one.confDir, one.binDirs) : usual
}

async function settled<T>(work: () => T | Promise<T>): Promise<PromiseSettledResult<T>> {
  const [one] = await Promise.allSettled([Promise.resolve().then(work)])
  return one
}
