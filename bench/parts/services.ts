import { existsSync } from 'node:fs'
import { type Accounting, account, usage } from '../agent/process.ts'
import { type Contender, KUBE_PROXY, kubeProxy, type Node, openNode, plumb } from '../agent/services-fixture.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { load } from '../traffic.ts'

/**
 * The worlds: Services, endpoints of each, and whether kube-proxy takes part. In the larger ones it would take minutes.
 */
const FIXTURES = [
  [10, 5, true],
  [10_000, 5, true],
  [30_000, 1, false],
  [44_000, 1, false],
  [5000, 50, false],
] as const
/** The nodes whose first packets are compared, by Services. */
const FIRST = [10, 10_000, 30_000]
const MORE = 9
/** Rounds of connections, and the connections of one. */
const [ROUNDS, CONNECTIONS] = [9, 2000]
const [TRAFFIC_ROUNDS, TRAFFIC_MS, PORT] = [9, 3000, 5201]
const [SETTLE_MS, IDLE_MS] = [2000, 20_000]
/** What nft holds in the largest transaction of the agent, 50,000 elements [measured: 117 MB]. */
const MOST_TOOL_MB = 120

interface Figures {
  readonly proxy: string
  readonly services: number
  readonly endpoints: number
  readonly cold: number
  readonly more: number
  readonly own: number
  readonly tool: number | undefined
}

/** Services beside kube-proxy's nftables mode: cold load, one Service more, the first packet, idle, and throughput. */
export async function services(bench: Bench): Promise<Table[]> {
  const hasOther = existsSync(KUBE_PROXY)
  return [await loads(bench, hasOther), await packets(bench, hasOther), await throughput(bench, hasOther)]
}

function sizeOf(bench: Bench, count: number): number {
  return bench.times(count) < count && count > 10 ? count / 10 : count
}

async function loads(bench: Bench, hasOther: boolean): Promise<Table> {
  const all: Figures[] = []
  for (const [count, endpoints, isBoth] of FIXTURES)
    for (const proxy of isBoth && hasOther ? [plumb, kubeProxy] : [plumb])
      all.push(await measure(bench, proxy, sizeOf(bench, count), endpoints))
  const find = (proxy: Contender, services: number) =>
    all.find((one) => one.proxy === proxy.name && one.services === services)
  const other = find(kubeProxy, 10_000)
  const bars: Bar[] = []
  const rows = all.map(({ proxy, services, endpoints, cold, more, own, tool }) => {
    const judged = proxy === plumb.name ? barsOf({ proxy, services, endpoints, cold, more, own, tool }, other) : []
    bars.push(...judged)
    return [
      proxy,
      services.toLocaleString('en'),
      String(endpoints),
      short(cold / 1000),
      short(more),
      short(own),
      tool === undefined ? 'less' : short(tool),
      judged.map(({ text }) => text).join('; '),
    ]
  })
  const method =
    'An API server of the bench, one node. Time from the start of the program, with its lists, until a client on the node reaches the last Service. Median time from the event of a new Service until a client reaches it. The most memory that the process held, and that one of its tools held where that is more, in MB.'
  return {
    title: 'Services: load',
    method,
    head: ['proxy', 'Services', 'endpoints each', 'cold s', 'one more ms', 'MB', 'MB of a tool', 'bars'],
    rows,
    bars,
  }
}

function barsOf({ services, endpoints, cold, more, own, tool }: Figures, other: Figures | undefined): Bar[] {
  const most = (want: string, figure: number, limit: number, name: string) =>
    judge(want, [{ name, figure, met: figure <= limit }])
  const memory = own + (tool ?? Math.min(own, MOST_TOOL_MB))
  return [
    ...(services === 10_000 ? [most('≤ 2 s', cold / 1000, 2, 's')] : []),
    ...(services === 10_000 && other
      ? [judge('≥ 10 × faster', [{ name: 'times', figure: other.cold / cold, met: other.cold >= cold * 10 }])]
      : []),
    ...(services * endpoints === 250_000
      ? [most('≤ 10 s', cold / 1000, 10, 's'), most('≤ 700 MB with nft', memory, 700, 'MB')]
      : []),
    ...(services >= 10_000 ? [most('one more ≤ 30 ms', more, 30, 'ms')] : []),
  ]
}

async function measure(bench: Bench, proxy: Contender, services: number, endpoints: number): Promise<Figures> {
  const node = await openNode(bench, proxy, services, endpoints)
  try {
    const cold = await node.cold()
    // The first one comes while the program still ends its start.
    await node.more()
    const more: number[] = []
    for (let i = 0; i < bench.times(MORE); i++) more.push(await node.more())
    return { proxy: proxy.name, services, endpoints, cold, more: median(more), ...(await node.end()) }
  } finally {
    await node.close()
  }
}

interface Packets {
  readonly node: Node
  readonly services: number
  readonly p50: number[]
  readonly p99: number[]
}

