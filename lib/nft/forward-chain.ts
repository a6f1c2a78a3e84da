import { has } from '../os/exec.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { ExecError } from '../text/errors.ts'

/** A program of iptables that has a FORWARD chain to speak of. */
export interface Tool {
  readonly tool: string
  readonly six: boolean
}

/** What of a chain stands beside FORWARD. */
export interface Standing {
  /** The rules of FORWARD that jump to it. */
  readonly jumps: readonly string[]
  /** Its own rules. */
  readonly chain: readonly string[]
  readonly exists: boolean
  /** The rules of FORWARD before the first jump to it; all of them where there is none. */
  readonly before: readonly string[]
}

/** Removes a chain of iptables that FORWARD jumps to, of both families and kinds, and the jump. Gives the tools that had it. With `dryRun` it only says so; `ifEmpty` leaves one that has rules. Throws ExecError. */
export async function removeChain(name: string, run: Run, { dryRun = false, ifEmpty = false } = {}): Promise<string[]> {
  const found: string[] = []
  for (const { tool } of tools()) {
    const { jumps, chain, exists } = await standing(tool, name, run)
    if (!exists || (ifEmpty && chain.length > 0)) continue
    found.push(tool)
    if (!dryRun) await restore(tool, [...removals(jumps), `-F ${name}`, `-X ${name}`], run)
  }
  return found
}

/** Those of this node: nft's kind is asked of the kernel; legacy tables are listed where they were ever used. */
export function tools(): Tool[] {
  return [false, true].flatMap((six) => {
    const ip = six ? 'ip6' : 'ip'
    return [...(isThere(ip, 'filter', 'FORWARD') ? [`${ip}tables-nft`] : []), ...(/^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '') ? [`${ip}tables-legacy`] : [])].filter((tool) => has(`${tool}-save`)).map((tool) => ({ tool, six }))
  })
}

/** How a chain stands, by one of them. */
export async function standing(tool: string, name: string, run: Run): Promise<Standing> {
  const { stdout } = await run([`${tool}-save`, '-t', 'filter'], '')
  const lines = stdout.split('\n')
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

/** The lines that take these jumps away. */
export function removals(jumps: readonly string[]): string[] {
  return jumps.map((rule) => rule.replace('-A ', '-D '))
}

/** Gives lines for the table filter to one of them, in one transaction. Throws ExecError. */
export async function restore(tool: string, lines: readonly string[], run: Run): Promise<void> {
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const { status, stderr } = await run(argv, ['*filter', ...lines, 'COMMIT', ''].join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
