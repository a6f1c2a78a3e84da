// A pod of the policy tests, run inside its namespace. It serves 80 and 81 in TCP and UDP on all addresses. It reads its attempts as JSON, one object per line.
import { createSocket } from 'node:dgram'
import { createConnection, createServer } from 'node:net'
import { createInterface } from 'node:readline'

interface Probe {
  readonly ip: string
  readonly port: number
  readonly protocol: 'TCP' | 'UDP'
}

const PORTS = [80, 81]

for (const port of PORTS) {
  createServer((socket) => socket.on('error', () => {}).end('ok')).listen(port, '::')
  const server = createSocket({ type: 'udp6' })
  server.on('message', (_, { address, port: from }) => server.send('ok', from, address)).bind(port, '::')
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

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const { probes, ms } = JSON.parse(line) as { probes: Probe[]; ms: number }
  const answers = await Promise.all(probes.map(({ ip, port, protocol }) => (protocol === 'TCP' ? connects(ip, port, ms) : echoes(ip, port, ms))))
  process.stdout.write(`${JSON.stringify(answers)}\n`)
}
