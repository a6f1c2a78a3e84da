import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Protocol } from '../cluster/reading.ts'
import { ENDED, FAMILIES, NAME } from './table.ts'

/** A connection that the kernel knows. Addresses and port are those after the translation of a Service or a host port. */
export interface Flow {
  readonly source: Ip
  readonly destination: Ip
  /** `other` is ICMP, which has no ports. */
  readonly protocol: Protocol | 'other'
  readonly port: number
}

const ROW = /^(tcp|udp|sctp)\s.*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+).*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)/
const ECHO = /^(icmp|icmpv6)\s.*?src=(\S+) dst=(\S+) type=(\d+) code=(\d+) id=(\d+).*?src=(\S+)/

/**
 * Ends the connections of these addresses that are no longer allowed. Their next packet is that of a new connection, and the rules refuse
 * it. The packets of the answering side are refused by a set. They would else begin the connection again from the other side, which may be
 * allowed. Gives how many it ended. Throws Error when conntrack or nft fails.
 */
export async function endRefused(addresses: ReadonlySet<Ip>, isAllowed: (flow: Flow) => boolean, run: Run): Promise<number> {
  const [answers, commands]: [string[], string[][]] = [[], []]
  for (const family of FAMILIES) {
    if (![...addresses].some((ip) => isSix(ip) === (family === 6))) continue
    const { status, stdout, stderr } = await run(['conntrack', '-L', '-f', `ipv${family}`], '')
    if (status !== 0) throw new Error(`Cannot list connections, so that those that a policy no longer allows go on: ${stderr.split('\n', 1)[0]}`)
    for (const row of stdout.split('\n')) {
      const echo = ECHO.exec(row)
      if (echo) {
        const [, word = '', from = '', to = '', type = '', code = '', id = '', target = ''] = echo
        const [source, destination] = [parseIp(from), parseIp(target)]
        if ((!addresses.has(source) && !addresses.has(destination)) || isAllowed({ source, destination, protocol: 'other', port: 0 })) continue
        // An answer without its question begins nothing, so no set has to refuse it.
        commands.push(['conntrack', '-D', '-f', `ipv${family}`, '-p', word, '-s', from, '-d', to, `--${word}-type`, type, `--${word}-code`, code, `--${word}-id`, id])
        continue
      }
      const [, word = '', from = '', to = '', sport = '', dport = '', target = '', back = '', port = '', backPort = ''] = ROW.exec(row) ?? []
      if (from === '') continue
      // The answers come from where the connection goes after translation.
      const [source, destination] = [parseIp(from), parseIp(target)]
      if (!addresses.has(source) && !addresses.has(destination)) continue
      if (isAllowed({ source, destination, protocol: word.toUpperCase() as Protocol, port: Number(port) })) continue
      answers.push(`add element ${NAME} ${ENDED[family]} { ${target} . ${back} . ${word} . ${port} . ${backPort} }`)
      commands.push(['conntrack', '-D', '-f', `ipv${family}`, '-p', word, '-s', from, '-d', to, '--sport', sport, '--dport', dport])
    }
  }
  const { status, stderr } = answers.length === 0 ? { status: 0, stderr: '' } : await run(['nft', '-f', '-'], `${answers.join('\n')}\n`)
  if (status !== 0) throw new Error(`Cannot end the connections that a policy no longer allows: nft: ${stderr.split('\n', 1)[0]}`)
  // Status 1 means that a connection has ended by itself.
  for (const command of commands) await run(command, '')
  return commands.length
}
