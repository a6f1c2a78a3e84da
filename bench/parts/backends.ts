import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inside } from '../../lib/os/netns.ts'
import { flow } from '../../test/support/etcd-networks.ts'
import type { Scale } from '../../test/support/scale.ts'
import { type Contender, type Fixture, missing, type Network, openFixture, type Running } from '../agent/fixture.ts'
import type { Place } from '../call.ts'
import { makePlaces, removePlaces } from '../node.ts'
import { median, medianRange } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { ip, run } from '../tools.ts'
import { load } from '../traffic.ts'

type Type = Network['backend']
/** Pods of two nodes whose agent is one of the contenders. */
interface Pair {
  readonly contender: Contender
  readonly nodes: readonly [Running, Running]
  readonly pods: readonly [Place, Place]
  /** The address of the second pod, and the MTU of both. */
  readonly address: string
  readonly mtu: string
}
/** What the converger took, and `wg setconf` of the same peers in milliseconds. */
type Scaled = Scale & { readonly alone: number }

const TYPES: readonly Type[] = ['vxlan', 'host-gw', 'ipip', 'wireguard', 'udp']
const [ROUNDS, LOAD_MS] = [41, 1000]
/** The least share of flanneld's throughput. */
const LEAST = 0.98
const [PEERS, COLD_MS, MORE_MS, GAP_MS] = [1000, 1000, 50, 2000]
const READY_MS = 300_000

/** What the backends that this kernel has carry between pods of two nodes, beside flanneld's. */
export async function backends(bench: Bench): Promise<Table> {
  // flanneld wants them, and does not load them.
  for (const name of ['br_netfilter', 'tun', 'fou']) Bun.spawnSync(['modprobe', name])
  const fixture = await openFixture(bench)
  try {
    return await throughput(bench, fixture, TYPES.filter(isThere))
  } finally {
    await fixture.close()
  }
}

/** What WireGuard's peers and another key take, where this kernel has it. */
export async function wireguard(bench: Bench): Promise<Table[]> {
  if (!isThere('wireguard')) {
    process.stdout.write('wireguard: this kernel does not have it; --machine does\n')
    return []
  }
  const fixture = await openFixture(bench)
  try {
    return [await manyPeers(bench, fixture)]
  } finally {
    await fixture.close()
  }
}

async function throughput(bench: Bench, fixture: Fixture, types: readonly Type[]): Promise<Table> {
  const rows: string[][] = []
  const bars: Bar[] = []
  const rounds = bench.times(ROUNDS)
  for (const backend of types) {
    const pairs = await Promise.all(fixture.contenders.map((one) => pairOf(fixture, one, backend)))
    const rates = new Map<Pair, number[]>(pairs.map((pair) => [pair, []]))
    for (let round = 0; round < rounds; round++)
      for (let i = 0; i < pairs.length; i++) {
        const pair = pairs[(i + round) % pairs.length] as Pair
        const { rate } = await load(pair.pods[0], pair.pods[1], pair.address, LOAD_MS)
        rates.get(pair)?.push(rate)
      }
    const middle = pairs.map((pair) => median(rates.get(pair) ?? []))
    const [own = [], theirs] = pairs.map((pair) => rates.get(pair) ?? [])
    const shares = theirs?.map((rate, round) => (own[round] ?? Number.NaN) / rate)
    const share = median(shares ?? [])
    const bar = shares && judge(`≥ ${LEAST}`, [{ name: 'of flanneld', figure: share, met: share >= LEAST }])
    if (bar) bars.push(bar)
    rows.push([
      backend,
      `${rounds}`,
      ...pairs.map(({ mtu }) => mtu),
      ...middle.map((rate) => short(rate / 1e6)),
      shares ? short(share) : '',
      shares ? medianRange(shares).map(short).join(' to ') : '',
      bar?.text ?? '',
    ])
    for (const pair of pairs) await ended(pair)
  }
  const names = fixture.contenders.map(({ name }) => name)
  const absent = TYPES.filter((type) => !types.includes(type))
  const why = absent.length > 0 ? ` This kernel lacks the devices of ${absent.join(', ')}.` : ''
  return {
    title: 'Backends: a TCP connection between pods of two nodes',
    method: `Megabits per second as they are on the wire, over one second after one of warming up. Each agent has two nodes and a pod on each, on one bridge. The agents take turns. Medians; the ratio is that of the rounds' ratios.${missing(fixture)}${why}`,
    head: [
      'backend',
      'n',
      ...names.map((name) => `MTU, ${name}`),
      ...names.map((name) => `Mbit/s, ${name}`),
      'ratio',
      '95 % sure',
      'bar',
    ],
    rows,
    bars,
  }
}

