import { existsSync } from 'node:fs'
import { inside } from '../../lib/os/netns.ts'
import { addAndDel, type Call, type Place } from '../call.ts'
import { makeNode, NETWORK } from '../node.ts'
import { median, paired, type Sample } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'
import { preread } from '../sides.ts'
import { ip } from '../tools.ts'

const TIMES = 40
const BAR = 1
const CASES = [
  { type: 'macvlan', keys: { master: 'up0' } },
  { type: 'host-device', keys: { device: 'up0' } },
] as const

/** ADD and DEL of the plugins that give a pod a link of the node's own, on a node that has one. */
export function links(bench: Bench): Table {
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const { type, keys } of CASES) {
    const theirs = bench.theirs.filter(({ dir }) => existsSync(`${dir}/${type}`))
    const conf = () => ({
      cniVersion: '1.0.0',
      name: NETWORK,
      type,
      ...keys,
      ipam: { type: 'host-local', dataDir: bench.dataDir(), ranges: [[{ subnet: '10.1.0.0/16' }]] },
    })
    const calls = [bench.ours, ...theirs].map((side): Call => ({ side, type, ...wired(makeNode()), conf: conf() }))
    for (const { side } of calls) preread(side)
    const samples = paired(calls, bench.times(TIMES), (call, round) => addAndDel(call, `c${round}`))
    for (const [i, verb] of ['ADD', 'DEL'].entries()) {
      const [own = Number.NaN, ...others] = calls.map((call) =>
        median((samples.get(call) as Sample[][]).map((both) => both[i]?.ms ?? Number.NaN)),
      )
      const references = theirs.map(({ name }, at) => ({ name, figure: others[at] ?? Number.NaN }))
      const { cells, bar } = ratios(own, references, verb === 'ADD' ? BAR : undefined)
      if (bar) bars.push(bar)
      rows.push([
        `${type} ${verb}`,
        String(bench.times(TIMES)),
        short(own),
        references.map(({ name, figure }) => `${short(figure)} (${name})`).join(', '),
        cells.join(', '),
        bar?.text ?? '',
      ])
    }
  }
  return {
    title: "A link of the node's own",
    method:
      'Medians in ms, and the ratio plumb / reference. The node has one end of a veth pair, up; host-local gives the address. The references that have the plugin.',
    head: ['call', 'n', 'plumb', 'reference', 'ratio', 'bar (ratio)'],
    rows,
    bars,
  }
}

function wired<T extends { readonly node: Place }>(places: T): T {
  inside(places.node, () => ip(['link add up0 type veth peer name far0', 'link set up0 up', 'link set far0 up']))
  return places
}
