// Measures in the counted machine. Its argument is what to measure; a line of JSON for each figure goes to
// /dev/reports.
import { appendFileSync, globSync, mkdirSync, readFileSync, realpathSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inside } from '../../lib/os/netns.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { flanneld } from '../../scripts/peers.ts'
import { KUBE_PROXY } from '../agent/services-fixture.ts'
import { makePlaces } from '../node.ts'
import { run } from '../tools.ts'
import { callsBeside, callsOf } from './calls.ts'
import { PORT, VIP, VIP_PORT } from './manifests.ts'
import { type Contender, type Nodes, openNodes } from './nodes.ts'
import { KINDS, type Path, WORLDS, type WorldName } from './paths.ts'
import type { Batches, Command, Kind, Target } from './traffic.ts'

/** What is measured in one run of the machine. */
export interface Order {
  readonly contenders: readonly Contender[]
  readonly paths: readonly Path[]
  /** Whether plugin calls are measured. */
  readonly calls: boolean
  /** Whether calls beside an agent are measured, in the world `vxlan` of each contender that is plumb. */
  readonly beside: boolean
}
/** A line of what it found. */
export type Found =
  | {
      readonly what: 'path'
      readonly contender: string
      readonly path: string
      readonly kind: Kind
      /** Instructions of one unit. */
      readonly instructions: number
      /** By how much the two fastest batches differ, as a part of one. */
      readonly spread: number
      /** The largest part of a batch in which nothing ran. */
      readonly idle: number
      /** Whether the kernel has offloaded the connection, on each node; empty where there is not one that lasts. */
      readonly flow: string
    }
  | {
      /** A call by itself, or one on a node with an agent. */
      readonly what: 'call' | 'beside'
      readonly contender: string
      readonly call: string
      readonly instructions: number
      readonly spread: number
    }
  | { readonly what: 'took'; readonly text: string }
  | { readonly what: 'versions'; readonly versions: Readonly<Record<string, string>> }
  | { readonly what: 'end' }

const REPORTS = '/dev/reports'
const PROGRAM = join(import.meta.dir, 'traffic.ts')
const FILTER = '/proc/sys/net/bridge/bridge-nf-call-iptables'
const MODULES = ['br_netfilter', 'nf_conntrack', 'vxlan', 'nf_tables', 'veth', 'bridge']
const REACHED_MS = 60_000
const TOOLS = [
  'ip',
  'nft',
  'bridge',
  'tc',
  'conntrack',
  'iptables',
  'ip6tables',
  'iptables-restore',
  'ip6tables-restore',
  'true',
]
const DATA = [
  '/etc/ld.so.cache',
  '/etc/iproute2/*',
  '/etc/{passwd,group,nsswitch.conf,hosts,protocols,services}',
  '/usr/lib/*/xtables/*.so',
]

function tell(found: Found): void {
  appendFileSync(REPORTS, `${JSON.stringify(found)}\n`)
}

// What programs open, into the memory of the machine: a change of its times has the overlay copy a file there. The files
// of the machine below are slow to come, and the clock jumps meanwhile, also over the limits of a plugin's tools.
function intoMemory(contenders: readonly Contender[]): void {
  const tools = TOOLS.flatMap((one) => Bun.which(one) ?? [])
  const peers = contenders.some(({ plugins }) => !plugins.ours)
    ? [KUBE_PROXY, flanneld()?.path ?? '', Bun.which('etcd') ?? '']
    : []
  const folders = contenders.flatMap(({ plugins }) => (plugins.ours ? [] : `${plugins.dir}/*`))
  const programs = [...tools, ...peers.filter(Boolean), process.execPath]
  const libraries = run(['sh', '-c', 'for f; do ldd "$f" 2>/dev/null || true; done', 'ldd', ...programs])
  const data = [...DATA, ...folders].flatMap((one) => globSync(one))
  const paths = [...programs, ...(libraries.match(/\/\S+/g) ?? []), ...data].map((one) => realpathSync(one))
  const now = new Date()
  for (const path of new Set(paths)) utimesSync(path, now, now)
}

/** A traffic program. */
interface Traffic {
  ask(command: Command): Promise<unknown>
}

function traffic(): Traffic {
  const child = Bun.spawn([process.execPath, PROGRAM], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
    env: { ...process.env, BUN_JSC_useConcurrentJIT: '0', BUN_JSC_useDFGJIT: '0' },
  })
  const lines = linesOf(child.stdout)
  return {
    async ask(command) {
      child.stdin.write(`${JSON.stringify(command)}\n`)
      child.stdin.flush()
      const { value } = await lines.next()
      if (value === undefined) throw new Error(`the traffic program ended at ${JSON.stringify(command)}`)
      return JSON.parse(value)
    },
  }
}

async function main(order: Order): Promise<void> {
  const clock = Bun.spawn([process.execPath, join(import.meta.dir, 'clock.ts')], { stderr: 'inherit' })
  tell({ what: 'versions', versions: versions() })
  intoMemory(order.contenders)
  run(['modprobe', '-a', ...MODULES])
  mkdirSync('/run/budget')
  tell({ what: 'took', text: 'the start' })
  if (order.calls) {
    for (const found of callsOf(order.contenders, clock.pid)) tell({ what: 'call', ...found })
    tell({ what: 'took', text: 'calls' })
  }
  const [client, server] = [traffic(), traffic()]
  if (order.paths.length > 0) await warm(client, server, clock)
  tell({ what: 'took', text: 'the warm-up' })
  for (const contender of order.contenders)
    for (const world of Object.keys(WORLDS) as WorldName[]) {
      const paths = order.paths.filter((path) => path.world === world && (contender.plugins.ours || !path.isExtra))
      if (paths.length === 0) continue
      const nodes = await openNodes(WORLDS[world], contender)
      try {
        // Who serves Services comes last: then the rules of all programs are in the kernel.
        const { target, at } = ends({ from: 'a1', to: 'b1', isService: true }, nodes)
        await reached(`${contender.name}, ${world}: the Service`, target, at, nodes, client, server)
        tell({ what: 'took', text: `${contender.name}, ${world}: nodes` })
        for (const path of paths) await measure(path, contender, nodes, client, server, clock)
        if (order.beside && contender.plugins.ours && world === 'vxlan')
          for (const found of callsBeside(contender, nodes, clock.pid)) tell({ what: 'beside', ...found })
      } finally {
        nodes.freeze(false)
        await nodes.close()
      }
    }
  tell({ what: 'end' })
}

