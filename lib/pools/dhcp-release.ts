import { log } from '../os/log.ts'
import { ethernetIn, openWire } from '../os/packets.ts'
import type { LeaseFile } from './dhcp.ts'

// Where the message begins in the packets that the daemon keeps: an IPv4 header without options, and UDP's.
const [MESSAGE_AT, SERVER_AT, SERVER_PORT] = [28, 16, 67]

/** Gives a lease back to its server, once and without an answer: through its link, or, when that is gone, for IPv4 by the node's own routes. Never throws: a server takes it back by itself when its time is over. */
export async function letGo({ netns, index, owner: { ifname, containerId }, release }: Omit<LeaseFile, 'bound' | 'wants'>): Promise<void> {
  try {
    const isThere = ethernetIn(netns, ifname)?.index === index
    for (const { version, to, packet } of release) {
      const bytes = Uint8Array.from(Buffer.from(packet, 'base64'))
      if (isThere) {
        const wire = openWire(netns, ifname, version)
        wire.send(to, bytes)
        wire.close()
      } else if (version === 4) await byNode(bytes)
    }
  } catch (cause) {
    log(`plumb: Cannot give a lease back, its server waits until it is over: ${(cause as Error).message}`, { container: containerId, ifname })
  }
}

// The server's link may be the node's, too: a bridge, or the link below a macvlan.
async function byNode(packet: Uint8Array): Promise<void> {
  const socket = await Bun.udpSocket({})
  try {
    socket.send(packet.subarray(MESSAGE_AT), SERVER_PORT, packet.subarray(SERVER_AT, SERVER_AT + 4).join('.'))
  } finally {
    socket.close()
  }
}
