import { addressesNow, RT_SCOPE_LINK } from '../../../lib/os/link-addresses.ts'
import { linksNow } from '../../../lib/os/links.ts'
import { uncountedNeighbours } from '../../../lib/os/neighbours.ts'
import { linkState } from '../../../lib/os/sockets.ts'
import { maybeSysctl } from '../../../lib/os/sysctls.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type Counters, grown, type Reading, readCounters } from './counters.ts'
import { type Disk, foldersOfPlugins, readDisks } from './disks.ts'
import { type AgentFacts, type Facts, factsOf, NotRead, networkOf, readNow } from './facts.ts'
import type { Link } from './links.ts'
import type { Lists } from './lists.ts'
import type { Pod } from './pods.ts'
import type { Ruleset } from './ruleset.ts'

/** What the agent knows already. */
export interface AgentKnowledge {
  readonly agent: AgentFacts
  readonly pods: readonly Pod[]
  /** The chains, as they were listed after the last change. */
  readonly ruleset: Ruleset
  /** The networks of the runtime. Undefined when the agent cannot know that the runtime reads this folder. Throws Error. */
  lists(): Lists | undefined
  /** An earlier reading of the counters, and its age in milliseconds. */
  readonly before: { readonly reading: Reading; readonly ms: number }
}

/**
 * The facts of a running agent: from the kernel by netlink and from /proc, without a process. A fact that needs a
 * process throws NotRead. Reads links and networks when a check asks for them.
 */
export function factsOfAgent({ agent, pods, ruleset, lists: readLists, before }: AgentKnowledge): Facts {
  let links: readonly Link[] | undefined
  let lists: Lists | undefined
  let counters: Counters | undefined
  let disks: readonly Disk[] | undefined
  const listsNow = () => (lists ??= readNow(readLists))
  // Networks that cannot be read name no folders.
  const networks = () => {
    try {
      return listsNow()
    } catch {
      return undefined
    }
  }
  const network = networkOf(agent, undefined)
  return factsOf({
    sysctl: () => maybeSysctl,
    uncountedNeighbours: () => (family) => readNow(() => uncountedNeighbours(family)),
    links() {
      links ??= readLinks()
      return links
    },
    counters() {
      counters ??= grown(before.reading, readCounters(), before.ms)
      return counters
    },
    lists: () => listsNow() ?? missing('a folder of networks that is not its own'),
    disks() {
      disks ??= readNow(() => readDisks(foldersOfPlugins(networks()), 'plugins'))
      return disks
    },
    ruleset: () => ruleset,
    pods: () => pods,
    agent: () => agent,
    network: () => network,
    now: () => Date.now(),
    status: () => missing('its own status'),
    routes: () => missing('the routes'),
    rules: () => missing('the rules of routing'),
    processes: () => missing('the processes'),
    legacyRules: () => missing('the old tables of iptables'),
    configurations: () => missing('the files of other programs'),
    reach: () => missing('the answers of nodes'),
    services: () => missing('its own Services'),
    unheard: () => missing('the programs of pods'),
    nameless: () => missing('its own policies'),
    resolver: () => missing('the name servers'),
    nft: () => missing('the version of nft'),
    runtimes: () => missing('the runtimes'),
    listeners: () => missing('the sockets of other programs'),
    twins: () => missing('the neighbours'),
    certificates: () => missing('certificates'),
    pools: () => missing('the pools'),
    subnetFile: () => missing('subnet.env'),
  })
}

function missing(what: string): never {
  throw new NotRead(`the agent does not read ${what}`)
}

/** The links of the node, without what only a device of one kind has. Reads them by netlink. */
export function readLinks(): Link[] {
  const all = linksNow()
  const names = new Map(all.map(({ index, name }) => [index, name]))
  return all.map(({ index, name, kind, mtu, isUp, master }): Link => {
    const masterName = master === undefined ? undefined : names.get(master)
    return {
      name,
      kind,
      mtu,
      isUp,
      get hasCarrier() {
        return isUp && linkState(name) === 'running'
      },
      ...(masterName !== undefined && { master: masterName }),
      get addresses() {
        return addressesNow(index).map(({ cidr, scope }) => ({
          cidr: cidr as Cidr,
          ip: cidr.slice(0, cidr.indexOf('/')) as Ip,
          isLinkLocal: scope === RT_SCOPE_LINK,
        }))
      },
    }
  })
}
