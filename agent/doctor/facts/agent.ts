import type { Cidr } from '../../../lib/text/ip.ts'
import { both } from '../../lease/families.ts'
import type { Status } from '../../state/status.ts'
import type { AgentFacts, Fact, Reading } from './facts.ts'
import { type SubnetFile, subnetFile } from './subnet-file.ts'

/** The network of pods. */
export interface Network {
  readonly networks: readonly Cidr[]
  /** This node's subnets, one per family. */
  readonly subnets: readonly Cidr[]
  /** The MTU of the links of pods, in bytes. */
  readonly mtu: number
}

/** The status of the agent. Undefined when no agent answers. */
export const agent: Fact<AgentFacts | undefined> = {
  read: ({ of }) => of(status),
  inAgent: 'given',
}

/** The same with all else that the agent says of itself and of the other nodes. */
export const status: Fact<Status | undefined> = { read: ask, inAgent: { missing: 'its own status' } }

/** The network of pods, from the agent, else from subnet.env. Undefined when neither knows it. */
export const network: Fact<Network | undefined> = {
  read: async ({ maybe }) => networkOf(...(await Promise.all([maybe(status), maybe(subnetFile)]))),
  inAgent: (of) => networkOf(of(agent), undefined),
}

async function ask({ places }: Reading): Promise<Status | undefined> {
  try {
    return await places.status()
  } catch (cause) {
    // No agent runs. One that may not be asked, or does not answer, may be there.
    const { code } = ((cause as Error).cause ?? {}) as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ECONNREFUSED') return undefined
    throw cause
  }
}

/** The network of pods, from an agent that has a subnet, else from subnet.env. */
export function networkOf(agent: AgentFacts | undefined, file: SubnetFile | undefined): Network | undefined {
  if (agent && both(agent.subnets).length > 0 && agent.mtu > 0)
    return { networks: both(agent.network), subnets: both(agent.subnets), mtu: agent.mtu }
  if (!file?.env) return undefined
  const { networks, subnets, mtu } = file.env
  return { networks, subnets, mtu }
}
