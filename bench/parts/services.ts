import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { linesOf } from '../../test/support/lines.ts'
import { LAB } from '../../tools/k8s/lab.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'

const KUBE_PROXY = join(LAB, 'bin/kube-proxy')
const NODE_SCRIPT = join(import.meta.dir, '../agent/services-node.ts')
/** The worlds: Services, endpoints of each, and whether kube-proxy takes part. It would take minutes in the larger ones. */
const WORLDS = [
  [10, 5, true],
  [10_000, 5, true],
  [30_000, 1, false],
  [44_000, 1, false],
  [5000, 50, false],
] as const
const MORE = 9
/** What nft holds in the largest transaction of the agent, 50,000 elements [measured: 117 MB]. */
const MOST_TOOL_MB = 120

interface Figures {
  readonly name: string
  readonly services: number
  readonly each: number
  readonly cold: number
  readonly more: number
  readonly p99: number
  readonly own: number
  readonly children: number
}

/** Services: cold load, one Service more, and the first packet, beside kube-proxy's nftables mode. */
export async function services(bench: Bench): Promise<Table> {
  const all: Figures[] = []
  for (const [count, each, hasBoth] of WORLDS) {
    const size = bench.times(count) < count && count > 10 ? count / 10 : count
    all.push(await measure(bench, 'plumb', size, each, ours))
    if (hasBoth && existsSync(KUBE_PROXY)) all.push(await measure(bench, 'kube-proxy (nftables)', size, each, theirs))
  }
  const rows = all.map(({ name, services, each, cold, more, p99, own, children }) => [name, services.toLocaleString('en'), String(each), short(cold / 1000), short(more), short(p99), short(own), Number.isNaN(children) ? 'less' : short(children)])
  const method =
    'An API server of the bench, one node. Time from the start of the program, with its lists, until a client on the node reaches the last Service. Median time from the event of a new Service until a client reaches it. The 99th percentile of 2,000 connections, made one by one. The most memory that the process held, and that one of its tools held where that is more, in MB.'
  return { title: 'Services', method, head: ['proxy', 'Services', 'endpoints each', 'cold s', 'one more ms', 'connect p99 ms', 'MB', 'MB of a tool'], rows, bars: barsOf(all) }
}

function barsOf(all: readonly Figures[]): Bar[] {
  const of = (name: string, services: number) => all.find((one) => one.name.startsWith(name) && one.services === services)
  const [own, other] = [of('plumb', 10_000), of('kube-proxy', 10_000)]
  const [few, many] = [of('plumb', 10), of('plumb', 30_000)]
  const whole = all.find((one) => one.services * one.each === 250_000)
  const most = (want: string, figure: number, limit: number, name: string) => judge(want, [{ name, figure, met: figure <= limit }])
  return [
    ...(own ? [most('10,000 × 5 cold ≤ 2 s', own.cold / 1000, 2, 's')] : []),
    ...(own && other ? [judge('≥ 10 × faster than kube-proxy', [{ name: 'times', figure: other.cold / own.cold, met: other.cold >= own.cold * 10 }])] : []),
    ...(whole ? [most('250,000 endpoints ≤ 10 s', whole.cold / 1000, 10, 's'), most('≤ 700 MB with nft', whole.own + (Number.isNaN(whole.children) ? Math.min(whole.own, MOST_TOOL_MB) : whole.children), 700, 'MB')] : []),
    ...all.filter(({ name, services }) => name === 'plumb' && services >= 10_000).map(({ services, more }) => most(`one more among ${services} ≤ 30 ms`, more, 30, 'ms')),
    ...(few && many ? [judge('first packet flat, ≤ 1.2 ×', [{ name: 'times', figure: many.p99 / few.p99, met: many.p99 <= few.p99 * 1.2 }])] : []),
  ]
}

type Start = (dir: string, netns: readonly string[]) => string[]

