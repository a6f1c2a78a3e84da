// A pod or node of the Services tests, run inside its namespace: answers on its ports with its name and the client's
// address, and asks what it is told to.
import { createSocket, type Socket as Datagram } from 'node:dgram'
import { createConnection, createServer, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { patient } from './patience.ts'

interface Request {
  readonly op: 'tcp' | 'udp' | 'hold' | 'say'
  /** What is said on an open connection. */
  readonly text?: string
  readonly ip: string
  readonly port: number
  /** How many times, one after the other. */
  readonly count: number
  readonly ms: number
  /** The client's own address and port. */
  readonly from?: string
  readonly fromPort?: number
}

const [name = '', ...ports] = process.argv.slice(2)
/** How long an answer takes that is asked for `later`: long enough for a tool to change the kernel before it. */
const LATER_MS = patient(300)
const plain = (address = '') => address.replace(/^::ffff:/, '')

for (const port of ports.map(Number)) {
  createServer((socket) => {
    const hello = `${name} ${plain(socket.remoteAddress)} ${port}\n`
    socket
      .on('error', () => {})
      .on('data', (text) => setTimeout(() => socket.write(hello), String(text).startsWith('later') ? LATER_MS : 0))
    socket.write(hello)
  }).listen({ port, host: '::', backlog: 1024 })
  const server = createSocket({ type: 'udp6' })
  server
    .on('message', (_, { address, port: to }) => server.send(`${name} ${plain(address)} ${port} ${to}`, to, address))
    .bind(port, '::')
}

/** Connections that stay open, by the address they were opened to. */
const held = new Map<string, Socket>()

function connected({ ip, port, ms, from, fromPort }: Request, keep: boolean): Promise<string> {
  return new Promise((resolve) => {
    const socket = createConnection({
      host: ip,
      port,
      ...(from && { localAddress: from }),
      ...(fromPort && { localPort: fromPort }),
    })
    const done = (answer: string, isOpen = false) => {
      clearTimeout(timer)
      socket.removeAllListeners('data')
      if (isOpen)
        held.set(
          `${ip} ${port}`,
          socket.on('data', () => {}),
        )
      else socket.resetAndDestroy()
      resolve(answer)
    }
    const timer = setTimeout(() => done('timeout'), ms)
    socket
      .on('data', (text) => done(String(text).trim(), keep))
      .on('error', (cause: NodeJS.ErrnoException) => done(cause.code ?? cause.message))
  })
}

function said({ ip, port, ms, text = '?' }: Request): Promise<string> {
  const socket = held.get(`${ip} ${port}`)
  return new Promise((resolve) => {
    if (!socket || socket.destroyed) return resolve('closed')
    const done = (answer: string) => {
      clearTimeout(timer)
      socket.removeListener('data', heard)
      resolve(answer)
    }
    const heard = (answer: Buffer) => done(String(answer).trim())
    const timer = setTimeout(() => done('timeout'), ms)
    socket.on('data', heard)
    socket.write(text)
  })
}

// A client that keeps its port keeps its socket: the kernel sees one connection.
const clients = new Map<number, Datagram>()

function echoed({ ip, port, ms, fromPort }: Request): Promise<string> {
  return new Promise((resolve) => {
    const known = fromPort === undefined ? undefined : clients.get(fromPort)
    const socket = known ?? createSocket(ip.includes(':') ? 'udp6' : 'udp4')
    const done = (answer: string) => {
      clearTimeout(timer)
      socket.removeAllListeners()
      socket.on('error', () => {})
      if (fromPort === undefined) socket.close()
      resolve(answer)
    }
    const timer = setTimeout(() => done('timeout'), ms)
    socket
      .on('message', (text) => done(String(text)))
      .on('error', (cause: NodeJS.ErrnoException) => done(cause.code ?? cause.message))
    if (fromPort === undefined) return socket.connect(port, ip, () => socket.send('?'))
    if (known) return socket.send('?', port, ip)
    clients.set(fromPort, socket)
    socket.bind(fromPort, () => socket.send('?', port, ip))
  })
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as Request
  const answers: string[] = []
  for (let i = 0; i < request.count; i++)
    answers.push(
      await (request.op === 'udp'
        ? echoed(request)
        : request.op === 'say'
          ? said(request)
          : connected(request, request.op === 'hold')),
    )
  process.stdout.write(`${JSON.stringify(answers)}\n`)
}