// Code is made ready, on loopback, so that no path pays for it.
async function warm(client: Traffic, server: Traffic, clock: Bun.Subprocess): Promise<void> {
  const [place] = makePlaces(['warm']) as [never]
  const target: Target = { place, address: '127.0.0.1', port: PORT }
  // Both programs are in memory when they answer.
  for (const program of [client, server]) await program.ask({ do: 'close' })
  clock.kill('SIGSTOP')
  for (const kind of KINDS) await one(kind, target, target, client, server)
  clock.kill('SIGCONT')
}

async function one(
  kind: Kind,
  target: Target,
  at: Target,
  client: Traffic,
  server: Traffic,
  meanwhile = () => '',
): Promise<Batches & { readonly flow: string }> {
  await server.ask({ do: 'listen', place: at.place, port: at.port })
  const answering = { stream: 'sink', request: 'echo', connection: 'accept', first: undefined } as const
  const doing = answering[kind]
  const served = doing && server.ask({ do: doing })
  const batches = (await client.ask({ do: kind, ...target })) as Batches
  const flow = meanwhile()
  if (kind === 'stream' || kind === 'request') await client.ask({ do: 'close' })
  await served
  return { ...batches, flow }
}

async function measure(
  path: Path,
  contender: Contender,
  nodes: Nodes,
  client: Traffic,
  server: Traffic,
  clock: Bun.Subprocess,
): Promise<void> {
  const { target, at } = ends(path, nodes)
  await reached(path.name, target, at, nodes, client, server)
  clock.kill('SIGSTOP')
  // What programs do after their start is over then. The clock jumps over it.
  await Bun.sleep(5000)
  nodes.freeze(true)
  inside(nodes.node('n1'), () => writeFileSync(FILTER, String(path.bridgeFilter ?? 1)))
  for (const kind of KINDS) {
    const flows = () => (kind === 'stream' || kind === 'request' ? flowsOf(nodes) : '')
    const { each, idle, flow } = await one(kind, target, at, client, server, flows)
    process.stderr.write(`${contender.name}, ${path.name}, ${kind}: ${each.map(Math.round).join(' ')}\n`)
    const [least, second] = [...each].sort((a, b) => a - b) as [number, number]
    tell({
      what: 'path',
      contender: contender.name,
      path: path.name,
      kind,
      instructions: Math.round(least),
      spread: second / least - 1,
      idle,
      flow,
    })
  }
  inside(nodes.node('n1'), () => writeFileSync(FILTER, '1'))
  nodes.freeze(false)
  clock.kill('SIGCONT')
  tell({ what: 'took', text: `${contender.name}, ${path.name}` })
}

// Where the client of a path asks, and where it is answered.
function ends(path: Pick<Path, 'from' | 'to' | 'isService'>, nodes: Nodes): { target: Target; at: Target } {
  const from = nodes.pod(path.from).place
  const at = { ...nodes.pod(path.to), port: PORT }
  return { at, target: path.isService ? { place: from, address: VIP, port: VIP_PORT } : { ...at, place: from } }
}

async function reached(
  what: string,
  target: Target,
  at: Target,
  nodes: Nodes,
  client: Traffic,
  server: Traffic,
): Promise<void> {
  await server.ask({ do: 'listen', place: at.place, port: at.port })
  const end = performance.now() + REACHED_MS
  while (!(await client.ask({ do: 'probe', ...target }))) {
    nodes.look()
    if (performance.now() > end) throw new Error(`${what}: no answer from ${target.address}: ${nodes.said()}`)
    await Bun.sleep(200)
  }
}

// The connection of the traffic on each node, as conntrack lists it: followed by the rules, offloaded, or not there.
function flowsOf(nodes: Nodes): string {
  return (['n1', 'n2'] as const)
    .map((name) => {
      const text = inside(nodes.node(name), () => run(['conntrack', '-L', '-p', 'tcp']))
      const rows = text.split('\n').filter((row) => /dport=(80|8080) /.test(row) && /ESTABLISHED|OFFLOAD/.test(row))
      if (rows.length === 0) return `${name} untracked`
      return `${name} ${rows.some((row) => /\[(HW_)?OFFLOAD\]/.test(row)) ? 'offloaded' : 'by rules'}`
    })
    .join(', ')
}

function versions(): Record<string, string> {
  return {
    kernel: readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim(),
    nft: run(['nft', '-v']).replace(/ \(.*/s, '').trim(),
    iproute2: run(['ip', '-V'])
      .trim()
      .replace(/^ip utility, /, ''),
    bun: Bun.version,
  }
}

try {
  await main(JSON.parse(process.argv[2] as string))
} catch (cause) {
  process.stderr.write(`${(cause as Error).stack}\n`)
  process.exitCode = 1
}
process.exit()
