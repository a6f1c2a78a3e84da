// A pod of the tests of the fast path, run inside its namespace. Its argument is its name. On port 82 it gives back what
// comes by TCP, and answers each datagram with its name and the size, in a datagram of the same size. It reads what to do
// as JSON, one object per line.
import { createSocket, type Socket as Datagram } from 'node:dgram'
import { createConnection, createServer, type Socket } from 'node:net'
import { createInterface } from 'node:readline'

/** Opens a flow; says something on it, and waits for the answers; closes the server of datagrams. */
export type Request =
  | { readonly open: string; readonly ip: string; readonly port: number; readonly isTcp: boolean; readonly ms: number }
  | { readonly say: string; readonly size: number; readonly count: number; readonly ms: number }
  | { readonly deaf: true }

const [name = ''] = process.argv.slice(2)
const PORT = 82
const tcp = new Map<string, Socket>()
const udp = new Map<string, Datagram>()
/** What went wrong on a flow, once. */
const errors = new Map<string, string>()

createServer((socket) => socket.on('error', () => {}).pipe(socket)).listen(PORT, '::')
const server = createSocket({ type: 'udp6' })
server
  .on('message', (text, { address, port }) => server.send(`${name} ${text.length}`.padEnd(text.length), port, address))
  .bind(PORT, '::')

function within(ms: number, begin: (done: (answer: string) => void) => void): Promise<string> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('no answer'), ms)
    begin((answer) => {
      clearTimeout(timer)
      resolve(answer)
    })
  })
}

function open({ open: flow, ip, port, isTcp, ms }: Extract<Request, { open: string }>): Promise<string> {
  const fails = (cause: NodeJS.ErrnoException) => errors.set(flow, cause.code ?? cause.message)
  return within(ms, (done) => {
    if (isTcp) {
      const socket = createConnection({ host: ip, port, noDelay: true }, () => done('open'))
      tcp.set(
        flow,
        socket.on('error', (cause) => done(String(fails(cause).get(flow)))),
      )
      return
    }
    const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4')
    udp.set(flow, socket.on('error', fails))
    socket.connect(port, ip, () => done('open'))
  })
}

function sayOnce(flow: string, size: number, ms: number): Promise<string> {
  return within(ms, (done) => {
    errors.delete(flow)
    const [stream, socket] = [tcp.get(flow), udp.get(flow)]
    const heard = setInterval(() => errors.has(flow) && done(errors.get(flow) as string), 10)
    const ends = (answer: string) => {
      clearInterval(heard)
      done(answer)
    }
    let left = size
    stream?.removeAllListeners('data').on('data', (data: Buffer) => {
      left -= data.length
      if (left <= 0) ends(`${size}`)
    })
    stream?.write(Buffer.alloc(size, 'x'))
    socket?.removeAllListeners('message').on('message', (text) => ends(String(text).trim()))
    socket?.send(Buffer.alloc(size, '?'))
    setTimeout(() => clearInterval(heard), ms)
  })
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line) as Request
  const answers: string[] = []
  if ('open' in asked) answers.push(await open(asked))
  else if ('deaf' in asked) server.close()
  else for (let i = 0; i < asked.count; i++) answers.push(await sayOnce(asked.say, asked.size, asked.ms))
  process.stdout.write(`${JSON.stringify(answers)}\n`)
}
