import { log } from '../os/log.ts'
import { ethernetIn, openWire } from '../os/packets.ts'
import { sendUdp } from '../os/sockets.ts'
import type { LeaseFile } from './dhcp.ts'

// Offsets in the packets that the daemon keeps. The packets have an IPv4 header without options and a UDP header, then
// the DHCP message.
const [MESSAGE_AT, SERVER_AT, SERVER_PORT] = [28, 16, 67]

/**
 * Gives a lease back to its server, once and without waiting for an answer. The packet goes through the lease's
 * interface. When that is gone, an IPv4 packet goes by the node's own routes. Never throws, because the server takes
 * the lease back by itself when the lease ends.
 */
export async function releaseLease({
  netns,
  index,
  owner: { ifname, containerId },
  release,
}: Omit<LeaseFile, 'bound' | 'wants'>): Promise<void> {
  try {
    const isThere = ethernetIn(netns, ifname)?.index === index
    for (const { version, to, packet } of release) {
      const bytes = Uint8Array.fromBase64(packet)
      if (isThere) {
        const wire = openWire(netns, ifname, version)
        wire.send(to, bytes)
        wire.close()
      } else if (version === 4) byNode(bytes)
    }
  } catch (cause) {
    log(`plumb: Cannot release a lease; the server keeps it until it expires: ${(cause as Error).message}`, {
      container: containerId,
      ifname,
    })
  }
}

// The node may reach the server, too: by a bridge, or by the interface below a macvlan.
function byNode(packet: Uint8Array): void {
  sendUdp(packet.subarray(SERVER_AT, SERVER_AT + 4), SERVER_PORT, packet.subarray(MESSAGE_AT))
}