// First packets and rest. All nodes stand at once, and take turns.
async function packets(bench: Bench, hasOther: boolean): Promise<Table> {
  const nodes: Packets[] = []
  const accounting = account(`${bench.dataDir()}/processes`)
  try {
    for (const count of FIRST)
      for (const proxy of hasOther ? [plumb, kubeProxy] : [plumb]) {
        const services = sizeOf(bench, count)
        const node = await openNode(bench, proxy, services, 1)
        nodes.push({ node, services, p50: [], p99: [] })
        await node.cold()
      }
    await Bun.sleep(SETTLE_MS)
    const rest = await idle(bench, nodes, accounting)
    for (let round = 0; round < bench.times(ROUNDS); round++)
      for (let i = 0; i < nodes.length; i++) {
        const { node, p50, p99 } = nodes[(i + round) % nodes.length] as Packets
        const times = (await node.connections(CONNECTIONS)).sort((a, b) => a - b)
        p50.push(times[times.length >> 1] as number)
        p99.push(times[Math.floor(times.length * 0.99)] as number)
      }
    const find = (proxy: Contender, count: number) =>
      nodes.find(({ node, services }) => node.proxy === proxy.name && services === sizeOf(bench, count))
    const p99 = (one: Packets | undefined) => (one ? median(one.p99) : Number.NaN)
    const few = p99(find(plumb, 10))
    const bars: Bar[] = []
    const rows = nodes.map((one) => {
      const { node, services } = one
      const { cpu, started } = rest.get(one) as Rest
      const [figure, other] = [p99(one), p99(find(kubeProxy, services))]
      const flat = figure / few
      const judged =
        node.proxy !== plumb.name
          ? []
          : [
              ...(services > 10
                ? [judge('p99 ≤ 1.2 × of 10 Services', [{ name: '×', figure: flat, met: flat <= 1.2 }])]
                : []),
              // Two equal things differ by a few hundredths here.
              ...(Number.isNaN(other)
                ? []
                : [
                    judge('p99 not slower', [
                      { name: '× of kube-proxy', figure: figure / other, met: figure / other <= 1.05 },
                    ]),
                  ]),
              ...(started === undefined
                ? []
                : [judge('0 processes', [{ name: 'started', figure: started, met: started === 0 }])]),
            ]
      bars.push(...judged)
      return [
        node.proxy,
        services.toLocaleString('en'),
        short(median(one.p50)),
        short(figure),
        short(cpu),
        started === undefined ? 'not counted' : String(started),
        judged.map(({ text }) => text).join('; '),
      ]
    })
    const method = `Nodes with one endpoint for each Service, all at once. First packet: ${bench.times(ROUNDS)} rounds in which each node in turn makes ${CONNECTIONS.toLocaleString('en')} connections, one after another; medians of the rounds' medians and 99th percentiles, in ms. Idle: ${IDLE_MS / 1000} s before that; the CPU of the program and of all that it starts, and the processes that it started and that have ended, by the kernel's accounting (acct).`
    return {
      title: 'Services: first packet, and idle',
      method,
      head: ['proxy', 'Services', 'connect p50 ms', 'connect p99 ms', 'idle, % of a core', 'processes', 'bars'],
      rows,
      bars,
    }
  } finally {
    accounting.stop()
    for (const { node } of nodes) await node.close()
  }
}

interface Rest {
  readonly cpu: number
  readonly started: number | undefined
}

async function idle(bench: Bench, nodes: readonly Packets[], accounting: Accounting): Promise<Map<Packets, Rest>> {
  const ms = bench.times(IDLE_MS)
  const look = ({ node }: Packets) => {
    const { own, children } = usage(node.pid)
    return { used: own + children, ended: accounting.endedOf(node.pid) }
  }
  const before = nodes.map(look)
  await Bun.sleep(ms)
  return new Map(
    nodes.map((one, i) => {
      const [was, is] = [before[i] as ReturnType<typeof look>, look(one)]
      return [
        one,
        {
          cpu: ((is.used - was.used) / ms) * 100,
          started: is.ended === undefined || was.ended === undefined ? undefined : is.ended - was.ended,
        },
      ]
    }),
  )
}

// One connection from a pod to a Service whose endpoint is another pod of the node.
async function throughput(bench: Bench, hasOther: boolean): Promise<Table> {
  const nodes: Node[] = []
  try {
    for (const proxy of hasOther ? [plumb, kubeProxy] : [plumb])
      nodes.push(await openNode(bench, proxy, sizeOf(bench, 10_000), 1))
    const vips: string[] = []
    for (const node of nodes) {
      await node.cold()
      vips.push(await node.podService(PORT))
    }
    await Bun.sleep(SETTLE_MS)
    const rates = nodes.map((): number[] => [])
    for (let round = 0; round < bench.times(TRAFFIC_ROUNDS); round++)
      for (let i = 0; i < nodes.length; i++) {
        const at = (i + round) % nodes.length
        const [client, server] = (nodes[at] as Node).pods
        const { rate } = await load(client, server, vips[at] as string, bench.times(TRAFFIC_MS))
        rates[at]?.push(rate)
      }
    const [own, other] = rates.map(median)
    // Each round gives a ratio of its own: what the machine does meanwhile meets both.
    const ratio =
      other === undefined ? undefined : median((rates[0] ?? []).map((rate, i) => rate / (rates[1]?.[i] as number)))
    const bars =
      ratio === undefined ? [] : [judge('≥ 0.98 of kube-proxy', [{ name: 'of it', figure: ratio, met: ratio >= 0.98 }])]
    const method = `One TCP connection from a pod to the ClusterIP of a Service whose endpoint is another pod of the same bridge, among ${sizeOf(bench, 10_000).toLocaleString('en')} Services. ${bench.times(TRAFFIC_ROUNDS)} rounds in turn; medians in Gbit/s, and the median of the rounds' ratios.`
    return {
      title: 'Services: throughput',
      method,
      head: ['plumb', 'kube-proxy (nftables)', 'ratio', 'bar'],
      rows: [
        [
          short((own as number) / 1e9),
          other === undefined ? 'not built' : short(other / 1e9),
          ratio === undefined ? '' : ratio.toFixed(3),
          bars.map(({ text }) => text).join('; '),
        ],
      ],
      bars,
    }
  } finally {
    for (const node of nodes) await node.close()
  }
}
