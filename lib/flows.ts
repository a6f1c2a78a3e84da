import { has } from './exec.ts'
import { localAddresses } from './hostroutes.ts'
import { type Ip, parseIp } from './ip.ts'
import { log } from './log.ts'
import type { Run } from './plugin.ts'
import type { Flows, Netns } from './state.ts'

/** Makes the kernel forget UDP connections of host ports: of those that were taken away what led to their pod, of those that were given what anyone sent to that port of the node before, or had from it. What comes too late for that, the rules keep from making new ones (chain `late`). Connections through the node to other machines stay. Best effort: without conntrack the kernel forgets by itself, after half a minute of silence. */
export async function forgetFlows(ns: Netns, { given, taken }: { readonly given: readonly Flows[]; readonly taken: readonly Flows[] }, run: Run): Promise<void> {
  if (!has('conntrack')) return log('plumb: conntrack is not installed: UDP clients of a host port may go on to its former owner for up to 30 s')
  await forget(ns, [...taken.map(forgetOf), ...(await stale(ns, given, run))], run)
}

async function forget(ns: Netns, lines: readonly string[], run: Run): Promise<void> {
  if (lines.length === 0) return
  const { status } = await run(['conntrack', '-R', '-'], `${lines.join('\n')}\n`, ns)
  // Before 1.4.7 it reads no commands from its input.
  if (status !== 0) for (const line of lines) await run(['conntrack', ...line.split(' ')], '', ns)
}

/** The command that forgets what led to the pod of a port. */
export function forgetOf({ family, port, ip, pod }: Flows): string {
  return `-D -f ipv${family} -p udp${ip === undefined ? '' : ` --orig-dst ${ip}`} --orig-port-dst ${port} --reply-src ${pod}`
}

/** The command that lists the connections to ports of one family, or from them: one list for any number of ports, as it looks at every connection of the node. */
export function listOf([first, ...others]: readonly [Flows, ...Flows[]], end: End): string {
  return `-L -f ipv${first.family} -p udp${others.some(({ port }) => port !== first.port) ? '' : ` --orig-port-${end} ${first.port}`}`
}

/** Where the node's port is: where a connection leads to, or where it comes from. */
type End = (typeof ENDS)[number]
/** Both of them. */
export const ENDS = ['dst', 'src'] as const

async function stale(ns: Netns, given: readonly Flows[], run: Run): Promise<string[]> {
  const lines: string[] = []
  for (const family of [4, 6] as const) {
    const [first, ...others] = given.filter((one) => one.family === family)
    for (const end of first ? ENDS : []) lines.push(...(await staleOf(ns, [first as Flows, ...others], end, run)))
  }
  return lines
}

async function staleOf(ns: Netns, wanted: readonly [Flows, ...Flows[]], end: End, run: Run): Promise<string[]> {
  const [{ family }] = wanted
  const { stdout } = await run(['conntrack', ...listOf(wanted, end).split(' ')], '', ns)
  const lines: string[] = []
  const local = stdout.includes('src=') ? localAddresses(family) : new Set<Ip>()
  const isLocal = (ip: Ip) => local.has(ip) || ip.startsWith('127.')
  for (const [, src = '', dst = '', sport, dport, to = ''] of stdout.matchAll(/ src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+) .*?src=(\S+) /g)) {
    const [at, number] = end === 'dst' ? [parseIp(dst), Number(dport)] : [parseIp(src), Number(sport)]
    const leads = parseIp(to)
    if (!wanted.some(({ port, ip, pod }) => port === number && leads !== pod && (ip === undefined ? isLocal(at) : ip === at))) continue
    lines.push(`-D -f ipv${family} -p udp --orig-src ${parseIp(src)} --orig-dst ${parseIp(dst)} --orig-port-src ${sport} --orig-port-dst ${dport}`)
  }
  return lines
}
