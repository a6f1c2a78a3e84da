import type { Ip } from '../../text/ip.ts'
import type { IfName, Mac, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/**
 * A permanent entry of a VXLAN device's own forwarding table. It says behind which address of the underlay a MAC
 * address is.
 */
export interface Tunnel {
  readonly kind: 'tunnel'
  readonly ns: Netns
  readonly dev: IfName
  readonly mac: Mac
  readonly dst: Ip
}

/** Permanent entries of a VXLAN device's own forwarding table. The kernel keeps one address for the MAC of a node. */
export const tunnel: Handler<Tunnel> = {
  tool: 'bridge',
  title: ({ ns, dev, mac }) => `FDB entry ${mac} on ${dev}${inPodOf(ns)}`,
  purpose: ({ mac, dst }) => `frames for ${mac} go to the node ${dst}`,
  key: ({ ns, dev, mac }) => `tunnel ${ns} ${dev} ${mac}`,
  put: ({ dev, mac, dst }) => [{ text: `fdb replace ${mac} dev ${dev} dst ${dst} self permanent` }],
  drop: ({ dev, mac }) => [{ text: `fdb delete ${mac} dev ${dev} self`, unless: /No such file|Cannot find device/ }],
  ask: ({ dev }) => `fdb show dev ${dev}`,
  read(row, want) {
    const { mac, dst, state, port, vni, via } = row as FdbRow
    const isSame = mac === want.mac && dst === want.dst && state === 'permanent'
    const isPlain = port === undefined && vni === undefined && via === undefined
    return isSame && isPlain ? want : undefined
  },
}

/**
 * One entry in the output of `bridge -j fdb show dev X`. A learned entry has no state. `port`, `vni` and `via` appear
 * only when they differ from the device's values.
 */
export interface FdbRow {
  readonly mac: string
  readonly dst?: string
  readonly state?: string
  readonly port?: number
  readonly vni?: number
  readonly via?: string
}
