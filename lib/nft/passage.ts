import { has } from '../os/exec.ts'
import { isThere, rulesOf } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { CHAIN, missing, type Passage, type PassageState, scripted } from '../state/kinds/passage.ts'
import { ExecError } from '../text/errors.ts'

/**
 * Makes the missing parts of a passage. An accept in a table of nft does not lift a DROP of iptables, such as Docker's
 * policy. So the accept must stand in the FORWARD chain of iptables. For iptables-nft the kernel itself tells what is
 * missing. When nothing is missing, no process is started for it. For iptables-legacy, `iptables-legacy-save` lists the
 * rules. Throws ExecError.
 */
export async function pass(passage: Passage, run: Run): Promise<void> {
  const ip = nameOf(passage)
  if (isWanted(passage)) await complete(`${ip}tables-nft`, passage, readPassage(passage), run)
  const legacyTables = (readText(`/proc/net/${ip}_tables_names`) ?? '').split('\n')
  if (!legacyTables.includes('filter') || !has(`${ip}tables-legacy-save`)) return
  const rules = await listed([`${ip}tables-legacy-save`, '-t', 'filter'], run)
  await complete(`${ip}tables-legacy`, passage, readLegacy(passage, rules.split('\n')), run)
}

/**
 * Whether nothing of a passage is missing, as far as the kernel tells without a tool. The tables of iptables-legacy are
 * not read.
 */
export function isPassing(passage: Passage): boolean {
  return !isWanted(passage) || missing(passage, readPassage(passage)).length === 0
}

/** The argv of the process that makes a passage. */
export function restoring(tool: string): string[] {
  return [`${tool}-restore`, '--noflush', '--wait']
}

function isWanted(passage: Passage): boolean {
  const ip = nameOf(passage)
  return has(`${ip}tables-nft-restore`) && (passage.always === true || isThere(ip, 'filter', 'FORWARD'))
}

function readPassage(passage: Passage): PassageState {
  const ip = nameOf(passage)
  const own = rulesOf(ip, 'filter', CHAIN, passage.admin)
  return {
    isJumped: rulesOf(ip, 'filter', 'FORWARD', CHAIN).has,
    isAdminThere: isThere(ip, 'filter', passage.admin),
    isWhole: own.has && own.count > 1,
    isThere: own.count > 1,
  }
}

function readLegacy({ admin }: Passage, lines: readonly string[]): PassageState {
  const own = lines.filter((line) => line.startsWith(`-A ${CHAIN} `))
  const has = (line: string) => lines.includes(line)
  return {
    isJumped: has(`-A FORWARD -j ${CHAIN}`),
    isAdminThere: lines.some((line) => line.startsWith(`:${admin} `)),
    isWhole: own.includes(`-A ${CHAIN} -j ${admin}`) && own.length > 1,
    isThere: own.length > 1,
  }
}

async function complete(tool: string, passage: Passage, is: PassageState, run: Run): Promise<void> {
  const lines = missing(passage, is)
  if (lines.length === 0) return
  const argv = restoring(tool)
  const script = scripted(lines).map((line) => `${line}\n`)
  const { status, stderr } = await run(argv, script.join(''))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}

function nameOf({ family }: Passage): 'ip' | 'ip6' {
  return family === 4 ? 'ip' : 'ip6'
}
