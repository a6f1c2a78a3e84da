// A pod of the policy tests, run inside its namespace. It serves 80 and 81 in TCP and UDP on all addresses. It reads
// its attempts as JSON, one object per line.
import { dlopen } from 'bun:ffi'
import { createSocket } from 'node:dgram'
import { createConnection, createServer } from 'node:net'
import { createInterface } from 'node:readline'

interface Probe {
  readonly ip: string
  readonly port: number
  readonly protocol: 'TCP' | 'UDP'
}

const PORTS = [80, 81]
const ECHO = 82
/** The datagrams that came, by the address that sent them. */
const came: Record<string, number> = {}

for (const port of PORTS) {
  createServer((socket) => socket.on('error', () => {}).end('ok')).listen(port, '::')
  const server = createSocket({ type: 'udp6' })
  server
    .on('message', (_, { address, port: from }) => {
      const ip = address.replace('::ffff:', '')
      came[ip] = (came[ip] ?? 0) + 1
      server.send('ok', from, address)
    })
    .bind(port, '::')
}
createServer((socket) => socket.on('error', () => {}).pipe(socket)).listen(ECHO, '::')

/** What a flow was like: a TCP connection, or datagrams from one port, with a message every millisecond or two. */
interface Flow {
  sent: number
  received: number
  error: string
}
const flows: Record<string, Flow> = {}

function flow(name: string, ip: string, isTcp: boolean): void {
  const now: Flow = { sent: 0, received: 0, error: '' }
  flows[name] = now
  if (isTcp) {
    const socket = createConnection({ host: ip, port: ECHO, noDelay: true })
    socket
      .on('data', (data) => {
        now.received += data.length
      })
      .on('error', ({ message }) => {
        now.error = message
      })
      .on('connect', () => setInterval(() => now.error === '' && socket.write('x', () => now.sent++), 2))
    return
  }
  const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4')
  socket.on('message', () => now.received++)
  const send = () =>
    socket.send('?', 80, ip, (cause) => {
      if (cause) now.error = cause.message
      else now.sent++
    })
  setInterval(send, 1)
}

function connects(ip: string, port: number, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: ip, port })
    const done = (answer: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => done(false), ms)
    socket.on('connect', () => done(true)).on('error', () => done(false))
  })
}

function echoes(ip: string, port: number, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4')
    const done = (answer: boolean) => {
      clearTimeout(timer)
      socket.close()
      resolve(answer)
    }
    const timer = setTimeout(() => done(false), ms)
    socket
      .on('message', () => done(true))
      .on('error', () => done(false))
      .send('?', port, ip)
  })
}

const [AF_INET, SOCK_RAW, IPPROTO_SCTP] = [2, 3, 132]
let raw = -1

// The kernel of the tests may lack SCTP: the first packet of a connection (RFC 9260, INIT) goes through a raw socket,
// and who gets it counts it by nft.
function initiate(ip: string, port: number): void {
  const { symbols } = dlopen('libc.so.6', {
    socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
    sendto: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'u32'], returns: 'i64' },
  })
  if (raw < 0) raw = symbols.socket(AF_INET, SOCK_RAW, IPPROTO_SCTP)
  const packet = new DataView(new ArrayBuffer(32))
  packet.setUint16(0, 40_000)
  packet.setUint16(2, port)
  packet.setUint8(12, 1)
  packet.setUint16(14, 20)
  packet.setUint32(16, 1)
  packet.setUint32(20, 65_536)
  packet.setUint16(24, 1)
  packet.setUint16(26, 1)
  const to = Uint8Array.of(AF_INET, 0, 0, 0, ...ip.split('.').map(Number), 0, 0, 0, 0, 0, 0, 0, 0)
  const bytes = new Uint8Array(packet.buffer)
  symbols.sendto(raw, bytes, bytes.length, 0, to, to.length)
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line) as
    | { probes: Probe[]; ms: number }
    | { flow: string; ip: string; isTcp: boolean }
    | { tell: true }
    | { initiate: { ip: string; port: number }[] }
  if ('initiate' in asked) for (const { ip, port } of asked.initiate) initiate(ip, port)
  if ('flow' in asked) flow(asked.flow, asked.ip, asked.isTcp)
  if (!('probes' in asked)) {
    process.stdout.write(`${JSON.stringify({ came, flows })}\n`)
    continue
  }
  const { probes, ms } = asked
  const answers = await Promise.all(
    probes.map(({ ip, port, protocol }) => (protocol === 'TCP' ? connects(ip, port, ms) : echoes(ip, port, ms))),
  )
  process.stdout.write(`${JSON.stringify(answers)}\n`)
}
