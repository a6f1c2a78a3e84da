import type { Run } from '../../lib/os/run.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Protocol } from '../cluster/reading.ts'

/** A connection that the kernel knows. Addresses and port are those after the translation of a Service or a host port. */
export interface Flow {
  readonly source: Ip
  readonly destination: Ip
  readonly protocol: Protocol
  readonly port: number
}

const ROW = /^(tcp|udp|sctp)\s.*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+).*?src=(\S+) dst=(\S+) sport=(\d+)/

/**
 * Ends the connections of these addresses that are no longer allowed: their next packet is that of a new connection, and the rules refuse
 * it. Gives how many it ended. Throws Error when conntrack fails.
 */
export async function endRefused(addresses: ReadonlySet<Ip>, isAllowed: (flow: Flow) => boolean, run: Run): Promise<number> {
  let ended = 0
  for (const family of ['ipv4', 'ipv6']) {
    if (![...addresses].some((ip) => ip.includes(':') === (family === 'ipv6'))) continue
    const { status, stdout, stderr } = await run(['conntrack', '-L', '-f', family], '')
    if (status !== 0) throw new Error(`Cannot list connections, so that those that a policy no longer allows go on: ${stderr.split('\n', 1)[0]}`)
    for (const row of stdout.split('\n')) {
      const [, word = '', from = '', to = '', sport = '', dport = '', target = '', , port = ''] = ROW.exec(row) ?? []
      if (from === '') continue
      // The answers come from where the connection goes after translation.
      const [source, destination] = [parseIp(from), parseIp(target)]
      if (!addresses.has(source) && !addresses.has(destination)) continue
      if (isAllowed({ source, destination, protocol: word.toUpperCase() as Protocol, port: Number(port) })) continue
      // Status 1: it ended by itself.
      await run(['conntrack', '-D', '-f', family, '-p', word, '-s', from, '-d', to, '--sport', sport, '--dport', dport], '')
      ended++
    }
  }
  return ended
}
