import { inside } from '../../lib/os/netns.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Netns } from '../../lib/text/values.ts'
import type { Protocol } from './packet.ts'

/** The state of a socket that listens, in /proc/net/tcp (include/net/tcp_states.h), and of a free one of UDP. */
const STATES = { TCP: '0A', UDP: '07' } as const

/** Whether a program listens on a port, of any address. Undefined for ICMP, and when it cannot be read. */
export function listens(ns: Netns, protocol: Protocol, port: number, isV6: boolean): boolean | undefined {
  if (protocol === 'ICMP') return undefined
  const word = protocol.toLowerCase()
  // A socket of IPv6 may take packets of IPv4 as well.
  const files = isV6 ? [`${word}6`] : [word, `${word}6`]
  try {
    const text = inside(ns, () => files.map((file) => readText(`/proc/thread-self/net/${file}`) ?? '').join('\n'))
    const wanted = port.toString(16).toUpperCase().padStart(4, '0')
    return text.split('\n').some((line) => {
      const [, local = '', , state] = line.trim().split(/\s+/)
      return state === STATES[protocol] && local.endsWith(`:${wanted}`)
    })
  } catch {
    return undefined
  }
}
