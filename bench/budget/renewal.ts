// What a renewal of the fast path costs: `bun bench/budget/renewal.ts`. It starts a virtual machine whose clock counts
// instructions. In it stands a node with 250 pods. One of them has so many connections of UDP to another node, all in the
// fast path. Then the whole flowtable is replaced, as the agent does after a change that ends connections.
import { appendFileSync, realpathSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { FastPath } from '../../agent/fast-path/program.ts'
import { run } from '../../agent/kernel/run.ts'
import { offloadedPieces } from '../../lib/os/conntrack.ts'
import { parseCidr, parseIp } from '../../lib/text/ip.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { parse } from '../../lib/text/values.ts'
import { commandInMachine } from '../../test/support/machine/machine.ts'
import { ip, run as tool } from '../tools.ts'

const PODS = 250
const COUNTS = [0, 10_000, 50_000]
const TIMES = 3
const [POD, FAR] = ['10.244.1.2', '10.244.2.2']
/** Each socket of the pod speaks with so many of the other side. */
const SERVERS = 250
const FIRST = 10_000
const REPORTS = '/dev/reports'

const [role = 'host', ...words] = process.argv.slice(2)
if (role === 'host') await host()
else if (role === 'guest') await guest()
else if (role === 'answer') await answer()
else await speak(words)

async function host(): Promise<void> {
  const line = `PLUMB_SANDBOX=1 ${process.execPath} ${join(import.meta.dir, 'renewal.ts')} guest >/dev/output 2>&1; sleep 1`
  const last = await commandInMachine(line, (text) => process.stdout.write(text), 'counted')
  process.stderr.write(`${last}\n`)
}

async function guest(): Promise<void> {
  intoMemory()
  wire()
  const path = new FastPath(['10.244.0.0/16'].map(parseCidr), run)
  const pods = Array.from({ length: PODS }, (_, i) => {
    const link = parse.ifname(`p${i}`)
    return { link, entrance: link, addresses: [parseIp(i === 0 ? POD : `10.244.3.${i}`)] }
  })
  const ways = { outer: [parse.ifname('far')], pods, unfinished: [], bridges: [], narrow: [], slow: 0, isBusy: false }
  await path.keep(ways, new Set(['far', ...pods.map(({ link }) => link)]))
  const server = Bun.spawn(inside('far', 'answer'), { stdout: 'pipe', stderr: 'inherit' })
  await linesOf(server.stdout).next()
  for (const count of COUNTS) {
    const sender = Bun.spawn(inside('pod', 'speak', `${count}`), { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' })
    const lines = linesOf(sender.stdout)
    for (let i = 0; i < TIMES; i++) {
      sender.stdin.write('once\n')
      sender.stdin.flush()
      await lines.next()
      const before = offloaded()
      const began = performance.now()
      await path.renew()
      const ms = Math.round((performance.now() - began) * 10) / 10
      appendFileSync(REPORTS, `${JSON.stringify({ ports: path.size, connections: count, offloaded: before, ms })}\n`)
    }
    sender.kill()
  }
  server.kill()
}

// The files of the machine below are slow to come, and the clock jumps meanwhile. A change of its times has the overlay
// copy a file into memory.
function intoMemory(): void {
  const programs = ['ip', 'nft', 'modprobe', 'sysctl'].flatMap((one) => Bun.which(one) ?? [])
  const libraries = tool(['sh', '-c', 'for f; do ldd "$f" || true; done', 'ldd', ...programs, process.execPath])
  const paths = [...programs, process.execPath, '/etc/ld.so.cache', ...(libraries.match(/\/\S+/g) ?? [])]
  const now = new Date()
  for (const path of new Set(paths.map((one) => realpathSync(one)))) utimesSync(path, now, now)
  tool(['nft', '--version'])
}

function inside(netns: string, ...more: readonly string[]): string[] {
  return ['ip', 'netns', 'exec', netns, process.execPath, import.meta.path, ...more]
}

function offloaded(): number {
  let found = 0
  for (const count of offloadedPieces()) found += count
  return found
}

function wire(): void {
  tool(['modprobe', '-a', 'nf_conntrack', 'nf_flow_table', 'veth'])
  for (const name of ['pod', 'far']) tool(['ip', 'netns', 'add', name])
  const lines = [
    'link set lo up',
    ...Array.from({ length: PODS }, (_, i) => `link add p${i} type veth peer name eth${i} netns pod`),
    'link add far type veth peer name eth0 netns far',
    ...['p0', 'far'].map((link) => `link set ${link} up`),
    'addr add 10.244.1.1/24 dev p0',
    'addr add 10.244.2.1/24 dev far',
  ]
  ip(lines)
  for (const [name, own, gate] of [
    ['pod', POD, '10.244.1.1'],
    ['far', FAR, '10.244.2.1'],
  ] as const)
    tool(
      ['ip', '-n', name, '-batch', '-'],
      ['link set lo up', 'link set eth0 up', `addr add ${own}/24 dev eth0`, `route add default via ${gate}`].join('\n'),
    )
  tool([
    'sysctl',
    '-qw',
    'net.ipv4.ip_forward=1',
    'net.netfilter.nf_conntrack_max=200000',
    'net.netfilter.nf_conntrack_udp_timeout=3000',
    'net.netfilter.nf_conntrack_udp_timeout_stream=3000',
    'net.netfilter.nf_flowtable_udp_timeout=3000',
  ])
}

/** Answers each datagram. */
async function answer(): Promise<void> {
  for (let i = 0; i < SERVERS; i++)
    await Bun.udpSocket({ port: FIRST + i, socket: { data: (own, _, port, ip) => void own.send('!', port, ip) } })
  process.stdout.write('ready\n')
}

/** For each line of its input: says one word on each connection, and hears the answer. */
async function speak([count = '0']: readonly string[]): Promise<void> {
  let heard = 0
  const data = () => void heard++
  const sockets = await Promise.all(
    Array.from({ length: Math.ceil(Number(count) / SERVERS) }, () => Bun.udpSocket({ socket: { data } })),
  )
  for await (const _ of linesOf(Bun.stdin.stream())) {
    for (const socket of sockets) {
      heard = 0
      for (let i = 0; i < SERVERS; i++) socket.send('?', FIRST + i, FAR)
      for (const end = performance.now() + 1000; heard < SERVERS && performance.now() < end; ) await Bun.sleep(1)
    }
    process.stdout.write('done\n')
  }
}
