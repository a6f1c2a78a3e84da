import type { Ip } from '../../lib/text/ip.ts'
import { type FullNode, openFullNode, type Seen, until } from '../agent/full-fixture.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { judge, short, type Table } from '../report.ts'

const [TIMES, FEW, STEP_MS] = [5, 3, 1000]
const [TCP, UDP] = [6, 17]
const UDP_EVERY = 40
/** The connections of UDP that lead to one endpoint. */
const FORMER = 240
/** The Services of UDP that lose an endpoint at once. */
const MANY = 50
/** After this time an agent has ended what it does beside its steps. */
const SETTLE_MS = 3000

/**
 * A node with 10,000 objects, 50,000 elements in nft and 500,000 connections: how long the steps of the agent's parts
 * take (F7).
 */
export async function full(bench: Bench): Promise<Table> {
  const node = await openFullNode(bench)
  try {
    const before = [await pod(node, 'before', bench.times(TIMES)), 0] as const
    const tracked = await node.ask({ what: 'fill' })
    await settle()
    const elements = node.elements()
    const rows: [string, readonly Seen[]][] = []
    const row = async (what: string, times: number, change: (round: number) => Promise<Seen>) => {
      const seen: Seen[] = []
      for (let round = 0; round < times; round++) {
        seen.push(await change(round))
        await settle()
      }
      rows.push([what, seen])
    }
    const times = bench.times(TIMES)
    await row('nothing', 1, () => node.watch(() => Bun.sleep(SETTLE_MS).then(() => 0)))
    await row('a Service of UDP loses an endpoint', times, (round) => loses(node, [round * UDP_EVERY]))
    await row(`${MANY} Services of UDP lose one`, 1, () =>
      loses(
        node,
        Array.from({ length: MANY }, (_, i) => (10 + i) * UDP_EVERY),
      ),
    )
    await row('a Service of TCP loses an endpoint', times, (round) => loses(node, [round * UDP_EVERY + 1]))
    await row('a policy closes a port of 5 pods', Math.min(times, FEW), () => closes(node, 'five', [], 7070))
    // Once: the agent looks at all connections when the port opens again, too, and a second round would wait for that.
    await row('a policy closes a port of 100 pods', 1, () => closes(node, 'all', [8080], 9090))
    const after = await pod(node, 'after', times)
    rows.push(['ADD of a pod (bridge)', after.add], ['DEL of a pod (bridge)', after.del])
    rows.push(...(await restart(node)))
    const bars = rows.map(([, seen]) => {
      const step = Math.max(...seen.map((one) => one.step))
      return judge('≤ 1 s', [{ name: 'ms', figure: step, met: step <= STEP_MS }])
    })
    const few = `ADD and DEL took ${short(median(before[0].add.map(({ effective }) => effective)))} and ${short(median(before[0].del.map(({ effective }) => effective)))} ms before there were connections.`
    return {
      title: 'A full node',
      method: `4,000 Services with 10 endpoints each and their slices, 1,500 pods, 480 policies, 20 namespaces: 10,000 objects. 100 pods on the node. ${elements.toLocaleString('en')} elements in nft, ${tracked.toLocaleString('en')} connections in the kernel. The longest step of any part, by the agent's own status, asked every 20 ms; the longest time that an answer took; and the median time until the change holds in the kernel. ${few}`,
      head: ['what changed', 'n', 'longest step ms', 'longest answer ms', 'effective ms', 'bar'],
      rows: rows.map(([what, seen], i) => {
        const most = (key: keyof Seen) => short(Math.max(...seen.map((one) => one[key])))
        return [
          what,
          String(seen.length),
          most('step'),
          most('silence'),
          short(median(seen.map(({ effective }) => effective))),
          bars[i]?.text ?? '',
        ]
      }),
      bars,
    }
  } finally {
    await node.close()
  }
}

function settle(): Promise<void> {
  return Bun.sleep(SETTLE_MS)
}

