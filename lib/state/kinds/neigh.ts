import type { Ip } from '../../text/ip.ts'
import type { IfName, Mac, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** A permanent neighbour. */
export interface Neigh {
  readonly kind: 'neigh'
  readonly ns: Netns
  readonly dev: IfName
  readonly ip: Ip
  readonly mac: Mac
  readonly proto: number
}

/** Permanent neighbours. `protocol` marks which program made them. */
export const neigh: Handler<Neigh> = {
  tool: 'ip',
  title: ({ ns, dev, ip }) => `neighbour ${ip} on ${dev}${inPodOf(ns)}`,
  purpose: ({ ip, mac }) => `packets for ${ip} go to ${mac}`,
  key: ({ ns, dev, ip }) => `neigh ${ns} ${dev} ${ip}`,
  put: ({ dev, ip, mac, proto }) => [
    { text: `neigh replace ${ip} lladdr ${mac} dev ${dev} nud permanent protocol ${proto}` },
  ],
  // A delete of a missing neighbour ends iproute2 at once, together with all lines that follow. So the neighbour is
  // made first.
  drop: ({ dev, ip, mac }) => [
    { text: `neigh replace ${ip} lladdr ${mac} dev ${dev} nud stale`, unless: /Cannot find device/ },
    { text: `neigh delete ${ip} dev ${dev}`, unless: /Cannot find device/ },
  ],
  ask: ({ dev }) => `neigh show dev ${dev} nud permanent`,
  read(row, want) {
    const { dst, lladdr, protocol } = row as NeighRow
    return dst === want.ip && lladdr !== undefined
      ? { kind: 'neigh', ns: want.ns, dev: want.dev, ip: dst as Ip, mac: lladdr as Mac, proto: Number(protocol ?? 0) }
      : undefined
  },
}

/** One neighbour in the output of `ip -j neigh show dev X nud permanent`. */
export interface NeighRow {
  readonly dst: string
  readonly lladdr?: string
  readonly protocol?: string
}
