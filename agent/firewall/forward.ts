import { readChain, removals, removeChain, restore, tools } from '../../lib/nft/forward-chain.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { NetworkName } from '../../lib/text/values.ts'

/**
 * The name of an agent's iptables chain. A second agent on the node has a separate chain. iptables allows at most 28
 * characters. An accept in an nft table does not override a DROP of iptables, such as Docker's policy. The accept must
 * stand in the same hook of iptables.
 */
function chainOf(instance: NetworkName): string {
  return instance === 'default' ? 'PLUMB-FORWARD' : `PLUMB-FWD-${instance}`
}
const OURS = /^-A FORWARD -j PLUMB-(FORWARD$|FWD-)/

/**
 * Lets pods' packets pass the FORWARD chain of iptables where it exists, before all rules except those of other agents.
 * A correct chain stays unchanged. Gives one phrase per repaired family. Throws ExecError.
 */
export async function passForward(networks: readonly Cidr[], instance: NetworkName, run: Run): Promise<string[]> {
  const done: string[] = []
  const name = chainOf(instance)
  for (const { six, tool } of tools()) {
    const wanted = networks
      .filter((one) => isSix(one) === six)
      .flatMap((network) => [`-A ${name} -s ${network} -j ACCEPT`, `-A ${name} -d ${network} -j ACCEPT`])
    const { jumps, chain, before } = await readChain(tool, name, run)
    const isAhead = jumps.length > 0 && before.every((rule) => OURS.test(rule))
    if (chain.join('\n') === wanted.join('\n') && isAhead && jumps.length === 1) continue
    await restore(tool, [`:${name} - [0:0]`, ...wanted, ...removals(jumps), `-I FORWARD 1 -j ${name}`], run)
    done.push(`${tool}: chain ${name} and the jump to it`)
  }
  return done
}

/** Removes the chain of `passForward` and the jump to it. Throws ExecError. */
export async function leaveForward(instance: NetworkName, run: Run): Promise<void> {
  await removeChain(chainOf(instance), run)
}
