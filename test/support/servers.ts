import type { Namespace } from './harness.ts'
import { until } from './harness.ts'

const started: { kill(): unknown }[] = []
afterEach(() => {
  for (const one of started.splice(0)) one.kill()
})

/**
 * Starts servers in a namespace, on all its addresses, until the test ends. Each connection or datagram gets the answer
 * `NAME ADDRESS`: the server's name and the client's address as the server sees it. A place is `tcp 80`, or `udp 53 18`
 * for answers that take 18 ms.
 */
export async function serve(ns: Namespace, name: string, ...places: readonly string[]): Promise<void> {
  const seen = lines(ns, SERVER, name, ...places)
  await until(() => seen.includes('ready'))
}

/**
 * What a client in a namespace gets from an address and port, `NAME ADDRESS`; tried again and again on a slow machine.
 * Rejects after 8 s without an answer.
 */
export async function reach(
  from: Namespace,
  address: string,
  port: number,
  protocol: Protocol = 'tcp',
): Promise<string> {
  return until(() => attempt(from, address, port, protocol), 8000).catch(() => {
    throw new Error(`No answer to ${from.name} from ${address} ${protocol} port ${port}`)
  })
}

/** Whether one attempt, within a second, gets an answer. */
export async function answers(
  from: Namespace,
  address: string,
  port: number,
  protocol: Protocol = 'tcp',
): Promise<boolean> {
  return (await attempt(from, address, port, protocol)) !== ''
}

type Protocol = 'tcp' | 'udp'

async function attempt(from: Namespace, address: string, port: number, protocol: Protocol): Promise<string> {
  const ask = protocol === 'tcp' ? 'cat <&3' : 'echo x >&3; head -n 1 <&3'
  const { stdout } = await from.exec([
    'timeout',
    '1',
    'bash',
    '-c',
    `exec 3<>/dev/${protocol}/${address}/${port} && ${ask}`,
  ])
  return stdout.trim()
}

/** A client that sends one datagram after another from one port, as long as the test runs. */
export interface Talker {
  /** The name of the server that answered last. */
  last(): string | undefined
}

/** Starts one. */
export function talk(from: Namespace, address: string, port: number): Talker {
  const seen = lines(from, TALKER, address, `${port}`)
  return { last: () => seen.at(-1) }
}

/** Starts a script in a namespace, until the test ends: the lines that it has printed so far. */
function lines({ path }: Namespace, script: string, ...args: readonly string[]): string[] {
  const child = Bun.spawn(['nsenter', `--net=${path}`, '--', process.execPath, '-e', script, ...args], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  started.push(child)
  const seen: string[] = []
  void (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream()))
      seen.push(...text.split('\n').filter(Boolean))
  })()
  return seen
}

const SERVER = `
const [name, ...places] = process.argv.slice(1)
const dgram = require('node:dgram'), net = require('node:net')
const told = (address) => name + ' ' + address.replace('::ffff:', '') + '\\n'
const ready = places.flatMap((place) => {
  const [protocol, port, delay = 0] = place.split(' ')
  return ['0.0.0.0', '::'].map((host) => new Promise((done, failed) => {
    if (protocol === 'tcp') {
      const server = net.createServer((socket) => { socket.on('error', () => {}); socket.end(told(socket.remoteAddress)) })
      server.on('error', failed)
      server.listen({ host, port: Number(port), ipv6Only: true }, done)
    } else {
      const socket = dgram.createSocket({ type: host === '::' ? 'udp6' : 'udp4', ipv6Only: true })
      socket.on('error', failed)
      const answer = (from) => socket.send(told(from.address), from.port, from.address, () => {})
      socket.on('message', (_, from) => (delay ? setTimeout(answer, Number(delay), from) : answer(from)))
      socket.bind(Number(port), host, done)
    }
  }))
})
await Promise.all(ready)
console.log('ready')`
const TALKER = `
const [address, port] = process.argv.slice(1)
const socket = require('node:dgram').createSocket(address.includes(':') ? 'udp6' : 'udp4')
socket.on('message', (bytes) => console.log(String(bytes).split(' ')[0]))
socket.on('error', () => {})
socket.bind(() => setInterval(() => socket.send('x', Number(port), address), 20))`
