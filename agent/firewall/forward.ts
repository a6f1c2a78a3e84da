import { removals, removeChain, restore, standing, tools } from '../../lib/nft/forward-chain.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { NetworkName } from '../../lib/text/values.ts'

/** The name of an agent's chain among iptables' own; a second agent on the node has one of its own (28 characters are the most). An accept of ours in a table of nft does not lift a DROP of theirs, such as Docker's policy: it has to stand where theirs does. */
function chainOf(instance: NetworkName): string {
  return instance === 'default' ? 'PLUMB-FORWARD' : `PLUMB-FWD-${instance}`
}
const OURS = /^-A FORWARD -j PLUMB-(FORWARD$|FWD-)/

/** Makes pods' packets pass iptables' FORWARD chain, before all rules but those of other agents, where there is one; what is right is left alone. Gives what was put right, one phrase per family. Throws ExecError. */
export async function passForward(networks: readonly Cidr[], instance: NetworkName, run: Run): Promise<string[]> {
  const done: string[] = []
  const name = chainOf(instance)
  for (const { six, tool } of tools()) {
    const wanted = networks.filter((one) => isSix(one) === six).flatMap((network) => [`-A ${name} -s ${network} -j ACCEPT`, `-A ${name} -d ${network} -j ACCEPT`])
    const { jumps, chain, before } = await standing(tool, name, run)
    const isAhead = jumps.length > 0 && before.every((rule) => OURS.test(rule))
    if (chain.join('\n') === wanted.join('\n') && isAhead && jumps.length === 1) continue
    await restore(tool, [`:${name} - [0:0]`, ...wanted, ...removals(jumps), `-I FORWARD 1 -j ${name}`], run)
    done.push(`${tool}: chain ${name} and the jump to it`)
  }
  return done
}

/** Removes what `passForward` made. Throws ExecError. */
export async function leaveForward(instance: NetworkName, run: Run): Promise<void> {
  await removeChain(chainOf(instance), run)
}
