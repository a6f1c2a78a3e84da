// One end of the isolation histories, run inside its network namespace: a pod, the node, or a host outside. It serves
// ports 80 and 7946 in TCP and UDP, sends back on its own to each sender, and counts what comes by flow. It reads
// its orders as JSON, one object per line, and answers each with one line. Its argument is its name.
import { createSocket, type Socket } from 'node:dgram'
import { createConnection, createServer, type Socket as TcpSocket } from 'node:net'
import { createInterface } from 'node:readline'
import { type RawFrame, sendRaw } from '../../../support/raw-frames.ts'

/** One order. A flow sends until it is stopped, also when the pod gets another address. */
export type Order =
  | { readonly probes: readonly Probe[]; readonly ms: number }
  | {
      readonly flow: string
      readonly ip: string
      readonly protocol: 'TCP' | 'UDP'
      readonly port: number
      /** The port of UDP that it sends from. */
      readonly from: number
    }
  | { readonly stop: string }
  /** What it sends back on its own ends: its pod is gone. */
  | { readonly hush: true }
  | { readonly raw: readonly RawFrame[] }
  /** All that it sends from now on has this letter, and a number. */
  | { readonly letter: string }
  | { readonly tell: true }
/** A connection or a question to try. */
export interface Probe {
  readonly ip: string
  readonly protocol: 'TCP' | 'UDP'
  readonly port: number
  readonly isAllowed: boolean
}

/** What sends back says its name: a Service may have led elsewhere before. */
const NAME = process.argv[2] ?? ''
/** What a probe says by TCP. */
const PROBE = 'probe'
/** The ports that every end serves, and those of UDP that flows are sent from, besides the served ones. */
const SERVED = [80, 7946] as const
const SENDERS = [5000, 5001, 5002, 5003] as const
/** A machine in software has many flows, and little time for each. */
const GAP_MS = process.argv[3] === 'slowly' ? 60 : 10
/** How many messages of each flow came, and how many with each letter: `flow1|c`. */
const came: Record<string, number> = {}
/** Of each flow of UDP, the numbers that came since the sender began to count. */
const numbers: Record<string, { first: number; last: number; count: number }> = {}
let letter = ''
const flows = new Map<string, () => void>()
/** What this end sends on its own to those who sent to it, by flow. */
const backs = new Map<string, { readonly to: string; end(): void }>()
const sockets = new Map<number, Socket>()

const note = (text: string, count = 1) => {
  came[text] = (came[text] ?? 0) + count
}

// A text of UDP with the letter of now and the next number, which `noteLettered` reads.
function letteredOf(text: string): () => string {
  let number = 0
  return () => (letter === '' ? text : `${text}|${letter}|${number++}`)
}

// Gives the text.
function noteLettered(message: string): string {
  const [text = '', by, number] = message.split('|')
  note(text)
  if (by === undefined) return text
  note(`${text}|${by}`)
  const [n, known] = [Number(number), numbers[text]]
  if (n === 0 || !known) numbers[text] = { first: n, last: n, count: 1 }
  else numbers[text] = { first: known.first, last: Math.max(known.last, n), count: known.count + 1 }
  return text
}

// Of TCP each byte is the letter of its time.
function noteBytes(flow: string, bytes: string | Uint8Array): void {
  note(flow)
  for (const [by, all] of Map.groupBy(bytes.toString(), (one) => one)) note(`${flow}|${by}`, all.length)
}

for (const port of [...SERVED, ...SENDERS]) {
  const socket = createSocket('udp6')
  sockets.set(port, socket)
  socket
    .on('error', () => {})
    .on('message', (bytes, { address, port: sender }) => {
      const message = bytes.toString()
      if (message === '?') socket.send('!', sender, address, () => {})
      if (message === '?' || message === '!') return
      const text = noteLettered(message)
      if (!text.startsWith('flow')) return
      const to = `${address} ${sender}`
      if (backs.get(text)?.to === to) return
      backs.get(text)?.end()
      const lettered = letteredOf(`back ${text} of ${NAME}`)
      const timer = setInterval(() => socket.send(lettered(), sender, address, () => {}), GAP_MS)
      backs.set(text, { to, end: () => clearInterval(timer) })
    })
    .bind(port, '::')
}
for (const port of SERVED)
  createServer((socket) => {
    let flow = ''
    socket.on('error', () => {})
    socket.on('data', (bytes) => {
      if (flow === '') {
        flow = bytes.toString().split('\n', 1)[0] as string
        if (flow === PROBE) return void socket.end('y')
        const back = setInterval(() => socket.writable && socket.write(letter || 'y'), GAP_MS)
        socket.on('close', () => clearInterval(back))
        const end = () => {
          clearInterval(back)
          socket.destroy()
        }
        backs.get(flow)?.end()
        backs.set(flow, { to: '', end })
      }
      noteBytes(flow, bytes)
    })
  }).listen(port, '::')

// What may pass has to bring an answer to data, as the packets after the first ones meet other rules. Of what may not
// pass, one packet that comes through is too many.
function connects({ ip, port, isAllowed }: Probe, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: ip, port })
    const done = (answer: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => done(false), ms)
    socket
      .on('connect', () => (isAllowed ? socket.write(`${PROBE}\n`) : done(true)))
      .on('data', () => done(true))
      .on('error', () => done(false))
  })
}

function echoes({ ip, port }: Probe, ms: number): Promise<boolean> {
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
      .send('?', port, ip)
  })
}

function begin({ flow, ip, protocol, port, from }: Extract<Order, { flow: string }>): () => void {
  if (protocol === 'UDP') {
    const socket = sockets.get(from) as Socket
    const to = ip.includes(':') ? ip : `::ffff:${ip}`
    // Without an address nothing can be sent. The next try may have one.
    const lettered = letteredOf(flow)
    const timer = setInterval(() => socket.send(lettered(), port, to, () => {}), GAP_MS)
    return () => clearInterval(timer)
  }
  const socket: TcpSocket = createConnection({ host: ip, port, noDelay: true })
  socket.on('error', () => {}).on('data', (bytes) => noteBytes(`back ${flow}`, bytes))
  let timer: ReturnType<typeof setInterval> | undefined
  socket.on('connect', () => {
    socket.write(`${flow}\n`)
    timer = setInterval(() => socket.writable && socket.write(letter || 'x'), GAP_MS)
  })
  return () => {
    clearInterval(timer)
    socket.destroy()
  }
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order
  if ('probes' in order) {
    const { probes, ms } = order
    const answers = await Promise.all(
      probes.map((one) => (one.protocol === 'TCP' ? connects(one, ms) : echoes(one, ms))),
    )
    process.stdout.write(`${JSON.stringify(answers)}\n`)
    continue
  }
  if ('flow' in order) flows.set(order.flow, begin(order))
  if ('stop' in order) {
    for (const all of [flows.get(order.stop), backs.get(order.stop)?.end]) all?.()
    flows.delete(order.stop)
    backs.delete(order.stop)
  }
  if ('hush' in order) {
    for (const { end } of backs.values()) end()
    backs.clear()
  }
  if ('letter' in order) letter = order.letter
  if ('raw' in order) order.raw.forEach(sendRaw)
  process.stdout.write(
    `${JSON.stringify({ came, numbers, backs: Object.fromEntries([...backs].map(([flow, { to }]) => [flow, to])) })}\n`,
  )
}
process.exit(0)
