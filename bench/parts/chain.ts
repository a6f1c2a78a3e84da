import { fuse } from '../../cli/fuse.ts'
import { addAndDel, type Call } from '../call.ts'
import { bridgeConf, makeNode, NETWORK, portsConf } from '../node.ts'
import { median, paired, type Sample } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'
import { preread, type Side } from '../sides.ts'

const TIMES = 30
const RATE = { ingressRate: 100_000_000, ingressBurst: 8_000_000, egressRate: 100_000_000, egressBurst: 8_000_000 }
/** The ratio to the reference's list that ADD and DEL must not pass: by as many processes, and in one. */
const BARS = { list: [0.6, 0.25], fused: [0.2, 0.06] } as const

/**
 * The list that nodes in the field run: bridge, masqueraded, a host port, the firewall's leave, a rate; as five
 * programs, and by plumb as one, too.
 */
export function chain(bench: Bench): Table {
  const { ours, theirs } = bench
  const list = (side: Side): Call => ({
    side,
    type: 'bridge',
    ...makeNode(),
    conf: bridgeConf(bench.dataDir(), true),
    chained: after(),
  })
  const calls = new Map([
    ...[ours, ...theirs].map((side) => [side.name, list(side)] as const),
    ['plumb, fused', fused(list(ours))] as const,
  ])
  for (const { side } of calls.values()) preread(side)
  const samples = paired([...calls.values()], bench.times(TIMES), (call, round) => addAndDel(call, `c${round}`))
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const [form, name] of [
    ['list', ours.name],
    ['fused', 'plumb, fused'],
  ] as const)
    for (const [i, verb] of ['ADD', 'DEL'].entries()) {
      const ms = (who: string) =>
        median((samples.get(calls.get(who) as Call) as Sample[][]).map((both) => both[i]?.ms ?? Number.NaN))
      const references = theirs.map((side) => ({ name: side.name, figure: ms(side.name) }))
      const { cells, bar } = ratios(ms(name), references, BARS[form][i])
      if (bar) bars.push(bar)
      rows.push([
        `${name} ${verb}`,
        String(bench.times(TIMES)),
        short(ms(name)),
        ...references.map(({ figure }) => short(figure)),
        ...cells,
        bar?.text ?? '',
      ])
    }
  return {
    title: 'bridge + ipMasq + portmap (1 port) + firewall + bandwidth',
    method:
      'Medians in ms, and the ratio plumb / reference. The list of five plugins as a runtime calls it, and what `plumb cni fuse` makes of it for plumb: the same node by one process. Both directions at 100 Mbit/s.',
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

function after(): NonNullable<Call['chained']> {
  const base = { cniVersion: '1.0.0', name: NETWORK }
  return [
    portsConf(1, 8080),
    { type: 'firewall', conf: { ...base, type: 'firewall' } },
    { type: 'bandwidth', conf: { ...base, type: 'bandwidth', ...RATE } },
  ]
}

// What a runtime would give the one plugin that is left: its own keys, and the capability that portmap had.
function fused({ chained = [], ...call }: Call): Call {
  const { list } = fuse({ plugins: [call.conf, ...chained.map(({ conf }) => conf)] })
  const [whole] = list['plugins'] as [{ portMappings: { runtimeConfig: object } }]
  const { runtimeConfig } = whole.portMappings
  return { ...call, conf: { ...whole, portMappings: true, runtimeConfig } }
}
