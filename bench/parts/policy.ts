import { writeFileSync } from 'node:fs'
import { namespaceOf, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { run } from '../../agent/kernel/run.ts'
import { load, update } from '../../agent/policy/program.ts'
import { everything, PolicyState } from '../../agent/policy/state.ts'
import { REMOVE } from '../../agent/policy/table.ts'
import { inside } from '../../lib/os/netns.ts'
import { parseCidr } from '../../lib/text/ip.ts'
import type { Place } from '../call.ts'
import { makePlaces, removePlaces } from '../node.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { ip } from '../tools.ts'
import { load as throughput } from '../traffic.ts'

const [PODS, NAMESPACES, LOCAL] = [10_000, 100, 250]
const [TIMES, NODE] = [30, 'node-1']
const OPTIONS = { subnets: [parseCidr('10.244.1.0/24')], isAudit: false }
const [POD_MS, POLICY_MS, COLD_MS, MEMORY_MB] = [10, 50, 2000, 200]

/**
 * What NetworkPolicy costs the agent, from the objects to the kernel: the engine with the real nft, in a cluster of
 * 10,000 pods.
 */
export async function policy(bench: Bench): Promise<readonly Table[]> {
  return [await engine(bench), await path(bench)]
}

async function engine(bench: Bench): Promise<Table> {
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const policies of [200, 1000]) {
    const cluster = clusterOf(policies)
    const started = performance.now()
    const state = new PolicyState(cluster, NODE)
    state.apply(everything(cluster))
    const compiled = performance.now() - started
    await load(state, OPTIONS, run)
    const cold = performance.now() - started
    const sets = [...state.items.all()]
    const memory = process.memoryUsage.rss() / 1e6
    const onePod: number[] = []
    const changed: number[] = []
    for (let i = 0; i < bench.times(TIMES); i++) {
      const key = 'ns-0/new'
      onePod.push(
        await timed(
          state,
          'pods',
          key,
          () => void cluster.pods.set(key, pod('ns-0', 'new', i, 'elsewhere', `10.250.${i}.1`)),
        ),
      )
      await timed(state, 'pods', key, () => void cluster.pods.delete(key))
      changed.push(
        await timed(state, 'policies', 'ns-0/p0', () => void cluster.policies.set('ns-0/p0', policyAt(0, 8000 + i))),
      )
    }
    const [one, other] = [median(onePod), median(changed)]
    // The bars are for a node with 200 policies, and the cold start for one with 1,000.
    const own =
      policies === 200
        ? [
            judge(`≤ ${POD_MS} ms`, [{ name: 'one pod more', figure: one, met: one <= POD_MS }]),
            judge(`≤ ${POLICY_MS} ms`, [{ name: 'one policy changed', figure: other, met: other <= POLICY_MS }]),
          ]
        : [
            judge(`≤ ${COLD_MS / 1000} s`, [{ name: 'cold', figure: cold, met: cold <= COLD_MS }]),
            judge(`≤ ${MEMORY_MB} MB`, [{ name: 'memory', figure: memory, met: memory <= MEMORY_MB }]),
          ]
    bars.push(...own)
    rows.push([
      String(policies),
      String(sets.length),
      short(compiled),
      short(cold),
      short(memory),
      short(one),
      short(other),
      own.map(({ text }) => text).join('; '),
    ])
  }
  return {
    title: 'NetworkPolicy: from the objects to the kernel',
    method: `A cluster of ${PODS.toLocaleString('en')} pods in ${NAMESPACES} namespaces, ${LOCAL} of them on this node; policies spread over the namespaces, each with two selectors, a block of addresses and ports; all of them select local pods. In the process of the bench, with the agent's own code and the real nft. Cold: everything compiled, and loaded in one transaction. Medians in ms; memory is that of the whole process after the load.`,
    head: [
      'policies',
      'chains, sets and counters',
      'compiled, ms',
      'cold with nft, ms',
      'MB',
      'one pod more, ms',
      'one policy changed, ms',
      'bars',
    ],
    rows,
    bars,
  }
}

