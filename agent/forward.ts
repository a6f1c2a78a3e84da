import { isSix } from '../lib/cidr.ts'
import { ExecError } from '../lib/errors.ts'
import { has } from '../lib/exec.ts'
import type { Cidr } from '../lib/ip.ts'
import { isThere } from '../lib/netfilter.ts'
import type { Run } from '../lib/plugin.ts'
import { readText } from '../lib/reading.ts'
import type { NetworkName } from '../lib/values.ts'

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
    const { jumps, chain, isAhead } = await standing(tool, name, run)
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

/** Removes a chain of iptables that FORWARD jumps to, of both families and kinds, and the jump. Gives the tools that had it. With `dryRun` it only says so. Throws ExecError. */
export async function removeChain(name: string, run: Run, { dryRun = false } = {}): Promise<string[]> {
  const found: string[] = []
  for (const { tool } of tools()) {
    const { jumps, exists } = await standing(tool, name, run)
    if (!exists) continue
    found.push(tool)
    if (!dryRun) await restore(tool, [...removals(jumps), `-F ${name}`, `-X ${name}`], run)
  }
  return found
}

// nft's kind is asked of the kernel; legacy tables are listed where they were ever used.
function tools(): { tool: string; six: boolean }[] {
  return [false, true].flatMap((six) => {
    const ip = six ? 'ip6' : 'ip'
    return [...(isThere(ip, 'filter', 'FORWARD') ? [`${ip}tables-nft`] : []), ...(/^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '') ? [`${ip}tables-legacy`] : [])].filter((tool) => has(`${tool}-save`)).map((tool) => ({ tool, six }))
  })
}

async function standing(tool: string, name: string, run: Run): Promise<{ jumps: string[]; chain: string[]; exists: boolean; isAhead: boolean }> {
  const { stdout } = await run([`${tool}-save`, '-t', 'filter'], '')
  const lines = stdout.split('\n')
  const forward = lines.filter((line) => line.startsWith('-A FORWARD '))
  const jump = `-A FORWARD -j ${name}`
  const ahead = forward.slice(0, forward.indexOf(jump))
  return {
    jumps: forward.filter((rule) => rule === jump),
    chain: lines.filter((line) => line.startsWith(`-A ${name} `)),
    exists: lines.some((line) => line.startsWith(`:${name} `)),
    isAhead: forward.includes(jump) && ahead.every((rule) => OURS.test(rule)),
  }
}

function removals(jumps: readonly string[]): string[] {
  return jumps.map((rule) => rule.replace('-A ', '-D '))
}

async function restore(tool: string, lines: readonly string[], run: Run): Promise<void> {
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const { status, stderr } = await run(argv, ['*filter', ...lines, 'COMMIT', ''].join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
