import type { Cidr } from '../../../lib/text/ip.ts'
import type { Backend } from '../../backend/backend.ts'
import type { Both } from '../../lease/lease.ts'
import type { NetworkConf } from '../../lease/network-configuration.ts'
import type { NodeState } from '../../state/condition.ts'
import { agent as agentFact } from './agent.ts'
import { counters, grown, type Reading, readCounters } from './counters.ts'
import { type AgentFacts, type Fact, factsOf, NotRead, readNow } from './facts.ts'
import { FACTS, type Facts } from './index.ts'
import type { Lists } from './lists.ts'
import { type Pod, pods as podsFact } from './pods.ts'
import { type Ruleset, ruleset as rulesetFact } from './ruleset.ts'
import { lists as listsFact } from './runtimes.ts'

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

/** What an agent knows of itself from its start: the name of its node, its backend and its networks. */
export interface AgentItself {
  readonly node: string
  readonly backend: Pick<Backend, 'type'>
  readonly conf: Pick<NetworkConf, 'v4' | 'v6'>
}

/**
 * The facts of a running agent: from the kernel by netlink and from /proc, without a process. A fact that needs a
 * process throws NotRead. Each fact is read when a check asks for it, and then kept.
 */
export function factsOfAgent({ agent, pods, ruleset, lists, before }: AgentKnowledge): Facts {
  const given = new Map<unknown, () => unknown>([
    give(agentFact, () => agent),
    give(podsFact, () => pods),
    give(rulesetFact, () => ruleset),
    give(listsFact, () => readNow(lists) ?? missing('a folder of networks that is not its own')),
    give(counters, () => grown(before.reading, readCounters(), before.ms)),
  ])
  const values = new Map<unknown, unknown>()
  const of = <T>(fact: Fact<T>): T => {
    if (!values.has(fact)) values.set(fact, given.get(fact)?.() ?? known(fact))
    return values.get(fact) as T
  }
  const known = <T>({ inAgent }: Fact<T>): T => {
    if (typeof inAgent === 'function') return inAgent(of)
    return missing(inAgent === 'given' ? 'a fact that nobody gives' : inAgent.missing)
  }
  return factsOf<Facts>(Object.keys(FACTS) as (keyof Facts)[], (name) => of<unknown>(FACTS[name]))
}

function give<T>(fact: Fact<T>, value: () => T): readonly [Fact<T>, () => T] {
  return [fact, value]
}

/** What the agent says of itself, from the state of its parts. `subnets` are those that it serves. Pure. */
export function agentFactsOf(
  subnets: Both<Cidr>,
  { choice, services, policy, mtu }: NodeState,
  { node, backend, conf }: AgentItself,
): AgentFacts {
  return {
    node,
    network: { ...(conf.v4 && { v4: conf.v4.network }), ...(conf.v6 && { v6: conf.v6.network }) },
    subnets,
    backend: backend.type,
    mtu,
    uplink: choice && {
      ...choice.uplink,
      why: choice.why,
      ...(choice.checksumOffload && { checksumOffload: choice.checksumOffload }),
    },
    ...(services && { services }),
    ...(policy && { policy }),
  }
}

function missing(what: string): never {
  throw new NotRead(`the agent does not read ${what}`)
}
