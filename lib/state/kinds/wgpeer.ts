import type { Cidr } from '../../text/ip.ts'
import type { Secret } from '../../text/secret.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** A peer of a WireGuard device (wg(8)). */
export interface Wgpeer {
  readonly kind: 'wgpeer'
  readonly ns: Netns
  readonly dev: IfName
  /** 44 characters in base64. */
  readonly publicKey: string
  /**
   * Where its packets are sent first, such as `192.0.2.2:51820` or `[2001:db8::2]:51820`. Later the kernel sends to
   * where the peer's packets come from. Undefined for a peer that the kernel shows in a connection: any is right.
   */
  readonly endpoint?: string
  /** The networks whose packets go to the peer, and may come from it. */
  readonly allowed: readonly Cidr[]
  /** Seconds between packets that keep the way through a NAT open. 0 means none. */
  readonly keepalive: number
  /** A second key, the same on both sides. */
  readonly psk?: Secret
  /** When the last handshake was, in seconds since 1970, 0 for never. Only in what the kernel shows. */
  readonly handshake?: number
}

/** Peers of WireGuard devices. `wg addconf` takes many at once, as the text of `section`. */
export const wgpeer: Handler<Wgpeer> = {
  tool: 'wg',
  title: ({ ns, dev, allowed, publicKey }) => `peer ${publicKey} for ${allowed.join(' ')} on ${dev}${inPodOf(ns)}`,
  purpose: ({ allowed, endpoint }) => `encrypted packets for ${allowed.join(' ')} go to ${endpoint}`,
  goesWithLink: true,
  key: ({ ns, dev, publicKey }) => `wgpeer ${ns} ${dev} ${publicKey}`,
  put: (want) => [{ text: `addconf ${want.dev} /proc/self/fd/0` }],
  drop: ({ dev, publicKey }) => [{ text: `set ${dev} peer ${publicKey} remove`, unless: /No such device/ }],
  ask: ({ dev }) => `show ${dev} dump`,
  read: (row) => row as Wgpeer,
}

/** The part of a configuration of wg(8) that adds a peer, or replaces what it has. It contains the second key. */
export function section({ publicKey, endpoint, allowed, keepalive, psk }: Wgpeer): string {
  const lines = [
    '[Peer]',
    `PublicKey = ${publicKey}`,
    // Without this line the second key of a peer stays. A key of zeros is none.
    `PresharedKey = ${psk?.reveal() ?? NO_KEY}`,
    ...(endpoint === undefined ? [] : [`Endpoint = ${endpoint}`]),
    `PersistentKeepalive = ${keepalive}`,
    `AllowedIPs = ${allowed.join(', ')}`,
  ]
  return `${lines.join('\n')}\n`
}

/** Whether the kernel has a peer as wanted. */
export function isSamePeer(want: Wgpeer, have: Wgpeer): boolean {
  return looksOfPeer(want) === looksOfPeer(have) && (have.endpoint ?? want.endpoint) === want.endpoint
}

/** The text of a peer for comparison, without its endpoint, which the kernel changes by itself. */
export function looksOfPeer({ allowed, keepalive, psk }: Wgpeer): string {
  return `${[...allowed].sort().join(' ')} ${keepalive} ${psk?.id ?? ''}`
}

const NO_KEY = `${'A'.repeat(43)}=`
