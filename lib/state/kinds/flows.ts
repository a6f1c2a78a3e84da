import type { Ip } from '../../text/ip.ts'
import type { Handler } from '../handler.ts'

/**
 * The UDP connections to a host port that conntrack remembers. The kernel must forget them whenever the port changes
 * its owner. Otherwise datagrams still go to the old target. `ip` is the address of the node. Without `ip` all
 * addresses count. `pod` is the address that the port leads to.
 */
export interface Flows {
  readonly kind: 'flows'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly port: number
  readonly ip?: Ip
  readonly pod: Ip
}

/**
 * UDP connections to a host port. The kernel forgets them when the port is given to a pod and when it is taken away.
 */
export const flows: Handler<Flows> = {
  tool: 'conntrack',
  title: ({ port }) => `connections of host port ${port}`,
  purpose,
  key: ({ family, port, ip }) => `flows ${family} ${port} ${ip ?? 'any'}`,
  put: (want) => listsOf([want]).map((text) => ({ text })),
  drop: (want) => [{ text: forgetOf(want) }],
  ask: () => '',
  read: (_row, want) => want,
}

function purpose({ port, pod }: Flows): string {
  return `UDP clients of port ${port} do not go on to ${pod}`
}

/** The conntrack command that forgets a port's connections to its pod. */
export function forgetOf({ family, port, ip, pod }: Flows): string {
  const address = ip === undefined ? '' : ` --orig-dst ${ip}`
  return `-D -f ipv${family} -p udp${address} --orig-port-dst ${port} --reply-src ${pod}`
}

/**
 * The conntrack commands that list the UDP connections to and from ports of one family. Several ports share one list,
 * because each list looks at every connection of the node.
 */
export function listsOf([first, ...others]: readonly [Flows, ...Flows[]]): string[] {
  const all = `-L -f ipv${first.family} -p udp`
  return others.some(({ port }) => port !== first.port)
    ? [all]
    : [`${all} --orig-port-dst ${first.port}`, `${all} --orig-port-src ${first.port}`]
}
