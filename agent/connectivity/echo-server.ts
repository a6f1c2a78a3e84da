import { inside } from '../../lib/os/netns.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'

/** An address, and the ports at which it echoes. */
export interface EchoAddress {
  readonly ip: Ip
  readonly tcp: number
  readonly udp: number
}
/** Servers that echo. They first tell the client its address, as they see it, in a line. */
export interface EchoServer extends EchoAddress {
  close(): void
}

/**
 * Listens at an address of a namespace, for TCP and UDP, at this port; 0 leaves the ports to the kernel. The sockets belong to the
 * namespace, and their events come to this process. Throws Error when the address cannot be had.
 */
export async function serveEchoes(ns: Netns, ip: Ip, port = 0): Promise<EchoServer> {
  const tcp = inside(ns, () =>
    Bun.listen<{ waiting: Uint8Array[] }>({
      hostname: ip,
      port,
      socket: {
        open(socket) {
          socket.data = { waiting: [] }
          send(socket, Buffer.from(`${socket.remoteAddress}\n`))
        },
        data: (socket, bytes) => send(socket, Uint8Array.from(bytes)),
        drain(socket) {
          const [first, ...more] = socket.data.waiting
          socket.data.waiting = []
          for (const bytes of first ? [first, ...more] : []) send(socket, bytes)
        },
        error: (socket) => socket.terminate(),
      },
    }),
  )
  const udp = await inside(ns, () =>
    Bun.udpSocket({
      hostname: ip,
      port,
      socket: {
        data(socket, bytes, port, address) {
          socket.send(Buffer.concat([Buffer.from(`${address}\n`), bytes]), port, address)
        },
        // A client that is gone refuses the answer.
        error: () => undefined,
      },
    }),
  )
  return {
    ip,
    tcp: tcp.port,
    udp: udp.port,
    close() {
      tcp.stop(true)
      udp.close()
    },
  }
}

function send(socket: Bun.Socket<{ waiting: Uint8Array[] }>, bytes: Uint8Array): void {
  const { waiting } = socket.data
  const done = waiting.length > 0 ? 0 : Math.max(0, socket.write(bytes))
  if (done < bytes.length) waiting.push(bytes.subarray(done))
}