const dotted = (first: number, n: number) => `${first}.0.${n >> 8}.${n & 255}` as Ip
/** The connections to the first endpoint of a Service. */
const toFormer = (service: number) =>
  ({ family: 4, protocol: UDP, dst: dotted(11, service + 1), from: dotted(10, service * 10) }) as const

// It holds when the kernel has the elements. For UDP also no connection to the former endpoints may be left.
async function loses(node: FullNode, services: readonly number[]): Promise<Seen> {
  const before = (await node.status()).services
  const udp = services.filter((one) => one % UDP_EVERY === 0)
  const seen = await node.watch(async () => {
    const began = performance.now()
    for (const service of services) await node.ask({ what: 'endpoints', service, from: 1 })
    await until('the endpoints and their connections', async () => {
      const now = (await node.status()).services
      return (
        now?.endpoints === (before?.endpoints ?? 0) - services.length &&
        now.forgotten >= (before?.forgotten ?? 0) + udp.length * FORMER
      )
    })
    return performance.now() - began
  })
  // The kernel says so, too.
  for (const service of udp)
    if ((await node.ask({ what: 'tracked', sought: toFormer(service) })) > 0)
      throw new Error(`the agent forgot not all connections of Service ${service}`)
  return seen
}

// It holds when no connection to the port is left. Afterwards the port is open again, with connections.
async function closes(node: FullNode, name: 'all' | 'five', ports: readonly number[], port: number): Promise<Seen> {
  const sought = { family: 4, protocol: TCP, dport: port } as const
  if ((await node.ask({ what: 'tracked', sought })) === 0) throw new Error(`there are no connections to port ${port}`)
  const seen = await node.watch(async () => {
    const began = performance.now()
    await node.ask({ what: 'policy', name, ports: ports.length > 0 ? ports : [1] })
    await until(`no connections to port ${port}`, async () => (await node.ask({ what: 'tracked', sought })) === 0, 50)
    return performance.now() - began
  })
  await settle()
  await node.ask({ what: 'policy', name, ports: [...ports, port] })
  await settle()
  await node.ask({ what: 'fill', only: 'to pods' })
  return seen
}

// The agent knows the Pod before its ADD.
async function pod(
  node: FullNode,
  name: string,
  times: number,
): Promise<{ readonly add: Seen[]; readonly del: Seen[] }> {
  const [add, del]: [Seen[], Seen[]] = [[], []]
  for (let round = 0; round < times; round++) {
    const one = `${name}${round}`
    await node.ask({ what: 'pod', name: one, type: 'ADDED' })
    add.push(await node.watch(() => node.call('ADD', one)))
    del.push(await node.watch(() => node.call('DEL', one)))
    await node.ask({ what: 'pod', name: one, type: 'DELETED' })
  }
  return { add, del }
}

// While the agent is away, a Service of UDP loses an endpoint.
async function restart(node: FullNode): Promise<[string, Seen[]][]> {
  const service = 9 * UDP_EVERY
  await settle()
  const { services, policy } = await node.status()
  const isReady = async (endpoints: number) => {
    const now = await node.status().catch(() => undefined)
    return now?.ready === true && now.services?.endpoints === endpoints && now.policy?.pods === policy?.pods
  }
  const all = services?.endpoints ?? 0
  await node.stop()
  node.start()
  await until('the agent', () => isReady(all))
  // It looks at the connections now.
  const ended = await node.watch(async () => {
    const began = performance.now()
    await node.stop()
    return performance.now() - began
  })
  await node.ask({ what: 'endpoints', service, from: 1 })
  let ready = 0
  const seen = await node.watch(async () => {
    const began = performance.now()
    node.start()
    await until('the agent', () => isReady(all - 1))
    ready = performance.now() - began
    await until(
      'the connections of UDP',
      async () => (await node.ask({ what: 'tracked', sought: toFormer(service) })) === 0,
      50,
    )
    const forgotten = performance.now() - began
    // A step that began meanwhile ends.
    await settle()
    await settle()
    return forgotten
  })
  return [
    ['the agent ends after a start', [ended]],
    ['the agent starts again: ready', [{ ...seen, effective: ready }]],
    ['the same: connections of UDP looked at', [seen]],
  ]
}
