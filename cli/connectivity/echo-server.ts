import { inside } from '../../lib/os/netns.ts'
import { openRaw } from '../../lib/os/raw-packets.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'
import { answerMessage, readInit, SCTP } from './sctp.ts'

/** An address, and the ports at which it echoes. */
export interface EchoAddress {
  readonly ip: Ip
  readonly tcp: number
  readonly udp: number
  /** The port at which bytes are only counted. Absent where nothing does that. */
  readonly sink?: number
  /** Absent where nothing answers the first message of an association. */
  readonly sctp?: number
}
/** Servers that echo. They first tell the client its address, as they see it, in a line. */
export interface EchoServer extends EchoAddress {
  close(): void
}

/** How often messages of SCTP are looked for, in milliseconds, and so many are answered each time. */
const [LOOK_MS, AT_ONCE] = [5, 100]

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

/**
 * Answers the first message of each association of SCTP at an address and a port of a namespace. It opens none, and
 * needs no SCTP of the kernel. Damaged messages get no answer. Throws Error when the address cannot be had.
 */
export function serveInits(ns: Netns, ip: Ip, port: number): { close(): void } {
  const raw = inside(ns, () => openRaw(ip, SCTP))
  const timer = setInterval(() => {
    for (let i = 0; i < AT_ONCE; i++) {
      const message = raw.hear()
      if (!message) return
      const init = readInit(message.bytes)
      // The client sends again when the kernel refuses the answer.
      if (init?.port === port) raw.send(message.from, answerMessage(init, message.from))
    }
  }, LOOK_MS)
  return {
    close() {
      clearInterval(timer)
      raw.close()
    },
  }
}

function send(socket: Bun.Socket<{ waiting: Uint8Array[] }>, bytes: Uint8Array): void {
  const { waiting } = socket.data
  const done = waiting.length > 0 ? 0 : Math.max(0, socket.write(bytes))
  if (done < bytes.length) waiting.push(bytes.subarray(done))
}
