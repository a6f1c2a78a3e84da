import { writeFileSync } from 'node:fs'
import { inside } from '../../lib/os/netns.ts'
import { usualBurst } from '../../lib/wiring/shaping.ts'
import { call, type Place } from '../call.ts'
import { makePlaces, NETWORK, removePlaces } from '../node.ts'
import type { Bench } from '../part.ts'
import { judge, short, type Table } from '../report.ts'
import type { Side } from '../sides.ts'
import { ip } from '../tools.ts'
import { type Load, load } from '../traffic.ts'

const RATES = [1e6, 1e7, 1e8, 1e9]
const WAYS = ['ingress', 'egress'] as const
const [POD, WORLD] = ['10.1.0.2', '192.0.2.2']

/**
 * Rate and latency under load of a shaped pod, from a client behind the node and to it; the same rate and burst for
 * each side.
 */
export async function bandwidth(bench: Bench): Promise<Table> {
  const sides = [bench.ours, ...bench.theirs]
  const rows: string[][] = []
  const bars: Table['bars'][number][] = []
  for (const rate of RATES)
    for (const way of WAYS) {
      const figures = new Map<Side, Load>()
      for (const side of sides) figures.set(side, await shaped(bench, side, rate, way))
      const own = figures.get(bench.ours) as Load
      const off = judge('within 3 %', [
        { name: 'of the asked rate', figure: own.rate / rate, met: Math.abs(own.rate / rate - 1) <= 0.03 },
      ])
      const slow =
        rate === 1e7
          ? [
              judge(
                'latency ≤ 0.33',
                bench.theirs.map((side) => ({
                  name: `of ${side.name}`,
                  figure: own.latency / (figures.get(side) as Load).latency,
                  met: own.latency * 3 <= (figures.get(side) as Load).latency,
                })),
              ),
            ]
          : []
      bars.push(off, ...slow)
      rows.push([
        `${short(rate / 1e6)} Mbit/s ${way}`,
        ...sides.flatMap((side) => [
          short((figures.get(side) as Load).rate / 1e6),
          short((figures.get(side) as Load).latency),
        ]),
        [off, ...slow].map(({ text }) => text).join('; '),
      ])
    }
  return {
    title: 'bandwidth: asked and shaped rate, latency under load',
    method:
      'One TCP connection through the node, as much as goes; Mbit/s on the wire, and the median of ping meanwhile in ms. The burst that all are asked for is the one that plumb would choose: 100 ms of the rate, 125 kB at most, but 4 ms at least.',
    head: ['asked', ...sides.flatMap(({ name }) => [`${name} Mbit/s`, `${name} ms`]), 'bar'],
    rows,
    bars,
  }
}

let serial = 0

async function shaped(bench: Bench, side: Side, rate: number, way: (typeof WAYS)[number]): Promise<Load> {
  const n = ++serial
  const [node, pod, world] = makePlaces([`shaper${n}`, `shaped${n}`, `far${n}`]) as [Place, Place, Place]
  try {
    inside(node, () => {
      ip([`link add up0 type veth peer name up0 netns ${world}`, 'link set up0 up', 'addr add 192.0.2.1/24 dev up0'])
      writeFileSync('/proc/sys/net/ipv4/ip_forward', '1')
    })
    inside(world, () => ip(['link set up0 up', `addr add ${WORLD}/24 dev up0`, 'route add 10.1.0.0/16 via 192.0.2.1']))
    const conf = {
      cniVersion: '1.0.0',
      name: NETWORK,
      type: 'bridge',
      bridge: 'cni0',
      isDefaultGateway: true,
      ipam: { type: 'host-local', dataDir: bench.dataDir(), ranges: [[{ subnet: '10.1.0.0/16' }]] },
    }
    const chained = {
      type: 'bandwidth',
      conf: {
        cniVersion: '1.0.0',
        name: NETWORK,
        type: 'bandwidth',
        [`${way}Rate`]: rate,
        [`${way}Burst`]: usualBurst(rate, 1500),
      },
    }
    call({ side, type: 'bridge', node, pod, conf, chained: [chained] }, 'ADD', `c${n}`)
    return await (way === 'ingress'
      ? load(world, pod, POD, bench.times(10) * 1000)
      : load(pod, world, WORLD, bench.times(10) * 1000))
  } finally {
    removePlaces([node, pod, world])
  }
}