async function manyPeers(bench: Bench, fixture: Fixture): Promise<Table> {
  const [times, rotations] = [bench.times(5), bench.times(5)]
  const scales = Array.from({ length: times }, () => scaled(bench))
  const figure = (of: (one: Scaled) => number) => median(scales.map(of))
  const [contender] = fixture.contenders as [Contender]
  const pair = await pairOf(fixture, contender, 'wireguard')
  const gaps: number[] = []
  for (let i = 0; i < rotations; i++) gaps.push(await rotated(pair))
  await ended(pair)
  const bars: Bar[] = []
  const row = (what: string, n: number, ms: number, most?: number) => {
    const bar = most === undefined ? undefined : judge(`≤ ${most}`, [{ name: 'ms', figure: ms, met: ms <= most }])
    if (bar) bars.push(bar)
    return [what, `${n}`, short(ms), bar?.text ?? '']
  }
  const thousand = PEERS.toLocaleString('en')
  return {
    title: 'WireGuard: many peers, and another key',
    method: `Times by the clock in ms: of a step from nothing to ${thousand} peers, of one more peer, of a removed peer and of a step that finds everything there, as the agent does it, and of what the tool and the kernel take alone; medians. Another key: \`plumb wireguard rotate\` on one of two nodes, with a ping each 10 ms between their pods; the longest time without an answer, the most of all.`,
    head: ['what', 'n', 'ms', 'bar (ms)'],
    rows: [
      row(
        `${thousand} peers, cold`,
        times,
        figure(({ cold }) => cold.wall),
        COLD_MS,
      ),
      row(
        'one more',
        times,
        figure(({ more }) => more.wall),
        MORE_MS,
      ),
      row(
        'one removed by hand',
        times,
        figure(({ repair }) => repair.wall),
      ),
      row(
        'a start that finds all',
        times,
        figure(({ restart }) => restart.wall),
      ),
      row('another key, gap', rotations, Math.max(...gaps), GAP_MS),
    ],
    bars,
  }
}

// Starts an agent on two nodes, each with a pod, and waits until one pod reaches the other.
async function pairOf(fixture: Fixture, contender: Contender, backend: Type): Promise<Pair> {
  const prefix = await fixture.populate({ backend, leases: 0 })
  const nodes = await Promise.all([fixture.start(contender, prefix), fixture.start(contender, prefix)] as const)
  const pods = makePlaces(nodes.map((_, i) => `${contender.ours ? 'own' : 'other'}${i}`)) as [Place, Place]
  const files: string[] = []
  for (const [i, node] of nodes.entries()) {
    await until(() => node.subnet() !== '')
    const env = readFileSync(join(node.dir, 'subnet.env'), 'utf8')
    files.push(env)
    const [subnet, mtu, pod] = [node.subnet(), mtuOf(env), pods[i] as Place]
    inside(node.node, () => {
      ip([
        `link add pod0 mtu ${mtu} up type veth peer name eth0 netns ${pod.slice(pod.lastIndexOf('/') + 1)}`,
        `address add ${subnet}.1/24 dev pod0`,
      ])
      run(['sysctl', '-qw', 'net.ipv4.ip_forward=1'])
    })
    inside(pod, () =>
      ip([`link set eth0 up mtu ${mtu}`, `address add ${subnet}.2/24 dev eth0`, `route add default via ${subnet}.1`]),
    )
  }
  const [, second] = nodes
  const address = `${second.subnet()}.2`
  const ping = ['ping', '-n', '-q', '-c', '1', '-W', '1', address]
  await until(() => inside(pods[0], () => Bun.spawnSync(ping)).success)
  return { contender, nodes, pods, address, mtu: mtuOf(files[0] ?? '') }
}

async function ended({ nodes, pods }: Pair): Promise<void> {
  removePlaces(pods)
  for (const node of nodes) await node.stop()
}

// Milliseconds without an answer while the second node changes its key.
async function rotated({ nodes, pods, address }: Pair): Promise<number> {
  const [first, second] = nodes
  const own = () => inside(second.node, () => run(['wg', 'show', 'flannel-wg', 'public-key']))
  const before = own()
  const running = await flow({ path: pods[0] } as never, `${first.subnet()}.2`, address)
  const plumb = join(import.meta.dir, '../../dist/plumb')
  run([plumb, 'wireguard', 'rotate', '--socket', join(second.dir, 'agent.sock')])
  await until(() => own() !== before)
  await Bun.sleep(2 * GAP_MS)
  return (await running.end()).gapMs
}

// One measurement by test/support/scale.ts in a namespace with an uplink. Then the same peers, given to the tool at once.
function scaled(bench: Bench): Scaled {
  const [node, lan] = makePlaces(['scale', 'lan']) as [Place, Place]
  try {
    inside(node, () =>
      ip(['link add eth0 up type veth peer name port1 netns lan', 'address add 10.200.0.1/16 dev eth0']),
    )
    inside(lan, () => ip(['link set port1 up']))
    const script = join(import.meta.dir, '../../test/support/scale.ts')
    const seen: Scale = JSON.parse(inside(node, () => run([process.execPath, script, 'wireguard', `${PEERS}`])))
    const conf = join(bench.dataDir(), 'conf')
    const alone = inside(node, () => {
      writeFileSync(conf, run(['wg', 'showconf', 'flannel-wg']), { mode: 0o600 })
      ip(['link delete flannel-wg', 'link add alone0 up type wireguard'])
      const begun = performance.now()
      run(['wg', 'setconf', 'alone0', conf])
      return performance.now() - begun
    })
    return { ...seen, alone }
  } finally {
    removePlaces([node, lan])
  }
}

// Whether this kernel has the device of a backend.
function isThere(type: Type): boolean {
  if (type === 'host-gw') return true
  if (type === 'udp') return existsSync('/dev/net/tun') && Bun.spawnSync(['ip', 'fou', 'show']).success
  const [place] = makePlaces(['look']) as [Place]
  const more = type === 'vxlan' ? ['id', '1', 'dstport', '8472'] : []
  const made = inside(place, () => Bun.spawnSync(['ip', 'link', 'add', 'look0', 'type', type, ...more]))
  removePlaces([place])
  return made.success
}

function mtuOf(env: string): string {
  return /^FLANNEL_MTU=(\d+)$/m.exec(env)?.[1] ?? ''
}

async function until(check: () => boolean): Promise<void> {
  for (const end = performance.now() + READY_MS; performance.now() < end; await Bun.sleep(50)) if (check()) return
  throw new Error(`Cannot measure: the agents are not ready within ${READY_MS / 1000} s`)
}
