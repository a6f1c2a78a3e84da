import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Recorder } from '../../agent/state/recorder.ts'
import { type Row, rowOf } from '../../agent/state/rows.ts'
import type { Peer } from '../../agent/state/status.ts'
import { ROW_PEERS, type Summary, summaryOf } from '../../agent/state/summary.ts'
import { listen } from '../../lib/os/http.ts'
import { type KubeServer, kubeServer } from '../../test/support/kube-server.ts'
import { inTerminal } from '../../test/support/screen.ts'
import { peers, scripted } from '../../test/support/scripted.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'

const PORT = 9469
const EVERY_MS = 15_000
/** The rounds that are measured, after the first one. */
const ROUNDS = 4
/** The budget by the number of nodes: the share of a core in percent, and memory in MB. */
const BUDGET = { 300: { share: 5, mb: 100 }, 5000: { share: 20, mb: 300 } } as const
const FLEETS = [
  { count: 300, isForwarded: false },
  { count: 300, isForwarded: true },
  { count: 5000, isForwarded: false },
] as const
const ZONES = ['a', 'b', 'c']
const LOOK_MS = 200
/** The clock of /proc/PID/stat, in ticks a second (USER_HZ). */
const TICKS = 100

/** What `plumb top --agents` costs beside so many scripted agents. One of a hundred is lost. */
export async function fleet(bench: Bench): Promise<Table> {
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const { count, isForwarded } of FLEETS) {
    const budget = BUDGET[count]
    const { share, mb, firstMs } = await measure(bench, count, isForwarded)
    const bar = judge(`≤ ${budget.share} % and ${budget.mb} MB`, [
      { name: '%', figure: share, met: share <= budget.share },
      { name: 'MB', figure: mb, met: mb <= budget.mb },
    ])
    bars.push(bar)
    const way = isForwarded ? 'port-forward' : 'HTTP'
    rows.push([`${count}`, way, short(firstMs / 1000), short(share), short(mb), bar.text])
  }
  return {
    title: 'Many nodes in one terminal',
    method: `plumb top in a terminal of 160 by 50: --agents over HTTP, and --kubeconfig by port-forward of an API server of the test. The agents are scripted. They and the API server are in another process: each answers its summary, and up to 300 nodes the way to each peer. One of a hundred nodes is lost for all others. CPU over ${(ROUNDS * EVERY_MS) / 1000} s after the first round, of one core; the most memory.`,
    head: ['nodes', 'by', 'first look, s', '% of a core', 'MB', 'bar'],
    rows,
    bars,
  }
}

async function measure(bench: Bench, count: number, isForwarded: boolean) {
  const served = serve(count, isForwarded)
  const file = join(bench.dataDir(), 'agents')
  writeFileSync(file, Array.from({ length: count }, (_, i) => addressOf(i)).join('\n'))
  const api = isForwarded ? await clusterOf(count) : undefined
  const options = api ? ['--kubeconfig', api.kubeconfig] : ['--agents', file]
  const screen = inTerminal([join(import.meta.dir, '../../dist/plumb'), 'top', ...options], { columns: 160, rows: 50 })
  try {
    const begun = performance.now()
    while (!screen.text.includes(`of ${count} nodes are ready`) || screen.text.includes('not asked yet')) {
      if (performance.now() - begun > 120_000) throw new Error(`plumb top shows no fleet:\n${screen.text}`)
      await Bun.sleep(LOOK_MS)
    }
    const firstMs = performance.now() - begun
    const { pid } = screen.process
    const [before, start] = [cpuMs(pid), performance.now()]
    await Bun.sleep(bench.times(ROUNDS) * EVERY_MS)
    const share = (100 * (cpuMs(pid) - before)) / (performance.now() - start)
    const [, peak = 0] = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
    return { share, mb: Number(peak) / 1000, firstMs }
  } finally {
    screen.close()
    api?.close()
    served.stop()
  }
}

// An API server with a Node and an agent's pod for each address. It is open until it is closed.
async function clusterOf(count: number): Promise<KubeServer> {
  const api = await kubeServer()
  const post = (path: string, body: object) =>
    fetch(`${api.url}${path}`, {
      method: 'POST',
      headers: { Authorization: 'Bearer secret-of-the-test' },
      body: JSON.stringify(body),
      tls: { rejectUnauthorized: false },
    })
  for (let i = 0; i < count; i++) {
    await post('/api/v1/nodes', { metadata: { name: `node-${i + 1}` } })
    const metadata = { name: `plumb-agent-${i}`, namespace: 'plumb', labels: { app: 'plumb-agent' } }
    await post('/api/v1/pods', { metadata, spec: { nodeName: `node-${i + 1}` } })
  }
  api.forward = (pod, port) => ({ hostname: hostOf(Number(pod.replace(/^.*-/, ''))), port })
  return api
}

function hostOf(i: number): string {
  return `127.1.${Math.floor(i / 250)}.${1 + (i % 250)}`
}

function addressOf(i: number): string {
  return `${hostOf(i)}:${PORT}`
}

// One listener for the addresses of all agents, as the Host says which one is asked. By port-forward it does not.
function serve(count: number, isForwarded: boolean): { stop(): void } {
  const all = peers(count).map((peer, i): Peer => {
    const zone = ZONES[i % ZONES.length] as string
    const probe =
      i % 100 === 99 ? { state: 'silent', sent: 10, lost: 10 } : { state: 'answers', sent: 10, lost: 0, ms: 0.4 }
    return { ...peer, zone, probe } as Peer
  })
  const rows = all.map((peer, i) => rowOf(i + 1, peer, undefined))
  const bodies = new Map(all.map((peer, i) => [addressOf(i), answerOf(peer, rows)]))
  const headers = { 'Content-Encoding': 'gzip' }
  const answer = (address: string) => ({
    status: 200,
    type: 'application/json',
    headers,
    body: bodies.get(address) ?? '',
  })
  if (!isForwarded) return listen({ hostname: '0.0.0.0', port: PORT }, ({ host }) => answer(host))
  const listeners = all.map((_, i) => listen({ hostname: hostOf(i), port: PORT }, () => answer(addressOf(i))))
  return {
    stop() {
      for (const one of listeners) one.stop()
    },
  }
}

let recent: { readonly rows: readonly Row[]; readonly summary: Summary } | undefined
// Without rows of single peers, all agents of a fleet say nearly the same.
function answerOf({ node = '', zone = '' }: Peer, rows: readonly Row[]): Uint8Array<ArrayBuffer> {
  const isSmall = rows.length <= ROW_PEERS
  if (isSmall || recent?.rows !== rows) {
    const others = isSmall ? rows.filter((row) => row.node !== node) : rows
    const { node: _, zone: __, ...status } = scripted({ peers: [] }).status()
    const about = { now: Date.now(), withRow: true }
    recent = { rows, summary: summaryOf({ ...status, node, zone }, others, new Recorder(), about) }
  }
  return Bun.gzipSync(JSON.stringify({ ...recent.summary, node, zone }), { level: 1 })
}

// utime and stime (proc(5)): the name of the process, which comes before them, may have spaces.
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return ((Number(fields[11]) + Number(fields[12])) / TICKS) * 1000
}
