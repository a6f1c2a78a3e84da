import { mkdirSync, writeFileSync } from 'node:fs'
import { question } from '../../lib/os/ask.ts'
import { inside } from '../../lib/os/netns.ts'
import { addAndDel, type Call } from '../call.ts'
import { bridgeConf, makeNode } from '../node.ts'
import { median, paired, type Sample } from '../paired.ts'
import type { Bench } from '../part.ts'
import { judge, short, type Table } from '../report.ts'
import { preread } from '../sides.ts'
import { ip } from '../tools.ts'

const TIMES = 100
/** How many ms more an ADD may take. */
const MOST_MS = 5
const [PODS, POLICIES] = [1000, 50]
const ARGS = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=p0'

/** What the admission of a pod by the agent costs: a bridge with the key `policy`, and without. */
export async function admission(bench: Bench): Promise<Table> {
  const { ours } = bench
  const dir = bench.dataDir()
  const socket = `${dir}/policy.sock`
  // One node: its agent sees the links of both.
  const places = makeNode()
  const call = (keys: object): Call => ({
    side: ours,
    type: 'bridge',
    ...places,
    conf: { ...bridgeConf(bench.dataDir(), true), ...keys },
    args: ARGS,
  })
  const [without, with_] = [call({}), call({ policy: { socket, whenAway: 'wait' } })] as const
  preread(ours)
  const agent = await startAgent(with_, dir, socket)
  try {
    const samples = paired([without, with_], bench.times(TIMES), (one, round) => addAndDel(one, `p${round}`))
    const rows = ['ADD', 'DEL'].map((verb, i) => {
      const figure = (one: Call, key: keyof Sample) =>
        median((samples.get(one) as Sample[][]).map((both) => both[i]?.[key] ?? Number.NaN))
      const more = figure(with_, 'ms') - figure(without, 'ms')
      const bar =
        i === 0
          ? judge(`≤ ${MOST_MS} ms`, [{ name: 'of the ADD without', figure: more, met: more <= MOST_MS }])
          : undefined
      return {
        bar,
        row: [
          verb,
          String(bench.times(TIMES)),
          ...[without, with_].map((one) => short(figure(one, 'ms'))),
          short(more),
          short(figure(with_, 'cpuMs') - figure(without, 'cpuMs')),
          bar?.text ?? '',
        ],
      }
    })
    return {
      title: 'ADD with network policy',
      method: `Medians in ms, of bridge with masquerading, on one node that has an agent. With: the key \`policy\`, and an agent that has ${PODS} pods and ${POLICIES} policies of a folder; ADD returns when the pod is in the kernel.`,
      head: ['call', 'n', 'without', 'with', 'more', 'CPU more', 'bar (ms more)'],
      rows: rows.map(({ row }) => row),
      bars: rows.flatMap(({ bar }) => bar ?? []),
    }
  } finally {
    agent.kill('SIGKILL')
    await agent.exited
  }
}

async function startAgent({ node, side }: Call, dir: string, socket: string): Promise<Bun.Subprocess> {
  inside(node, () =>
    ip([
      'link add up0 type veth peer name up1',
      'link set up0 up',
      'link set up1 up',
      'addr add 172.30.0.1/24 dev up0',
      'route add default via 172.30.0.254',
    ]),
  )
  for (const name of ['store', 'manifests']) mkdirSync(`${dir}/${name}`)
  writeFileSync(`${dir}/store/config`, JSON.stringify({ Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }))
  const pods = Array.from({ length: PODS }, (_, i) => ({
    kind: 'Pod',
    metadata: { namespace: 'x', name: `p${i}`, labels: { app: `a${i % POLICIES}` } },
    spec: { nodeName: i === 0 ? 'bench' : 'other', containers: [] },
    status: { phase: 'Running', podIPs: i === 0 ? [] : [{ ip: `10.9.${i >> 8}.${i & 255}` }] },
  }))
  const policies = Array.from({ length: POLICIES }, (_, i) => ({
    kind: 'NetworkPolicy',
    metadata: { namespace: 'x', name: `n${i}` },
    spec: {
      podSelector: { matchLabels: { app: `a${i}` } },
      ingress: [{ from: [{ podSelector: { matchLabels: { app: `a${(i + 1) % POLICIES}` } } }] }],
    },
  }))
  writeFileSync(`${dir}/manifests/all.yaml`, [...pods, ...policies].map((one) => JSON.stringify(one)).join('\n---\n'))
  const files = ['subnet-file', 'socket', 'policy-socket', 'state-dir'].map(
    (name) => `--${name}=${dir}/${name === 'policy-socket' ? 'policy.sock' : name}`,
  )
  const argv = [
    `${side.dir}/plumb`,
    'agent',
    '--node-name=bench',
    '--store=file',
    `--file-store-dir=${dir}/store`,
    `--network-policy=${dir}/manifests`,
    '--status-address=off',
    ...files,
  ]
  const agent = inside(node, () =>
    Bun.spawn(argv, {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'ignore',
    }),
  )
  const isReady = () => {
    try {
      question({ socket, name: 'the agent', advice: '' }, { command: 'ready' }, 2000)()
      return true
    } catch {
      return false
    }
  }
  for (const end = performance.now() + 30_000; !isReady(); await Bun.sleep(50))
    if (performance.now() > end || agent.exitCode !== null)
      throw new Error(`The agent of the bench is not ready: ${argv.join(' ')}`)
  return agent
}
