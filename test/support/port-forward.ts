import type { Server, Socket, WebSocketHandler } from 'bun'

/** Where a forwarded port of a pod leads to. */
export interface Destination {
  readonly hostname: string
  readonly port: number
}
/** A port-forward that is asked for. */
export interface Forwarded {
  readonly pod: string
  readonly port: number
  readonly to: Destination
  tcp?: Socket<undefined>
  waiting: Uint8Array[]
}

/** The pod and the port of a request for a port-forward. Undefined for any other request. */
export function forwardOf(url: URL): { readonly pod: string; readonly port: number } | undefined {
  const [, pod] = /^\/api\/v1\/namespaces\/[^/]+\/pods\/([^/]+)\/portforward$/.exec(url.pathname) ?? []
  return pod === undefined ? undefined : { pod, port: Number(url.searchParams.get('ports')) }
}

/** Upgrades the request as the kubelet does for v4.channel.k8s.io. False for one that is no WebSocket. */
export function upgrade(server: Server<Forwarded>, request: Request, forwarded: Forwarded): boolean {
  const protocol = request.headers.get('Sec-WebSocket-Protocol') ?? ''
  if (protocol !== 'v4.channel.k8s.io') return false
  return server.upgrade(request, { data: forwarded, headers: { 'Sec-WebSocket-Protocol': protocol } })
}

/** The kubelet's side: data on channel 0, errors on channel 1, the port in the first message of each. */
export const kubelet: WebSocketHandler<Forwarded> = {
  open(socket) {
    const { port, to } = socket.data
    for (const channel of [0, 1]) socket.send(Uint8Array.of(channel, port & 255, port >> 8))
    Bun.connect<undefined>({
      ...to,
      socket: {
        open(tcp) {
          socket.data.tcp = tcp
          for (const bytes of socket.data.waiting.splice(0)) tcp.write(bytes)
        },
        data: (_, bytes) => void socket.send(Buffer.concat([Uint8Array.of(0), bytes])),
        close: () => socket.close(),
      },
    }).catch((cause: Error) => {
      const { pod } = socket.data
      const why = `failed to execute portforward in network namespace "host": dial tcp4: connect: connection refused`
      socket.send(
        Buffer.concat([
          Uint8Array.of(1),
          Buffer.from(`error forwarding port ${port} to pod ${pod}, uid : ${why} (${cause.name})`),
        ]),
      )
      socket.close()
    })
  },
  message(socket, message) {
    const bytes = Buffer.from(message as Buffer).subarray(1)
    const { tcp, waiting } = socket.data
    if (tcp) tcp.write(bytes)
    else waiting.push(bytes)
  },
  close: (socket) => void socket.data.tcp?.end(),
}
