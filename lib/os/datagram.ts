import { libc } from './door.ts'

const [AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC, MSG_DONTWAIT] = [1, 2, 0x80000, 0x40]

/**
 * Sends one message to a socket in the file system (unix(7)). A path that begins with @ names an abstract socket.
 * Throws Error when no process receives the message.
 */
export function datagram(path: string, text: string): void {
  const { socket, connect, send, close } = libc()
  // struct sockaddr_un: two bytes of family, then the path.
  const address = new Uint8Array([AF_UNIX, 0, ...new TextEncoder().encode(path.replace(/^@/, '\0'))])
  const message = new TextEncoder().encode(text)
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)
  try {
    if (connect(fd, address, address.length) !== 0) throw new Error('nobody listens there')
    if (Number(send(fd, message, BigInt(message.length), MSG_DONTWAIT)) < 0)
      throw new Error('the listener does not take it')
  } finally {
    close(fd)
  }
}
