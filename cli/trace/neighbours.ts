import { run } from '../../lib/os/exec.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'

/** The states of a neighbour that has not answered (linux/neighbour.h). */
const SILENT = ['INCOMPLETE', 'FAILED']

/** Whether a namespace asks for the MAC of a neighbour, and gets no answer. False when it does not ask. */
export async function isSilent(ip: Ip, dev: string, ns: Netns): Promise<boolean> {
  const { status, stdout } = await run(['ip', '-json', 'neigh', 'show', ip, 'dev', dev], '', ns)
  if (status !== 0 || stdout.trim() === '') return false
  const rows = JSON.parse(stdout) as readonly { readonly state?: readonly string[] }[]
  return rows.some(({ state }) => state?.some((one) => SILENT.includes(one)))
}
