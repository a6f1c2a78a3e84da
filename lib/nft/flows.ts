import { has } from '../os/exec.ts'
import { log } from '../os/log.ts'
import { localAddresses } from '../os/routes.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { type Flows, forgetOf, listsOf } from '../state/kinds/flows.ts'
import { type Ip, parseIp } from '../text/ip.ts'
import type { Netns } from '../text/values.ts'

/**
 * Makes the kernel forget UDP connections of host ports. For a port in `taken`, the connections that led to its pod go.
 * For a port in `given`, older connections to or from this port of the node go, unless they already lead to its pod. A
 * datagram that is sent after this must not make a new connection. The chain `late` of lib/nft/host-ports.nft drops it.
 * Connections through the node to other machines stay. Best effort: without conntrack the kernel forgets a connection
 * by itself, after half a minute of silence.
 */
export async function forgetFlows(
  ns: Netns,
  { given, taken }: { readonly given: readonly Flows[]; readonly taken: readonly Flows[] },
  run: Run,
): Promise<void> {
  if (!has('conntrack'))
    return log(
      'plumb: conntrack is not installed: UDP clients of a host port may go on to its former owner for up to 30 s',
    )
  await forget(ns, [...taken.map(forgetOf), ...(await stale(ns, given, run))], run)
}

async function forget(ns: Netns, lines: readonly string[], run: Run): Promise<void> {
  if (lines.length === 0) return
  const { status } = await run(['conntrack', '-R', '-'], `${lines.join('\n')}\n`, ns)
  // conntrack before 1.4.7 reads no commands from its input.
  if (status !== 0) for (const line of lines) await run(['conntrack', ...line.split(' ')], '', ns)
}

async function stale(ns: Netns, given: readonly Flows[], run: Run): Promise<string[]> {
  const lines: string[] = []
  for (const family of [4, 6] as const) {
    const [first, ...others] = given.filter((one) => one.family === family)
    if (first)
      for (const list of listsOf([first, ...others]))
        try {
          lines.push(...staleOf(await listed(['conntrack', ...list.split(' ')], run, ns), [first, ...others]))
        } catch (cause) {
          const effect = 'UDP clients of a host port may go on to its former owner for up to 30 s'
          log(`plumb: Cannot list connections: ${effect}: ${(cause as Error).message}`)
        }
  }
  return lines
}

// The connections to or from a given port of the node. The node can be either end. Connections that already lead to the
// port's pod are left out.
function staleOf(table: string, wanted: readonly [Flows, ...Flows[]]): string[] {
  const [{ family }] = wanted
  const lines: string[] = []
  const local = table.includes('src=') ? localAddresses(family) : new Set<Ip>()
  const isLocal = (ip: Ip) => local.has(ip) || ip.startsWith('127.')
  for (const [, src = '', dst = '', sport, dport, to = ''] of table.matchAll(
    / src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+) .*?src=(\S+) /g,
  )) {
    const ends = [
      [parseIp(dst), Number(dport)],
      [parseIp(src), Number(sport)],
    ] as const
    const leads = parseIp(to)
    const isEnd = ({ port, ip }: Flows) =>
      ends.some(([at, number]) => port === number && (ip === undefined ? isLocal(at) : ip === at))
    if (!wanted.some((one) => leads !== one.pod && isEnd(one))) continue
    const addresses = `--orig-src ${parseIp(src)} --orig-dst ${parseIp(dst)}`
    const ports = `--orig-port-src ${sport} --orig-port-dst ${dport}`
    lines.push(`-D -f ipv${family} -p udp ${addresses} ${ports}`)
  }
  return lines
}