const [SENDER, RECEIVER, BASE] = ['10.244.1.0', '10.244.1.100', '10.244.1.254']
const FIRST = 500

// A connection between two pods of a bridge, which 1,000 policies concern, and the same without a policy. In turn, in
// one kernel.
async function path(bench: Bench): Promise<Table> {
  const [node, sender, receiver] = makePlaces(['policynode', 'policyfrom', 'policyto']) as [Place, Place, Place]
  try {
    inside(node, () => {
      ip([
        'link add cni0 type bridge',
        `addr add ${BASE}/24 dev cni0`,
        'link set cni0 up',
        `link add from0 master cni0 up type veth peer name eth0 netns ${sender}`,
        `link add to0 master cni0 up type veth peer name eth0 netns ${receiver}`,
      ])
      writeFileSync('/proc/sys/net/bridge/bridge-nf-call-iptables', '1')
    })
    for (const [place, address] of [
      [sender, SENDER],
      [receiver, RECEIVER],
    ] as const)
      inside(place, () => ip([`addr add ${address}/23 dev eth0`, 'link set eth0 up']))
    const cluster = clusterOf(1000)
    // The last policy that lets the two talk, among a thousand.
    cluster.policies.set(
      'ns-0/zz',
      policyOf({
        metadata: { namespace: 'ns-0', name: 'zz' },
        spec: {
          podSelector: {},
          policyTypes: ['Ingress', 'Egress'],
          ingress: [{ from: [{ podSelector: {} }] }],
          egress: [{ to: [{ podSelector: {} }] }],
        },
      }),
    )
    const there = (argv: readonly string[], stdin: string) => run(['nsenter', `--net=${node}`, '--', ...argv], stdin)
    const state = new PolicyState(cluster, NODE)
    state.apply(everything(cluster))
    // Every node that masquerades follows its connections, and only the policies are to differ.
    await there(
      ['nft', '-f', '-'],
      'table inet masquerade { chain postrouting { type nat hook postrouting priority srcnat; }; }\n',
    )
    const sides = { none: [] as { rate: number; first: number }[], policies: [] as { rate: number; first: number }[] }
    for (let round = 0; round < bench.times(5); round++)
      for (const side of ['none', 'policies'] as const) {
        if (side === 'policies') await load(state, OPTIONS, there)
        else await there(['nft', '-f', '-'], REMOVE)
        const first = await firstPackets(sender, receiver)
        const { rate } = await throughput(sender, receiver, RECEIVER, bench.times(10) * 500)
        sides[side].push({ rate, first })
      }
    const of = (side: keyof typeof sides, what: 'rate' | 'first') => median(sides[side].map((one) => one[what]))
    const [rate, first] = [of('policies', 'rate') / of('none', 'rate'), of('policies', 'first') / of('none', 'first')]
    const bars = [
      judge('≥ 0.97', [{ name: 'throughput', figure: rate, met: rate >= 0.97 }]),
      judge('≤ 1.2', [{ name: 'first packet', figure: first, met: first <= 1.2 }]),
    ]
    return {
      title: 'NetworkPolicy: the path of packets',
      method: `Two pods of one bridge, in a namespace that stands for the node. With 1,000 policies, ten of which isolate both pods in both directions, and the last of which lets them talk; and without the table. The node follows connections in both cases, as any does that masquerades. In turn, medians of ${bench.times(5)} rounds. First packet: the median of ${FIRST} TCP connections, one after another, until the answer is there. Throughput: one TCP connection.`,
      head: ['what', 'without', 'with 1,000 policies', 'ratio', 'bar'],
      rows: [
        [
          'throughput, Gbit/s',
          short(of('none', 'rate') / 1e9),
          short(of('policies', 'rate') / 1e9),
          short(rate),
          bars[0]?.text ?? '',
        ],
        [
          'first packet, ms',
          short(of('none', 'first')),
          short(of('policies', 'first')),
          short(first),
          bars[1]?.text ?? '',
        ],
      ],
      bars,
    }
  } finally {
    removePlaces([node, sender, receiver])
  }
}

