import {
  type Connection,
  connectionCount,
  connectionPieces,
  forget,
  MANY,
  type Sought,
} from '../../lib/os/conntrack.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Protocol } from '../cluster/reading.ts'
import { pauses } from '../kernel/pauses.ts'
import { ENDED, NAME } from './table.ts'

/**
 * A connection that the kernel knows. Addresses and port are those after the translation of a Service or a host port.
 */
export interface Flow {
  readonly source: Ip
  readonly destination: Ip
  /** `other` is ICMP, which has no ports. */
  readonly protocol: Protocol | 'other'
  readonly port: number
}

// The numbers of protocols (IANA).
const PROTOCOLS: Readonly<Record<number, Protocol>> = { 6: 'TCP', 17: 'UDP', 132: 'SCTP' }
const ICMP = [1, 58]
/** For more addresses than this, one list of all connections is cheaper than two lists for each. */
const SINGLY = 16
/** The connections that are ended in one piece of work. */
const AT_ONCE = 200

/**
 * Ends the connections of these addresses that are no longer allowed. Their next packet is that of a new connection,
 * and the rules refuse it. The packets of the answering side are refused by a set. They would else begin the connection
 * again from the other side, which may be allowed. Gives their number. Throws Error when the kernel or nft refuses.
 */
export async function endRefused(
  addresses: ReadonlySet<Ip>,
  isAllowed: (flow: Flow) => boolean,
  run: Run,
): Promise<number> {
  const [answers, ended]: [string[], Connection[]] = [[], []]
  for await (const one of listed(addresses)) {
    const { there, back } = one
    // The answers come from where the connection goes after translation.
    const [source, destination] = [there.src, back.src]
    const protocol = PROTOCOLS[there.protocol]
    if (protocol === undefined && !ICMP.includes(there.protocol)) continue
    const port = protocol === undefined ? 0 : back.sport
    if (isAllowed({ source, destination, protocol: protocol ?? 'other', port })) continue
    ended.push(one)
    // An answer to a question of ICMP begins nothing, so no set has to refuse it.
    if (protocol === undefined) continue
    const key = [back.src, back.dst, protocol.toLowerCase(), back.sport, back.dport].join(' . ')
    answers.push(`add element ${NAME} ${ENDED[isSix(source) ? 6 : 4]} { ${key} }`)
  }
  const { status, stderr } =
    answers.length === 0 ? { status: 0, stderr: '' } : await run(['nft', '-f', '-'], `${answers.join('\n')}\n`)
  if (status !== 0)
    throw new Error(`Cannot end the connections that a policy no longer allows: nft: ${stderr.split('\n', 1)[0]}`)
  const pause = pauses()
  for (let at = 0; at < ended.length; at += AT_ONCE) {
    forget(ended.slice(at, at + AT_ONCE))
    await pause()
  }
  return ended.length
}

// The connections of the addresses. Other work has its turn meanwhile: a busy node tracks hundreds of thousands.
async function* listed(addresses: ReadonlySet<Ip>): AsyncGenerator<Connection> {
  try {
    const count = connectionCount()
    if (count === 0) return
    const pause = pauses()
    for (const sought of count < MANY ? [{}] : soughtOf(addresses))
      for (const piece of connectionPieces(sought)) {
        yield* piece.filter(({ there, back }) => addresses.has(there.src) || addresses.has(back.src))
        await pause()
      }
  } catch (cause) {
    const effect = 'so that those that a policy no longer allows go on'
    throw new Error(`Cannot list connections, ${effect}: ${(cause as Error).message}`, { cause })
  }
}

// A connection between two of the addresses may come twice. To end it twice does no harm. The kernel does not filter by
// IPv6 addresses.
function soughtOf(addresses: ReadonlySet<Ip>): Sought[] {
  const four = [...addresses].filter((ip) => !isSix(ip))
  const hasSix = four.length < addresses.size
  const singly = four.flatMap((ip): Sought[] => [
    { family: 4, src: ip },
    { family: 4, from: ip },
  ])
  const ofFour: Sought[] = four.length > SINGLY ? [{ family: 4 }] : singly
  return hasSix ? [...ofFour, { family: 6 }] : ofFour
}
