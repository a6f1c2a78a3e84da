import type { Ip } from '../../text/ip.ts'
import type { Handler } from '../handler.ts'

/** UDP connections to a host port that the kernel still remembers: forgotten whenever the port changes hands, else datagrams go on to the old target. `ip` is the address of the node, absent for all; `pod` is where the port leads. */
export interface Flows {
  readonly kind: 'flows'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly port: number
  readonly ip?: Ip
  readonly pod: Ip
}

/** UDP connections to a host port; forgotten when the port is given and when it is taken away. */
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

/** The command that forgets what led to the pod of a port. */
export function forgetOf({ family, port, ip, pod }: Flows): string {
  return `-D -f ipv${family} -p udp${ip === undefined ? '' : ` --orig-dst ${ip}`} --orig-port-dst ${port} --reply-src ${pod}`
}

/** The commands that list the connections to ports of one family, and those from them: one list for any number of ports, as it looks at every connection of the node. */
export function listsOf([first, ...others]: readonly [Flows, ...Flows[]]): string[] {
  const all = `-L -f ipv${first.family} -p udp`
  return others.some(({ port }) => port !== first.port) ? [all] : [`${all} --orig-port-dst ${first.port}`, `${all} --orig-port-src ${first.port}`]
}
