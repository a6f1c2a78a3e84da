import { type Namespace, until } from './harness.ts'

/** TCP connections between two namespaces, which stay open until they are ended. */
export interface Connections {
  /**
   * Sends `bytes` on each connection, and waits until all of it came back on each. Rejects when a connection has
   * ended, or one is not answered within the time.
   */
  exchange(ms?: number, bytes?: number): Promise<void>
  end(): Promise<void>
}

const PORT = 4003
const running = new Set<{ kill(): unknown }>()
afterEach(() => {
  for (const one of running) one.kill()
  running.clear()
})

/** Opens so many connections to an address of another namespace. Rejects when they do not all come about. */
export async function connections(
  from: Namespace,
  to: Namespace,
  address: string,
  count: number,
): Promise<Connections> {
  const server = start(to, [SERVER, address, `${PORT}`])
  await until(() => server.said().includes('listening'), 10_000)
  const client = start(from, [CLIENT, address, `${PORT}`, `${count}`])
  await until(() => client.said().includes('open'), 60_000).catch((cause) => {
    throw new Error(`of ${count} connections to ${address} not all were opened: ${client.said()}`, { cause })
  })
  let rounds = 0
  return {
    async exchange(ms = 10_000, bytes = 1) {
      rounds++
      const answered = `answered ${rounds}\n`
      client.say(`${bytes}\n`)
      const isOver = () => client.said().includes(answered) || client.said().includes('ended')
      await until(isOver, ms).catch(async () => {
        const before = client.said().length
        client.say('0\n')
        // What the client says now is in the error below. A client that says nothing has ended.
        await until(() => client.said().length > before, 1000).catch(() => undefined)
      })
      if (client.said().includes(answered) && !client.said().includes('ended')) return
      throw new Error(`of ${count} connections to ${address}: ${client.said().split('\n').slice(-6).join('; ')}`)
    },
    async end() {
      for (const one of [client, server]) await one.end()
    },
  }
}

function start({ path }: Namespace, [script = '', ...args]: readonly string[]) {
  const child = Bun.spawn(['nsenter', `--net=${path}`, '--', process.execPath, '-e', script, ...args], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  running.add(child)
  let said = ''
  void (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) said += text
  })()
  return {
    said: () => said,
    say(text: string) {
      child.stdin.write(text)
      child.stdin.flush()
    },
    async end() {
      child.kill()
      await child.exited
      running.delete(child)
    },
  }
}

// All connections may come at once.
const SERVER = `
const [address, port] = process.argv.slice(-2)
const server = require('node:net').createServer((socket) => { socket.on('error', () => {}); socket.pipe(socket) })
server.listen({ port: Number(port), host: address, backlog: 4096 }, () => console.log('listening'))`
// A line with a number sends so many bytes on each connection. The line 0 says how many are unanswered.
const CLIENT = `
const [address, port, count] = process.argv.slice(-3)
const all = []
let [open, round, waiting] = [0, 0, 0]
for (let i = 0; i < Number(count); i++) {
  const socket = require('node:net').connect(Number(port), address)
  const one = { socket, left: 0, why: '' }
  all.push(one)
  socket.on('connect', () => { if (++open === all.length) console.log('open') })
  socket.on('data', (data) => {
    one.left -= data.length
    if (one.left === 0 && --waiting === 0) console.log('answered ' + round)
  })
  socket.on('error', (cause) => { one.why = cause.message })
  socket.on('close', () => console.log('one ended ' + one.why))
}
process.stdin.on('data', (text) => {
  for (const line of String(text).trim().split('\\n')) {
    const bytes = Number(line)
    if (bytes === 0) { console.log(waiting + ' unanswered'); continue }
    round++
    const data = Buffer.alloc(bytes)
    for (const one of all) {
      if (one.left === 0) waiting++
      one.left += bytes
      one.socket.write(data)
    }
  }
})`
