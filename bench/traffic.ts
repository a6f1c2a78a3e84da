import { inside } from '../lib/os/netns.ts'
import type { Place } from './call.ts'
import { median } from './paired.ts'

/**
 * What a connection under load was like: bits per second as they were on the wire, and how long an answer took
 * meanwhile, in milliseconds.
 */
export interface Load {
  readonly rate: number
  readonly latency: number
}

// Of 1514 bytes on the wire TCP hands on 1448.
const WIRE = 1514 / 1448
// The burst that is left from before is used up then, and TCP has found its pace.
const WARM_UP_MS = 1000

/**
 * Sends as much as goes from one namespace to an address of another for so long, and asks for answers there meanwhile.
 * Throws Error when nothing arrives.
 */
export async function load(from: Place, to: Place, address: string, ms: number): Promise<Load> {
  const sink = start(to, [process.execPath, '-e', SINK, String(WARM_UP_MS), String(ms)])
  const out = lines(sink.stdout)
  await out.next()
  const source = start(from, [process.execPath, '-e', SOURCE, address])
  try {
    // Two lines: when the time begins, and how much came in it.
    await out.next()
    const pings = start(from, ['ping', '-n', '-i', '0.05', '-w', String(Math.floor(ms / 1000)), address])
    const [text, { value }] = await Promise.all([new Response(pings.stdout).text(), out.next()])
    const times = [...text.matchAll(/time=([\d.]+) ms/g)].map(([, time]) => Number(time))
    if (!value) throw new Error(`Cannot measure: nothing reached ${address}`)
    return { rate: Number(value) * WIRE, latency: median(times) }
  } finally {
    source.kill()
    sink.kill()
    await Promise.all([source.exited, sink.exited])
  }
}

function start(place: Place, argv: string[]) {
  return inside(place, () => Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' }))
}

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  let rest = ''
  for await (const text of stream.pipeThrough(new TextDecoderStream() as never) as unknown as AsyncIterable<string>) {
    const parts = (rest + text).split('\n')
    rest = parts.pop() ?? ''
    yield* parts
  }
  return undefined
}

const SINK = `
const [warm, ms] = process.argv.slice(-2).map(Number)
let bytes = 0
require('node:net').createServer((socket) => {
  socket.on('data', (data) => { bytes += data.length }).on('error', () => {})
  setTimeout(() => {
    const [begun, before] = [performance.now(), bytes]
    console.log('begun')
    setTimeout(() => console.log((bytes - before) * 8000 / (performance.now() - begun)), ms)
  }, warm)
}).listen(5201, () => console.log('ready'))`
const SOURCE = `
const [address] = process.argv.slice(-1)
const socket = require('node:net').connect(5201, address)
const chunk = Buffer.alloc(1 << 18)
const fill = () => { while (socket.write(chunk)); }
socket.on('connect', fill).on('drain', fill).on('error', () => {})`
