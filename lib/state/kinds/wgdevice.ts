import type { Secret } from '../../text/secret.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** The key and the port of a WireGuard device (wg(8)). The device itself is a `Link`. */
export interface Wgdevice {
  readonly kind: 'wgdevice'
  readonly ns: Netns
  readonly dev: IfName
  /** The UDP port of the outer packets. */
  readonly port: number
  /** The public key, which belongs to the private one: 44 characters in base64. */
  readonly publicKey: string
  /** Absent in what the kernel shows. */
  readonly privateKey?: Secret
}

/** Keys and ports of WireGuard devices. The private key comes to `wg` by its standard input. */
export const wgdevice: Handler<Wgdevice> = {
  tool: 'wg',
  title: ({ ns, dev, port }) => `key and port ${port} of ${dev}${inPodOf(ns)}`,
  purpose: ({ port }) => `packets from other nodes come to UDP port ${port}`,
  goesWithLink: true,
  key: ({ ns, dev }) => `wgdevice ${ns} ${dev}`,
  put: ({ dev, port }) => [{ text: `set ${dev} listen-port ${port} private-key /proc/self/fd/0` }],
  // The kernel removes both with the device.
  drop: () => [],
  ask: ({ dev }) => `show ${dev} dump`,
  read: (row, want) => {
    const { port, publicKey } = row as Wgdevice
    return { kind: 'wgdevice', ns: want.ns, dev: want.dev, port, publicKey }
  },
}
