import { timed } from '../call.ts'
import { median, paired } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'

/** The ratio to each reference that time and CPU must not pass. */
const MOST = 0.7

/** What it costs to start each executable and be answered: VERSION, which needs neither configuration nor kernel. */
export function start({ ours, theirs, times }: Bench): Table {
  const programs = [
    { name: '/bin/true', file: '/bin/true' },
    ...[ours, ...theirs].map(({ name, dir }) => ({ name, file: `${dir}/bridge` })),
  ]
  const samples = paired(programs, times(100), ({ file }) => [
    timed([file], { CNI_COMMAND: 'VERSION' }, Buffer.alloc(0)),
  ])
  const rows = programs.map((program) => {
    const all = samples.get(program)?.flat() ?? []
    return { program, ms: median(all.map(({ ms }) => ms)), cpu: median(all.map(({ cpuMs }) => cpuMs)), n: all.length }
  })
  const references = rows.filter(({ program }) => theirs.some(({ name }) => name === program.name))
  const own = rows.find(({ program }) => program.name === ours.name) as (typeof rows)[number]
  const judged = (key: 'ms' | 'cpu') =>
    ratios(
      own[key],
      references.map((one) => ({ name: one.program.name, figure: one[key] })),
      MOST,
    )
  const bars = [judged('ms'), judged('cpu')].map(({ bar }) => bar as Bar)
  return {
    title: 'Start of the executable',
    method: `bridge with CNI_COMMAND=VERSION, from its start to its end; n = ${rows[0]?.n} each. The caller's own share is in all of them: what /bin/true takes is the least that shows.`,
    head: ['executable', 'ms', 'CPU ms', 'bar of both (ratio)'],
    rows: rows.map(({ program, ms, cpu }) => [
      program.name,
      short(ms),
      short(cpu),
      program === own.program ? bars.map(({ text }) => text).join('; ') : '',
    ]),
    bars,
  }
}
