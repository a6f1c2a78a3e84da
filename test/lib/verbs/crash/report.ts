import { join } from 'node:path'
import { Glob } from 'bun'
import { markdown } from '../../../../bench/report.ts'
import type { Figures } from './figures.ts'

const VERBS = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS']
const PLUGINS = join(import.meta.dir, '../../../../plugins')

/** What the walks came to, as tables and a line of sums. */
export function report(all: readonly Figures[], minutes: number): string {
  const verbs = all.filter(({ verb }) => VERBS.includes(verb))
  const rows = [...new Set(verbs.map(({ subject }) => subject))].sort().map((subject) => {
    const own = verbs.filter((one) => one.subject === subject)
    return [subject, ...VERBS.map((verb) => String(own.find((one) => one.verb === verb)?.points ?? '–')), ...sums(own)]
  })
  const others = all
    .filter((one) => !verbs.includes(one))
    .map((one) => [`${one.subject}: ${one.verb}`, String(one.points), ...sums([one])])
  const [rounds, killed, faults] = sums(all)
  return [
    markdown({
      title: 'SIGKILL at each system call that changes something',
      method:
        'By test file and verb: so many points. A round is a point and what follows the kill; of CHECK and STATUS each point has one sequel, of the others all four.',
      head: ['subject', ...VERBS, 'rounds', 'killed', 'faults'],
      rows,
      bars: [],
    }),
    markdown({
      title: 'The agent, and power losses',
      method:
        'Points of the agent are system calls of a first start and of a cleanup; those of a power loss are states of the disk, each followed by a boot.',
      head: ['what', 'points', 'rounds', 'killed', 'faults'],
      rows: others,
      bars: [],
    }),
    `${rounds} rounds, ${killed} processes killed or power lost, ${faults} leaks or failures, in ${minutes.toFixed(0)} minutes.${left(all)}`,
  ].join('\n')
}

function sums(all: readonly Figures[]): string[] {
  const sum = (of: (one: Figures) => number) => String(all.reduce((total, one) => total + of(one), 0))
  return [sum(({ rounds }) => rounds), sum(({ killed }) => killed), sum(({ faults }) => faults.length)]
}

// Their kinds of links are not in every kernel, so that no test of theirs runs on this one from ADD to DEL.
function left(all: readonly Figures[]): string {
  const plugins = [...new Glob('*.ts').scanSync({ cwd: PLUGINS })]
    .map((name) => name.slice(0, -3))
    .filter((name) => name !== 'index')
  const missing = plugins.filter(
    (name) => !all.some(({ subject }) => subject === name || subject.startsWith(`${name}-`)),
  )
  return missing.length === 0 ? '' : ` Not walked: ${missing.sort().join(', ')}.`
}
