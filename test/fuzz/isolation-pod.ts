// A pod of the isolation histories, run inside its namespace. It serves port 80 in TCP and UDP, and counts what comes
// by flow. It reads its orders as JSON, one object per line, and answers each with one line.
import { createSocket } from 'node:dgram'
import { createConnection, createServer } from 'node:net'
import { createInterface } from 'node:readline'

/**
 * One order. A flow sends until it is stopped, also when the pod gets another address: UDP from this port, TCP from
 * any.
 */
export type Order =
  | { readonly probes: readonly { readonly ip: string; readonly protocol: 'TCP' | 'UDP' }[]; readonly ms: number }
  | { readonly flow: string; readonly ip: string; readonly protocol: 'TCP' | 'UDP'; readonly port: number }
  | { readonly stop: string }
  | { readonly tell: true }

const PORT = 80
const GAP_MS = 10
/** How many messages of each flow came. */
const came: Record<string, number> = {}
const flows = new Map<string, () => void>()

createServer((socket) => {
  let flow = ''
  socket.on('error', () => {})
  socket.on('data', (bytes) => {
    flow ||= bytes.toString().split('\n', 1)[0] as string
    came[flow] = (came[flow] ?? 0) + 1
  })
}).listen(PORT, '::')
const server = createSocket('udp6')
server.on('error', () => {})
server
  .on('message', (bytes, { address, port }) => {
    const flow = bytes.toString()
    if (flow !== '?') came[flow] = (came[flow] ?? 0) + 1
    server.send('ok', port, address, () => {})
  })
  .bind(PORT, '::')

function connects(ip: string, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: ip, port: PORT })
    const done = (answer: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => done(false), ms)
    socket.on('connect', () => done(true)).on('error', () => done(false))
  })
}

function echoes(ip: string, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4')
    let isDone = false
    const done = (answer: boolean) => {
      if (isDone) return
      isDone = true
      clearTimeout(timer)
      socket.close()
      resolve(answer)
    }
    const timer = setTimeout(() => done(false), ms)
    socket
      .on('message', () => done(true))
      .on('error', () => done(false))
      .send('?', PORT, ip)
  })
}

function begin(flow: string, ip: string, protocol: 'TCP' | 'UDP', port: number): () => void {
  if (protocol === 'TCP') {
    const socket = createConnection({ host: ip, port: PORT, noDelay: true })
    socket.on('error', () => {})
    let timer: ReturnType<typeof setInterval> | undefined
    socket.on('connect', () => {
      socket.write(`${flow}\n`)
      timer = setInterval(() => socket.writable && socket.write('x'), GAP_MS)
    })
    return () => {
      clearInterval(timer)
      socket.destroy()
    }
  }
  const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4')
  socket.on('error', () => {})
  socket.bind(port)
  // Without an address nothing can be sent. The next try may have one.
  const timer = setInterval(() => socket.send(flow, PORT, ip, () => {}), GAP_MS)
  return () => {
    clearInterval(timer)
    socket.close()
  }
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order
  if ('probes' in order) {
    const { probes, ms } = order
    const answers = await Promise.all(
      probes.map(({ ip, protocol }) => (protocol === 'TCP' ? connects(ip, ms) : echoes(ip, ms))),
    )
    process.stdout.write(`${JSON.stringify(answers)}\n`)
    continue
  }
  if ('flow' in order) flows.set(order.flow, begin(order.flow, order.ip, order.protocol, order.port))
  if ('stop' in order) {
    flows.get(order.stop)?.()
    flows.delete(order.stop)
  }
  process.stdout.write(`${JSON.stringify(came)}\n`)
}
process.exit(0)
