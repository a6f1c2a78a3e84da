import { addAndDel, type Call, call as callOnce } from '../call.ts'
import { bridgeConf, makeNode, portsConf, ptpConf } from '../node.ts'
import { median, paired, type Sample } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'
import { preread, type Side } from '../sides.ts'

interface Case {
  readonly name: string
  readonly type: string
  readonly times: number
  readonly conf: (dataDir: string) => object
  /** portmap after it, with so many ports. */
  readonly ports?: number
  /** What is timed, where it is not ADD and DEL. */
  readonly only?: 'DEL'
  /** The bars of ADD and DEL: the ratio to a reference that must not be passed. */
  readonly bars: readonly [add?: number | undefined, del?: number]
}

const CASES: readonly Case[] = [
  {
    name: 'loopback',
    type: 'loopback',
    times: 60,
    conf: () => ({ cniVersion: '1.0.0', name: 'bench', type: 'loopback' }),
    bars: [1, 1],
  },
  { name: 'bridge', type: 'bridge', times: 80, conf: (dir) => bridgeConf(dir, false), bars: [1.4, 0.45] },
  { name: 'bridge + ipMasq', type: 'bridge', times: 50, conf: (dir) => bridgeConf(dir, true), bars: [0.8, 0.3] },
  {
    name: 'bridge + ipMasq + portmap, 1 port',
    type: 'bridge',
    ports: 1,
    times: 40,
    conf: (dir) => bridgeConf(dir, true),
    bars: [0.6, 0.2],
  },
  {
    name: 'bridge + ipMasq + portmap, 32 ports',
    type: 'bridge',
    ports: 32,
    times: 20,
    conf: (dir) => bridgeConf(dir, true),
    bars: [0.3],
  },
  {
    name: 'bridge + ipMasq + portmap, 1 port, of nothing',
    type: 'bridge',
    ports: 1,
    only: 'DEL',
    times: 40,
    conf: (dir) => bridgeConf(dir, true),
    bars: [undefined, 0.3],
  },
  { name: 'ptp', type: 'ptp', times: 60, conf: (dir) => ptpConf(dir, '10.1.0.0/16'), bars: [1.2, 0.6] },
  { name: 'ptp, IPv6', type: 'ptp', times: 5, conf: (dir) => ptpConf(dir, 'fd00:1::/64'), bars: [0.02] },
]

// A DEL of what is not there, on a node that had one: the chains that all pods of the reference share are made.
function timedVerbs({ only }: Case, call: Call, id: string): readonly [Sample, Sample] {
  if (!only) return addAndDel(call, id)
  const before = addAndDel(call, `${id}-before`)
  return [before[0], callOnce(call, only, id)]
}

/** ADD and DEL on a node without other pods. */
export function attach(bench: Bench): Table {
  const { ours, theirs } = bench
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const one of CASES) {
    const calls = [ours, ...theirs].map(
      (side): Call => ({
        side,
        type: one.type,
        ...makeNode(),
        conf: one.conf(bench.dataDir()),
        ...(one.ports ? { chained: [portsConf(one.ports, 8080)] } : {}),
      }),
    )
    for (const { side } of calls) preread(side)
    const samples = paired(calls, bench.times(one.times), (call, round) => timedVerbs(one, call, `c${round}`))
    for (const [i, verb] of ['ADD', 'DEL'].entries()) {
      if (one.only && verb !== one.only) continue
      const ms = (side: Side) =>
        median(
          (samples.get(calls.find((call) => call.side === side) as Call) ?? []).map(
            (both) => both[i]?.ms ?? Number.NaN,
          ),
        )
      const references = theirs.map((side) => ({ name: side.name, figure: ms(side) }))
      const { cells, bar } = ratios(ms(ours), references, one.bars[i])
      if (bar) bars.push(bar)
      rows.push([
        `${one.name} ${verb}`,
        String(bench.times(one.times)),
        short(ms(ours)),
        ...references.map(({ figure }) => short(figure)),
        ...cells,
        bar?.text ?? '',
      ])
    }
  }
  return {
    title: 'ADD and DEL on an empty node',
    method:
      'Medians in ms, and the ratio plumb / reference. Every side has a node namespace of its own; each ADD is followed by its DEL. host-local gives the addresses, its folder lies on the disk. The reference masquerades by its default backend, iptables.',
    head: [
      'call',
      'n',
      'plumb',
      ...theirs.map(({ name }) => name),
      ...theirs.map(({ name }) => `ratio to ${name.replace('reference ', '')}`),
      'bar (ratio)',
    ],
    rows,
    bars,
  }
}
