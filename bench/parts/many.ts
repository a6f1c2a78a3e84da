import { inside } from '../../lib/os/netns.ts'
import { type Call, calls, type Place } from '../call.ts'
import { makeNode, makePlaces, NETWORK, portsConf } from '../node.ts'
import { median, paired, type Sample } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { preread } from '../sides.ts'
import { ip } from '../tools.ts'

const OTHERS = 4000
const TIMES = 30
const MOST = 1.15
/** So many of the others share a namespace that stands for their pods, and a bridge. */
const TOGETHER = 250
const RATE = { ingressRate: 100_000_000, ingressBurst: 8_000_000, egressRate: 100_000_000, egressBurst: 8_000_000 }

/** What the nth attachment is made of: the plugins of its list. The measured one is number 0. */
type List = (pool: object, n: number) => readonly { readonly type: string; readonly conf: object }[]
const LISTS: Readonly<Record<string, List>> = {
  macvlan: (ipam) => [plugin('macvlan', { master: 'up0', ipam })],
  tap: (ipam) => [plugin('tap', { ipam })],
  'host-device': (ipam, n) => [plugin('host-device', { device: `up${n}`, ipam })],
  'bridge that does all by itself': (ipam, n) => [
    plugin('bridge', {
      bridge: `br${n === 0 ? 0 : Math.floor(n / TOGETHER)}`,
      isGateway: true,
      ipam,
      firewall: true,
      bandwidth: RATE,
      tuning: { sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1' } },
      portMappings: true,
      runtimeConfig: mapping(n),
    }),
  ],
  'ptp and all that is chained': (ipam, n) => [
    plugin('ptp', { ipam }),
    plugin('portmap', { runtimeConfig: mapping(n) }),
    plugin('firewall', {}),
    plugin('bandwidth', RATE),
    plugin('tuning', { sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1' } }),
    plugin('sbr', {}),
  ],
}

/** Each plugin of plumb's on a node that has thousands of attachments by it: they were made by its own ADD. */
export async function many({ ours, times, dataDir }: Bench): Promise<Table> {
  const count = times(OTHERS) < OTHERS ? 1000 : OTHERS
  const rows: string[][] = []
  const bars: Bar[] = []
  preread(ours)
  for (const [name, list] of Object.entries(LISTS)) {
    const nodes = [0, count].map((others) => ({ others, ...prepare(ours, list, dataDir(), others) }))
    const samples = paired(nodes, times(TIMES), ({ call }, round) => [
      ...calls(call, 'ADD', `c${round}`),
      ...calls(call, 'DEL', `c${round}`),
    ])
    const types = [...list({}, 0)].map(({ type }) => type)
    const parts = [...types.map((type) => `ADD of ${type}`), ...types.toReversed().map((type) => `DEL of ${type}`)]
    const figure = (at: number, part: number) =>
      median((samples.get(nodes[at] as (typeof nodes)[number]) as Sample[][]).map((all) => all[part]?.ms ?? Number.NaN))
    for (const [i, part] of parts.entries()) {
      const grown = figure(1, i) / figure(0, i)
      const judged = part.startsWith('ADD')
        ? judge(`≤ ${MOST} × empty`, [{ name: '×', figure: grown, met: grown <= MOST }])
        : undefined
      if (judged) bars.push(judged)
      rows.push([
        name,
        part,
        String(times(TIMES)),
        short(figure(0, i)),
        short(figure(1, i)),
        short(grown),
        judged?.text ?? '',
      ])
    }
  }
  return {
    title: `Each plugin among ${count.toLocaleString('en')} attachments of its own`,
    method: `Medians in ms on an empty node and on one that has ${count.toLocaleString('en')} attachments of the same list, which its own ADD made, ${TOGETHER} to a namespace that stands for their pods.`,
    head: ['list', 'call', 'n', 'empty', 'among others', '× empty', 'bar'],
    rows,
    bars,
  }
}

function prepare(side: Call['side'], list: List, dataDir: string, others: number): { readonly call: Call } {
  const { node, pod } = makeNode()
  const name = node.slice(node.lastIndexOf('/') + 1)
  const pool = { type: 'host-local', dataDir, ranges: [[{ subnet: '10.1.0.0/16' }]] }
  const run = `/run/bench/${name}`
  const of = (n: number, where: Place): Call => {
    const [first, ...chained] = list(pool, n)
    return {
      side,
      ...(first as { type: string; conf: object }),
      chained,
      node,
      pod: where,
      run,
      ...(n > 0 && { ifname: `e${n}` }),
    }
  }
  const uplinks = list(pool, 0)[0]?.type === 'host-device' ? others : 0
  // As with real ones, what is at the other end of a wire is not on the node.
  const [outside] = makePlaces([`${name}far`]) as [Place]
  inside(node, () =>
    ip(
      Array.from({ length: uplinks + 1 }, (_, n) => [
        `link add up${n} type veth peer name far${n} netns ${name}far`,
        `link set up${n} up`,
      ]).flat(),
    ),
  )
  inside(outside, () => ip(Array.from({ length: uplinks + 1 }, (_, n) => `link set far${n} up`)))
  for (let n = 1; n <= others; n += TOGETHER) {
    const [place] = makePlaces([`${name}x${n}`]) as [Place]
    for (let i = n; i < Math.min(n + TOGETHER, others + 1); i++) calls(of(i, place), 'ADD', `other${i}`)
  }
  return { call: of(0, pod) }
}

function plugin(type: string, keys: object): { readonly type: string; readonly conf: object } {
  return { type, conf: { cniVersion: '1.0.0', name: NETWORK, type, ...keys } }
}

function mapping(n: number): object {
  return (portsConf(1, 20_000 + n).conf as { runtimeConfig: object }).runtimeConfig
}
