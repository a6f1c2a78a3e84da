// The process behind startProber: reads servers, then probes, one JSON line each, and answers each with one. This
// thread enters a namespace to open a socket there; from then on the socket belongs to it.
import { inside } from '../../../lib/os/netns.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import type { Probe, Server } from './probes.ts'

const LINE = new TextDecoder()

for await (const line of linesOf(Bun.stdin.stream())) {
  const asked = JSON.parse(line) as readonly Server[] | { probes: readonly Probe[]; ms: number }
  if ('ms' in asked)
    process.stdout.write(
      `${JSON.stringify(Object.fromEntries(await Promise.all(asked.probes.map(async (one) => [one.id, await answer(one, asked.ms)]))))}\n`,
    )
  else {
    await Promise.all(asked.map(serve))
    process.stdout.write('{}\n')
  }
}

async function serve({ ns, name, ports }: Server): Promise<void> {
  const told = (address: string) => `${name} ${address.replace('::ffff:', '')}`
  for (const port of ports) {
    // Both families: an IPv4 client is seen at ::ffff:….
    inside(ns as NetnsPath, () =>
      Bun.listen({
        hostname: '::',
        port,
        socket: { open: (socket) => void socket.end(told(socket.remoteAddress)), data() {} },
      }),
    )
    const data = (socket: Bun.udp.Socket<'buffer'>, _: Buffer, from: number, address: string) =>
      unlessUnreachable(() => socket.send(told(address), from, address))
    await inside(ns as NetnsPath, () => Bun.udpSocket({ hostname: '::', port, socket: { data, error() {} } }))
  }
}

function answer(probe: Probe, ms: number): Promise<string> {
  const end = Promise.withResolvers<string>()
  const timer = setTimeout(end.resolve, ms, 'none')
  void (probe.protocol === 'tcp' ? connect(probe, end.resolve) : datagrams(probe, ms, end)).catch(() =>
    end.resolve('none'),
  )
  return end.promise.finally(() => clearTimeout(timer))
}

async function connect({ from, host, port }: Probe, heard: (text: string) => void): Promise<void> {
  const data = (socket: Bun.Socket, bytes: Uint8Array) => {
    heard(LINE.decode(bytes))
    socket.end()
  }
  await inside(from as NetnsPath, () =>
    Bun.connect({ hostname: host, port, socket: { data, connectError: () => heard('none') } }),
  )
}

async function datagrams(
  { from, host, port }: Probe,
  ms: number,
  { resolve, promise }: { resolve(text: string): void; promise: Promise<string> },
): Promise<void> {
  const socket = await inside(from as NetnsPath, () =>
    Bun.udpSocket({
      hostname: host.includes(':') ? '::' : '0.0.0.0',
      socket: { data: (_, bytes) => resolve(LINE.decode(bytes)), error() {} },
    }),
  )
  const send = () => unlessUnreachable(() => socket.send('x', port, host))
  const again = setInterval(send, Math.max(50, ms / 4))
  try {
    send()
    await promise
  } finally {
    clearInterval(again)
    socket.close()
  }
}

// A datagram with no way to go gets no answer, like any other that is lost.
function unlessUnreachable(send: () => unknown): void {
  try {
    send()
  } catch (cause) {
    if (!/UNREACH|REFUSED|EINVAL|EADDRNOTAVAIL|EPERM/.test(String((cause as NodeJS.ErrnoException).code))) throw cause
  }
}
