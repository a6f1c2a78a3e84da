import { inside } from '../../lib/os/netns.ts'
import { lead, type Place, started } from '../call.ts'
import { bridgeConf, makeNode, makePlaces, removePlaces } from '../node.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { judge, short, type Table } from '../report.ts'
import { preread, type Side } from '../sides.ts'
import { run } from '../tools.ts'

const PODS = 250
const WANT = 3

interface Outcome {
  readonly failures: readonly string[]
  readonly seconds: number
}

/** 250 ADDs of bridge with ipMasq, all started at once. */
export async function storm(bench: Bench): Promise<Table> {
  const sides = [bench.ours, ...bench.theirs]
  const outcomes = new Map<Side, Outcome[]>(sides.map((side) => [side, []]))
  const rounds = bench.times(3)
  for (let round = 0; round < rounds; round++)
    for (const side of sides) outcomes.get(side)?.push(await once(bench, side, round))
  const rate = (side: Side) => PODS / median((outcomes.get(side) ?? []).map(({ seconds }) => seconds))
  const failed = (side: Side) => (outcomes.get(side) ?? []).flatMap(({ failures }) => failures)
  const faster = judge(
    `≥ ${WANT} × the rate`,
    bench.theirs.map((side) => ({
      name: `of ${side.name}`,
      figure: rate(bench.ours) / rate(side),
      met: rate(bench.ours) / rate(side) >= WANT,
    })),
  )
  const whole = judge('0 failures', [
    { name: 'failed', figure: failed(bench.ours).length, met: failed(bench.ours).length === 0 },
  ])
  return {
    title: `${PODS} bridge + ipMasq ADDs at once`,
    method: `All started at the same moment on a node without pods, counted until the last one has ended; n = ${rounds} such storms each. A failure is an exit status other than 0 or an address that two pods got.`,
    head: ['plugins', 'failures', 'seconds', 'ADDs/s', 'plumb is faster by', 'bar'],
    rows: sides.map((side) => [
      side.name,
      failed(side).length === 0
        ? '0'
        : `${failed(side).length} (${failed(side)[0]?.replace(/\s+/g, ' ').slice(0, 60)})`,
      short(PODS / rate(side)),
      short(rate(side)),
      side.ours ? '' : short(rate(bench.ours) / rate(side)),
      side.ours ? `${whole.text}; ${faster.text}` : '',
    ]),
    bars: [whole, faster],
  }
}

async function once(bench: Bench, side: Side, round: number): Promise<Outcome> {
  preread(side)
  const { node } = makeNode()
  const pods = makePlaces(
    Array.from({ length: PODS }, (_, n) => `storm${round}-${bench.theirs.indexOf(side) + 1}-${n}`),
  )
  const conf = bridgeConf(bench.dataDir(), true)
  // A node without pods has no records either.
  lead(`/run/bench/storm-${node.slice(node.lastIndexOf('/') + 1)}`)
  const begin = performance.now()
  const children = inside(node, () => pods.map((pod, n) => spawn(side, pod, conf, `storm${n}`)))
  const answers = await Promise.all(children)
  const seconds = (performance.now() - begin) / 1000
  await clear(node, pods)
  const addresses = new Set(answers.map(({ address }) => address))
  const failures = answers.flatMap(({ error }) => (error === undefined ? [] : [error]))
  return {
    seconds,
    failures: [
      ...failures,
      ...Array<string>(PODS - failures.length - [...addresses].filter(Boolean).length).fill('an address given twice'),
    ],
  }
}

// The kernel takes namespaces apart afterwards; the next storm waits until it has.
async function clear(node: Place, pods: readonly Place[]): Promise<void> {
  removePlaces(pods)
  const until = performance.now() + 60_000
  while (inside(node, () => run(['ip', '-o', 'link', 'show', 'type', 'veth'])) !== '') {
    if (performance.now() > until) throw new Error(`Waited 60 s for the links of ${PODS} removed namespaces to go`)
    await Bun.sleep(50)
  }
  removePlaces([node])
}

async function spawn(side: Side, pod: Place, conf: object, id: string): Promise<{ address?: string; error?: string }> {
  const { argv, env, stdin } = started({ side, type: 'bridge', pod, conf }, 'ADD', id)
  const child = Bun.spawn(argv, { env, stdin, stdout: 'pipe', stderr: 'pipe', cwd: '/' })
  const [stdout, stderr, status] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (status !== 0) return { error: stdout.startsWith('{') ? JSON.parse(stdout).msg : stdout + stderr }
  return { address: JSON.parse(stdout).ips[0].address }
}