function ours(dir: string, netns: readonly string[]): string[] {
  mkdirSync(join(dir, 'store'))
  writeFileSync(join(dir, 'store/config'), JSON.stringify({ Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } }))
  const options = {
    store: 'file',
    'file-store-dir': join(dir, 'store'),
    'node-name': 'n1',
    'subnet-file': join(dir, 'subnet.env'),
    'state-dir': join(dir, 'state'),
    socket: join(dir, 'agent.sock'),
    'status-address': 'off',
    'service-proxy': 'kubernetes',
    'kube-api-url': 'http://127.0.0.1:6443',
  }
  return [...netns, join(import.meta.dir, '../../dist/plumb'), 'agent', ...Object.entries(options).map(([name, value]) => `--${name}=${value}`)]
}

function theirs(dir: string, netns: readonly string[]): string[] {
  const conf = { apiVersion: 'v1', kind: 'Config', clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:6443' } }], users: [{ name: 'u', user: {} }], contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }], 'current-context': 'x' }
  writeFileSync(join(dir, 'kubeconfig'), JSON.stringify(conf))
  const sysctls = ['--conntrack-max-per-core=0', '--conntrack-tcp-timeout-established=0', '--conntrack-tcp-timeout-close-wait=0']
  return [...netns, KUBE_PROXY, `--kubeconfig=${join(dir, 'kubeconfig')}`, '--hostname-override=n1', '--proxy-mode=nftables', '--kube-api-content-type=application/json', '--kube-api-qps=1000', '--kube-api-burst=1000', ...sysctls]
}

async function measure(bench: Bench, name: string, count: number, each: number, start: Start): Promise<Figures> {
  const dir = bench.dataDir()
  const ns = `svc-${Bun.hash(dir).toString(36).slice(0, 8)}`
  const setup = [
    `ip netns add ${ns}`,
    `ip -n ${ns} link set lo up`,
    `ip -n ${ns} addr add 10.250.0.1/16 dev lo`,
    `ip -n ${ns} link add name eth0 type veth peer name peer`,
    `ip -n ${ns} link set eth0 up`,
    `ip -n ${ns} link set peer up`,
    `ip -n ${ns} addr add 192.168.77.1/24 dev eth0`,
    `ip -n ${ns} route add default via 192.168.77.2`,
  ]
  const made = Bun.spawnSync(['sh', '-ec', setup.join('\n')], { stderr: 'pipe' })
  if (made.exitCode !== 0) throw new Error(made.stderr.toString())
  const netns = ['nsenter', `--net=/run/netns/${ns}`]
  const node = Bun.spawn([...netns, process.execPath, NODE_SCRIPT, String(count), String(each)], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' })
  const lines = linesOf(node.stdout)
  const next = async () => String((await lines.next()).value ?? '')
  const ask = async (command: string) => {
    node.stdin.write(`${command}\n`)
    node.stdin.flush()
    return Number(await next())
  }
  if ((await next()) !== 'ready') throw new Error('the API server of the bench did not start')
  const log = join(dir, 'log')
  const proxy = Bun.spawn(start(dir, netns), { stdout: Bun.file(log), stderr: Bun.file(`${log}.err`), env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' } })
  try {
    const cold = await Promise.race([ask('cold'), proxy.exited.then((status) => Promise.reject(new Error(`${name} ended with ${status}: ${readFileSync(`${log}.err`, 'utf8').slice(-2000)}`)))])
    // The first one comes while the program still ends its start.
    await ask('more')
    const more: number[] = []
    for (let i = 0; i < bench.times(MORE); i++) more.push(await ask('more'))
    const p99 = await ask('first')
    const own = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${proxy.pid}/status`, 'utf8'))?.[1]) / 1024
    proxy.kill()
    await proxy.exited
    const largest = (proxy.resourceUsage()?.maxRSS ?? 0) / 2 ** 20
    return { name, services: count, each, cold, more: median(more), p99, own, children: largest > own * 1.01 ? largest : Number.NaN }
  } finally {
    proxy.kill('SIGKILL')
    node.kill('SIGKILL')
    await Promise.all([proxy.exited, node.exited])
    Bun.spawnSync(['ip', 'netns', 'delete', ns])
  }
}
