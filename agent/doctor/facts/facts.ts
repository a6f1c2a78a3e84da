// What a node is like at one moment. The doctor reads it once, and its checks compare it. This file has the types. The
// other files of this folder read a part each. `read.ts` reads everything, `of-agent.ts` what needs no process.
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { both } from '../../lease/families.ts'
import type { ServiceView } from '../../services/view.ts'
import type { Status } from '../../state/status.ts'
import type { Certificate } from './certificates.ts'
import type { Configuration } from './configurations.ts'
import type { Counters } from './counters.ts'
import type { Disk } from './disks.ts'
import type { LegacyRules } from './legacy-rules.ts'
import type { Link } from './links.ts'
import type { Listening } from './listeners.ts'
import type { Lists } from './lists.ts'
import type { Nft } from './nft.ts'
import type { Pod } from './pods.ts'
import type { Pool } from './pools.ts'
import type { Process } from './processes.ts'
import type { Reach } from './reach.ts'
import type { Resolver } from './resolver.ts'
import type { Route, Rule } from './routes.ts'
import type { Ruleset } from './ruleset.ts'
import type { Runtime } from './runtimes.ts'
import type { Nameless, Unheard } from './services.ts'
import type { SubnetFile } from './subnet-file.ts'
import type { Twin } from './twins.ts'

/**
 * The facts of a node. A fact that could not be read throws NotRead when a check asks for it. That check then counts as
 * not made.
 */
export interface Facts {
  /** The value of a sysctl below /proc/sys/net, such as `ipv4/ip_forward`. Undefined when the kernel has none. */
  sysctl(name: string): string | undefined
  /** The number of neighbours that do not count for the limit of the kernel's table. Throws NotRead. */
  uncountedNeighbours(family: 4 | 6): number
  /** All links of the node's namespace with their addresses. */
  readonly links: readonly Link[]
  /** All routes of all tables but `local`, and the rules that select the tables. */
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
  /** The chains of nftables with their rules, those of iptables-nft among them. Sets come without their elements. */
  readonly ruleset: Ruleset
  /** The program nft, and what it cannot read. */
  readonly nft: Nft
  /** The rules in old tables of iptables, which nftables does not show. */
  readonly legacyRules: readonly LegacyRules[]
  /** The configuration files of systemd-networkd and NetworkManager. */
  readonly configurations: readonly Configuration[]
  /** Whether nodes answer whose tunnel does not, by the addresses of the nodes. */
  readonly reach: ReadonlyMap<Ip, Reach>
  /** Counters of the kernel, and how they grew while the facts were read. */
  readonly counters: Counters
  /** The attachments of plumb's plugins whose pod is still there. */
  readonly pods: readonly Pod[]
  /** The programs of the node's network namespace. */
  readonly processes: readonly Process[]
  /** The container runtimes among them. */
  readonly runtimes: readonly Runtime[]
  /** The sockets of this namespace at which programs listen. */
  readonly listeners: readonly Listening[]
  /** The addresses of the uplink that another machine has, too. */
  readonly twins: readonly Twin[]
  /** The certificates by which this node logs in. */
  readonly certificates: readonly Certificate[]
  /** The time, in milliseconds since 1970. */
  readonly now: number
  /** The pools of host-local of the configured networks. */
  readonly pools: readonly Pool[]
  /** The file systems of the folders that plumb writes to. */
  readonly disks: readonly Disk[]
  /** The file subnet.env. */
  readonly subnetFile: SubnetFile
  /** The configured networks, in the order of the runtime, and the plugins that they name. */
  readonly lists: Lists
  /** The status of the agent. Undefined when no agent answers. */
  readonly agent: AgentFacts | undefined
  /** The same with all else that the agent says of itself and of the other nodes. */
  readonly status: Status | undefined
  /** The Services that the agent serves. Undefined when it serves none, and when no agent answers. */
  readonly services: readonly ServiceView[] | undefined
  /** Their endpoints on this node at which nobody listens. */
  readonly unheard: readonly Unheard[]
  /** The pods of this node whose policies forget the name servers. */
  readonly nameless: readonly Nameless[]
  /** The name servers that kubelet gives to pods. Undefined when no kubelet runs. */
  readonly resolver: Resolver | undefined
  /** The network of pods, from the agent, else from subnet.env. Undefined when neither knows it. */
  readonly network: Network | undefined
}

/** What the agent knows. */
export type AgentFacts = Pick<
  Status,
  'node' | 'network' | 'subnets' | 'backend' | 'mtu' | 'uplink' | 'services' | 'policy'
>

/** The network of pods. */
export interface Network {
  readonly networks: readonly Cidr[]
  /** This node's subnets, one per family. */
  readonly subnets: readonly Cidr[]
  /** The MTU of the links of pods, in bytes. */
  readonly mtu: number
}

/** The network of pods, from an agent that has a subnet, else from subnet.env. */
export function networkOf(agent: AgentFacts | undefined, file: SubnetFile | undefined): Network | undefined {
  if (agent && both(agent.subnets).length > 0 && agent.mtu > 0)
    return { networks: both(agent.network), subnets: both(agent.subnets), mtu: agent.mtu }
  if (!file?.env) return undefined
  const { networks, subnets, mtu } = file.env
  return { networks, subnets, mtu }
}

/** A fact could not be read. The message says why. */
export class NotRead extends Error {
  override name = 'NotRead'
}

/** Makes facts of functions. Each fact is read at its use, where a fact that could not be read throws NotRead. */
export function factsOf(readings: { readonly [Name in keyof Facts]: () => Facts[Name] }): Facts {
  const properties = Object.entries(readings).map(([name, get]) => [name, { get, enumerable: true }] as const)
  return Object.defineProperties({}, Object.fromEntries(properties)) as Facts
}

/** Reads a fact at its use. Throws NotRead when that fails. */
export function readNow<T>(read: () => T): T {
  try {
    return read()
  } catch (cause) {
    throw new NotRead((cause as Error).message, { cause })
  }
}

/** Throws NotRead when the value could not be read. */
export function known<T>(found: PromiseSettledResult<T>): T {
  if (found.status === 'fulfilled') return found.value
  const cause = found.reason as Error
  throw new NotRead(cause.message, { cause })
}