// The median time of a connection in milliseconds.
async function firstPackets(from: Place, to: Place): Promise<number> {
  const server = inside(to, () =>
    Bun.spawn(
      [
        process.execPath,
        '-e',
        `require('node:net').createServer((socket) => socket.on('error', () => {}).end()).listen(5202, () => console.log('ready'))`,
      ],
      { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' },
    ),
  )
  try {
    await server.stdout.getReader().read()
    const client = inside(from, () =>
      Bun.spawn([process.execPath, '-e', CONNECTS, RECEIVER, String(FIRST)], {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'inherit',
      }),
    )
    return median(JSON.parse(await new Response(client.stdout).text()))
  } finally {
    server.kill()
    await server.exited
  }
}

const CONNECTS = `
const [address, count] = process.argv.slice(-2)
const times = []
const next = () => {
  if (times.length === Number(count)) return console.log(JSON.stringify(times))
  const started = performance.now()
  const socket = require('node:net').connect(5202, address)
  socket.on('connect', () => { times.push(performance.now() - started); socket.destroy(); setImmediate(next) })
}
next()`

async function timed(state: PolicyState, kind: 'pods' | 'policies', key: string, change: () => void): Promise<number> {
  const started = performance.now()
  change()
  state.apply(new Map([[kind, new Set([key])]]))
  await update(state, run)
  return performance.now() - started
}

function clusterOf(policies: number) {
  const namespaces = new Map(
    Array.from({ length: NAMESPACES }, (_, i) => [
      `ns-${i}`,
      namespaceOf({ metadata: { name: `ns-${i}`, labels: { team: `t${i % 10}` } } }),
    ]),
  )
  const pods = new Map(
    Array.from({ length: PODS }, (_, i) => {
      const [namespace, name] = [`ns-${i % NAMESPACES}`, `pod-${i}`]
      const isLocal = i < LOCAL
      return [
        `${namespace}/${name}`,
        pod(
          namespace,
          name,
          i,
          isLocal ? NODE : `node-${2 + (i % 50)}`,
          isLocal ? `10.244.1.${i}` : `10.245.${i >> 8}.${i & 255}`,
        ),
      ] as const
    }),
  )
  return {
    pods: new Map(pods),
    namespaces,
    policies: new Map(Array.from({ length: policies }, (_, i) => [`ns-${i % NAMESPACES}/p${i}`, policyAt(i, 8000)])),
    clusterPolicies: new Map(),
    nodes: new Map(),
  }
}

function pod(namespace: string, name: string, i: number, node: string, ip: string) {
  const found = podOf({
    metadata: { namespace, name, labels: { app: `a${i % 20}`, tier: i % 2 ? 'web' : 'db' } },
    spec: { nodeName: node, containers: [{ ports: [{ name: 'web', containerPort: 8080 }] }] },
    status: { podIPs: [{ ip }] },
  })
  if (!found) throw new Error(`${name} is no pod`)
  return found
}

function policyAt(i: number, port: number) {
  return policyOf({
    metadata: { namespace: `ns-${i % NAMESPACES}`, name: `p${i}` },
    spec: {
      podSelector: {},
      policyTypes: ['Ingress', 'Egress'],
      ingress: [
        {
          from: [
            { podSelector: { matchLabels: { app: `a${i % 20}` } } },
            { namespaceSelector: { matchLabels: { team: `t${i % 10}` } } },
            { ipBlock: { cidr: `172.16.${i % 256}.0/24` } },
          ],
          ports: [{ port }, { port: 443 }],
        },
      ],
      egress: [
        { to: [{ namespaceSelector: {}, podSelector: { matchLabels: { tier: 'db' } } }], ports: [{ port: 5432 }] },
      ],
    },
  })
}
