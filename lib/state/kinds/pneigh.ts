import type { Ip } from '../../text/ip.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** An address for which the node answers on a link, because it is behind another link (proxy ARP and NDP). */
export interface Pneigh {
  readonly kind: 'pneigh'
  readonly ns: Netns
  readonly dev: IfName
  readonly ip: Ip
  readonly proto: number
}

/** Addresses that the node answers for. `protocol` marks which program made them. */
export const pneigh: Handler<Pneigh> = {
  tool: 'ip',
  title: ({ ns, dev, ip }) => `answers for ${ip} on ${dev}${inPodOf(ns)}`,
  purpose: ({ ip, dev }) => `the node takes what is for ${ip} from ${dev}`,
  goesWithLink: true,
  key: ({ ns, dev, ip }) => `pneigh ${ns} ${dev} ${ip}`,
  put: ({ dev, ip, proto }) => [{ text: `neigh replace proxy ${ip} dev ${dev} protocol ${proto}` }],
  drop: ({ dev, ip }) => [{ text: `neigh delete proxy ${ip} dev ${dev}`, unless: /Cannot find device|No such file/ }],
  ask: ({ dev }) => `neigh show proxy dev ${dev}`,
  read(row, want) {
    const { dst, protocol } = row as { readonly dst: string; readonly protocol?: string }
    return dst === want.ip ? { ...want, proto: Number(protocol ?? 0) } : undefined
  },
}
