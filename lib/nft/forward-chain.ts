import { has } from '../os/exec.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { ExecError } from '../text/errors.ts'

/** A variant of iptables whose table filter is in use on the node. */
export interface Tool {
  readonly tool: string
  readonly six: boolean
}

/** The state of a chain in the table filter. */
export interface ChainState {
  /** The rules of FORWARD that jump to the chain. */
  readonly jumps: readonly string[]
  /** The rules of the chain. */
  readonly chain: readonly string[]
  readonly exists: boolean
  /** The rules of FORWARD before the first jump to the chain. All rules of FORWARD when there is no jump. */
  readonly before: readonly string[]
}

/**
 * Removes a chain of iptables and the jumps from FORWARD to it, for both families and both variants. Returns the tools
 * that had the chain. `dryRun` changes nothing. `ifEmpty` keeps a chain that has rules. Throws ExecError.
 */
export async function removeChain(name: string, run: Run, { dryRun = false, ifEmpty = false } = {}): Promise<string[]> {
  const found: string[] = []
  for (const { tool } of tools()) {
    const { jumps, chain, exists } = await readChain(tool, name, run)
    if (!exists || (ifEmpty && chain.length > 0)) continue
    found.push(tool)
    if (!dryRun) await restore(tool, [...removals(jumps), `-F ${name}`, `-X ${name}`], run)
  }
  return found
}

/**
 * The variants of iptables in use on this node. The kernel tells about iptables-nft. A legacy table counts when it was
 * ever used.
 */
export function tools(): Tool[] {
  return [false, true].flatMap((six) => {
    const ip = six ? 'ip6' : 'ip'
    const isNft = isThere(ip, 'filter', 'FORWARD')
    const isLegacy = hasOldFilter(ip)
    const used = [...(isNft ? [`${ip}tables-nft`] : []), ...(isLegacy ? [`${ip}tables-legacy`] : [])]
    return used.filter((tool) => has(`${tool}-save`)).map((tool) => ({ tool, six }))
  })
}

/** Whether the kernel has the table filter of iptables-legacy, which tells nobody of its changes. */
export function hasOldFilter(ip: 'ip' | 'ip6'): boolean {
  return /^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '')
}

/** The state of a chain, read with one tool. */
export async function readChain(tool: string, name: string, run: Run): Promise<ChainState> {
  const lines = (await listed([`${tool}-save`, '-t', 'filter'], run)).split('\n')
  const forward = lines.filter((line) => line.startsWith('-A FORWARD '))
  const jump = `-A FORWARD -j ${name}`
  const at = forward.indexOf(jump)
  return {
    jumps: forward.filter((rule) => rule === jump),
    chain: lines.filter((line) => line.startsWith(`-A ${name} `)),
    exists: lines.some((line) => line.startsWith(`:${name} `)),
    before: at < 0 ? forward : forward.slice(0, at),
  }
}

/** The lines that remove these jumps. */
export function removals(jumps: readonly string[]): string[] {
  return jumps.map((rule) => rule.replace('-A ', '-D '))
}

/** Gives lines for the table filter to one tool, in one transaction. Throws ExecError. */
export async function restore(tool: string, lines: readonly string[], run: Run): Promise<void> {
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const { status, stderr } = await run(argv, ['*filter', ...lines, 'COMMIT', ''].join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
