import { isSix } from '../lib/cidr.ts'
import { ExecError } from '../lib/errors.ts'
import { has } from '../lib/exec.ts'
import type { Cidr } from '../lib/ip.ts'
import { isThere } from '../lib/netfilter.ts'
import type { Run } from '../lib/plugin.ts'
import { readText } from '../lib/reading.ts'

/** Our chain among iptables' own. An accept of ours in a table of nft does not lift a DROP of theirs, such as Docker's policy: it has to stand where theirs does. */
const CHAIN = 'PLUMB-FORWARD'

/** Makes pods' packets pass iptables' FORWARD chain, first of all its rules, where there is one; what is right is left alone. Gives what was put right, one phrase per family. Throws ExecError. */
export async function passForward(networks: readonly Cidr[], run: Run): Promise<string[]> {
  const done: string[] = []
  for (const { six, tool } of tools()) {
    const wanted = networks.filter((one) => isSix(one) === six).flatMap((network) => [`-A ${CHAIN} -s ${network} -j ACCEPT`, `-A ${CHAIN} -d ${network} -j ACCEPT`])
    const { forward, chain } = await standing(tool, run)
    if (chain.join('\n') === wanted.join('\n') && forward[0] === JUMP && forward.filter((rule) => rule === JUMP).length === 1) continue
    await restore(tool, [`:${CHAIN} - [0:0]`, ...wanted, ...removals(forward), `-I FORWARD 1 -j ${CHAIN}`], run)
    done.push(`${tool}: chain ${CHAIN} and the jump to it`)
  }
  return done
}

/** Removes what `passForward` made. Throws ExecError. */
export async function leaveForward(run: Run): Promise<void> {
  for (const { tool } of tools()) {
    const { forward, exists } = await standing(tool, run)
    if (exists) await restore(tool, [...removals(forward), `-F ${CHAIN}`, `-X ${CHAIN}`], run)
  }
}

const JUMP = `-A FORWARD -j ${CHAIN}`

// nft's kind is asked of the kernel; legacy tables are listed where they were ever used.
function tools(): { tool: string; six: boolean }[] {
  return [false, true].flatMap((six) => {
    const ip = six ? 'ip6' : 'ip'
    return [...(isThere(ip, 'filter', 'FORWARD') ? [`${ip}tables-nft`] : []), ...(/^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '') ? [`${ip}tables-legacy`] : [])].filter((tool) => has(`${tool}-save`)).map((tool) => ({ tool, six }))
  })
}

async function standing(tool: string, run: Run): Promise<{ forward: string[]; chain: string[]; exists: boolean }> {
  const { stdout } = await run([`${tool}-save`, '-t', 'filter'], '')
  const lines = stdout.split('\n')
  return { forward: lines.filter((line) => line.startsWith('-A FORWARD ')), chain: lines.filter((line) => line.startsWith(`-A ${CHAIN} `)), exists: lines.some((line) => line.startsWith(`:${CHAIN} `)) }
}

function removals(forward: readonly string[]): string[] {
  return forward.filter((rule) => rule === JUMP).map((rule) => rule.replace('-A ', '-D '))
}

async function restore(tool: string, lines: readonly string[], run: Run): Promise<void> {
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const { status, stderr } = await run(argv, ['*filter', ...lines, 'COMMIT', ''].join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
