import assert from 'node:assert/strict'
import { type Namespace, until } from './harness.ts'
import { type Node, subnetEnv } from './nodes.ts'
import { patient } from './patience.ts'

const started: { kill(): unknown }[] = []
afterEach(() => {
  for (const one of started.splice(0)) one.kill()
})

/** What became of the flows between two pods. */
export interface Told {
  /**
   * Of TCP: the longest time without an answer in milliseconds, less what the client itself was kept from running; what
   * ended it, if anything did.
   */
  readonly stallMs: number
  readonly broken: string
  readonly echoed: number
  /** Of UDP, counted by the kernels of the pods: both directions together. */
  readonly sent: number
  readonly lost: number
}
/** Flows that go on until they are ended. */
export interface Flows {
  end(): Promise<Told>
}

const [TCP, UDP] = [4001, 4002]
const [QUIET_MS, GAP_MS] = [1000, 5]

/**
 * Puts a pod on a node whose agent has its subnet, by a pair of links and the first addresses of that; gives the pod's.
 */
export async function podOn(node: Node, pod: Namespace): Promise<string> {
  const env = await until(() => subnetEnv(node))
  const gateway = env?.['FLANNEL_SUBNET'] as string
  const address = gateway.replace(/\.1\//, '.2/')
  const name = `veth${pod.name}`
  await node.ns.ip(
    'link',
    'add',
    'name',
    name,
    'mtu',
    env?.['FLANNEL_MTU'] as string,
    'type',
    'veth',
    'peer',
    'name',
    'eth0',
    'netns',
    pod.path,
  )
  await node.ns.ip('addr', 'add', gateway, 'dev', name)
  await node.ns.ip('link', 'set', name, 'up')
  await pod.ip('link', 'set', 'lo', 'up')
  await pod.ip('link', 'set', 'eth0', 'mtu', env?.['FLANNEL_MTU'] as string, 'up')
  await pod.ip('addr', 'add', address, 'dev', 'eth0')
  await pod.ip('route', 'add', 'default', 'via', gateway.replace(/\/.*/, ''))
  return address.replace(/\/.*/, '')
}

/**
 * Starts a TCP connection whose every byte is answered, and UDP both ways, a packet each 5 ms. Rejects when they do not
 * come about.
 */
export async function flows(
  one: Namespace,
  two: Namespace,
  [first, second]: readonly [string, string],
): Promise<Flows> {
  for (const pod of [one, two]) await counted(pod)
  const server = run(two, SERVER, second, `${TCP}`)
  const children = [server]
  await until(() => server.said().includes('listening'))
  const client = run(one, CLIENT, second, `${TCP}`, `${GAP_MS}`)
  const senders = [run(one, SENDER, second, `${UDP}`, `${GAP_MS}`), run(two, SENDER, first, `${UDP}`, `${GAP_MS}`)]
  children.push(client, ...senders)
  await until(() => client.said().includes('echoed'), 10_000)
  await until(async () => (await counts(one)).every((n) => n > 0) && (await counts(two)).every((n) => n > 0), 10_000)
  return {
    async end() {
      for (const sender of senders) await sender.stop()
      const told = JSON.parse((await client.stop()).split('\n').at(-1) ?? '')
      await server.stop()
      const lost = async () => {
        const [[sent1 = 0, heard1 = 0], [sent2 = 0, heard2 = 0]] = [await counts(one), await counts(two)]
        return { sent: sent1 + sent2, lost: sent1 + sent2 - heard1 - heard2 }
      }
      await until(async () => (await lost()).lost === 0, QUIET_MS).catch(() => undefined)
      return { ...told, ...(await lost()) }
    },
  }
}

/** Fails when a flow was broken, stalled for a second (on a slow machine longer), or lost a packet. */
export function unharmed({ stallMs, broken, echoed, sent, lost }: Told): void {
  assert.equal(broken, '')
  assert.ok(echoed > 100 && sent > 100, `${echoed} bytes echoed, ${sent} packets sent`)
  assert.equal(lost, 0, `${lost} of ${sent} packets lost`)
  assert.ok(stallMs < patient(1000), `TCP stood still for ${stallMs} ms`)
}

async function counted(pod: Namespace): Promise<void> {
  // Nobody need take them: counted, they have arrived.
  const { status, stderr } = await pod.exec(['nft', '-f', '-'], {
    stdin: `table inet count { chain out { type filter hook output priority 0; udp dport ${UDP} counter; }; chain in { type filter hook input priority 0; udp dport ${UDP} counter drop; }; }`,
  })
  assert.equal(status, 0, stderr)
}

// Sent, and heard.
async function counts(pod: Namespace): Promise<number[]> {
  const { stdout } = await pod.exec(['nft', 'list', 'table', 'inet', 'count'])
  return [...stdout.matchAll(/counter packets (\d+)/g)].map(([, n]) => Number(n))
}

function run({ path }: Namespace, script: string, ...args: readonly string[]) {
  const child = Bun.spawn(['nsenter', `--net=${path}`, '--', process.execPath, '-e', script, ...args], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  started.push(child)
  let said = ''
  const read = (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) said += text
  })()
  return {
    said: () => said,
    async stop() {
      child.stdin.end()
      await read
      await child.exited
      return said.trim()
    },
  }
}

const ENDS = "process.stdin.on('end', end); process.stdin.resume();"
const SERVER = `${ENDS}
const [address, port] = process.argv.slice(-2)
function end() { process.exit(0) }
require('node:net').createServer((socket) => { socket.setNoDelay(true); socket.on('error', () => {}); socket.on('data', (bytes) => socket.write(bytes)) }).listen(Number(port), address, () => console.log('listening'))`
const CLIENT = `${ENDS}
const [address, port, gap] = process.argv.slice(-3)
const socket = require('node:net').connect(Number(port), address)
socket.setNoDelay(true)
let [sent, echoed, last, beat, lag, stallMs, broken] = [0, 0, performance.now(), performance.now(), 0, 0, '']
// What this process was not let run is no stall of the connection.
const look = () => { const now = performance.now(); lag += Math.max(0, now - beat - 50); beat = now }
const note = () => { look(); const now = performance.now(); stallMs = Math.max(stallMs, Math.round(now - last - lag)); last = now; lag = 0 }
socket.on('data', (bytes) => { if (echoed === 0) console.log('echoed'); echoed += bytes.length; note() })
socket.on('error', (cause) => { broken ||= cause.message })
socket.on('close', () => { broken ||= 'closed' })
setInterval(look, 20)
const timer = setInterval(() => { if (!broken) { socket.write('x'); sent++ } }, Number(gap))
async function end() {
  clearInterval(timer)
  for (const until = performance.now() + ${patient(2000)}; echoed < sent && performance.now() < until; ) await Bun.sleep(10)
  if (echoed < sent) { note(); broken ||= (sent - echoed) + ' bytes unanswered' }
  console.log(JSON.stringify({ stallMs, broken, echoed }))
  process.exit(0)
}`
const SENDER = `${ENDS}
const [address, port, gap] = process.argv.slice(-3)
function end() { process.exit(0) }
const socket = await Bun.udpSocket({ socket: {} })
let n = 0
setInterval(() => socket.send(String(n++), Number(port), address), Number(gap))`
