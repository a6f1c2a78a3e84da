import { missing } from '../../test/support/machine/machine.ts'
import { budgetOf, compare, readBudget, WRITE, writeBudget } from '../budget/budget.ts'
import { ours, theirs } from '../budget/contenders.ts'
import type { Found } from '../budget/guest.ts'
import { measure } from '../budget/machine.ts'
import { BUDGET_PATHS, KINDS, PATHS, type Path } from '../budget/paths.ts'
import type { Kind } from '../budget/traffic.ts'
import type { Bench } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'

const HEADS: Readonly<Record<Kind, string>> = {
  stream: 'stream, Gbit/s',
  request: 'requests/s',
  connection: 'connections/s',
  first: 'first packet, instructions',
}
/** `--paths` of the plugin calls alone. */
const NO_PATH = 'none'
type Figure = Extract<Found, { what: 'path' }>
type CallFigure = Extract<Found, { what: 'call' | 'beside' }>

/**
 * Instructions of packets on their ways and of plugin calls, in a virtual machine whose clock counts them. It measures
 * plumb, plumb with the wanted flags of its agent, and flanneld with the reference plugins and kube-proxy.
 */
export async function budget({ budget: wish }: Bench): Promise<Table[]> {
  const paths = pathsOf(wish)
  const hasCalls = wish.paths === undefined || wish.paths === NO_PATH
  const why = missing()
  if (why) throw new Error(`Cannot start a virtual machine: ${why}`)
  const other = theirs()
  const contenders = [
    ours(),
    ...(wish.flags.length > 0 ? [ours(wish.flags)] : []),
    ...('contender' in other && !wish.isWritten ? [other.contender] : []),
  ]
  const found: Found[] = []
  const began = performance.now()
  await measure({ contenders, paths, calls: hasCalls, beside: wish.flags.length > 0 }, (one) => {
    found.push(one)
    const at = `${Math.round((performance.now() - began) / 1000)} s`
    if (one.what === 'took') process.stderr.write(`${at}: ${one.text}\n`)
  })
  const own = budgetOf(found, ours().name)
  if (wish.isWritten) writeBudget(own)
  const names = contenders.map(({ name }) => name)
  const lacks = 'missing' in other ? ` Not beside it, as it was not built: ${other.missing}.` : ''
  const bars = wish.paths === undefined && !wish.isWritten ? judged(own) : []
  return [
    ...(paths.length > 0 ? [pathsTable(found, names, lacks)] : []),
    ...(hasCalls ? [callsTable(found, names, bars)] : []),
  ]
}

// The paths that the command line names.
function pathsOf({ paths, isWritten }: Bench['budget']): readonly Path[] {
  if (paths === undefined) return BUDGET_PATHS
  if (isWritten) throw new Error('--write-budget wants all paths: leave --paths out')
  const named = PATHS.filter(({ name }) => name.includes(paths))
  if (named.length > 0 || paths === NO_PATH) return named
  throw new Error(
    `there is no path ${JSON.stringify(paths)}: want a part of ${PATHS.map(({ name }) => name).join('; ')}`,
  )
}

function judged(own: ReturnType<typeof budgetOf>): Bar[] {
  const { grew, fell } = compare(readBudget(), own)
  return [
    { met: grew.length === 0, text: grew.length === 0 ? 'budget: met' : `budget: missed (${grew.join('; ')})` },
    ...(fell.length > 0 ? [{ met: true, text: `less than the budget, lower it by ${WRITE}: ${fell.join('; ')}` }] : []),
  ]
}

function pathsTable(found: readonly Found[], contenders: readonly string[], lacks: string): Table {
  const figures = found.filter((one): one is Figure => one.what === 'path')
  const rows = PATHS.flatMap(({ name }) =>
    contenders.flatMap((contender) => {
      const own = figures.filter((one) => one.path === name && one.contender === contender)
      if (own.length === 0) return []
      const cell = (kind: Kind) => {
        const one = own.find((figure) => figure.kind === kind)
        return one ? rate(kind, one.instructions) : ''
      }
      const flow = own.find((one) => one.kind === 'request')?.flow ?? ''
      const worst = Math.max(...own.map(({ spread }) => spread))
      return [[name, contender, ...KINDS.map(cell), flow, `${(worst * 100).toFixed(2)} %`]]
    }),
  )
  const method = `A second is a billion instructions of the one processor, on which the client, both nodes and the server run. Figures are those of the fastest batch of at least three, after one that warms up; the spread is that of the two fastest. The flow says whether the connection of requests was offloaded on each node.${lacks}`
  return {
    title: 'Budget: packets',
    method,
    head: ['path', 'nodes', ...KINDS.map((kind) => HEADS[kind]), 'flow', 'spread'],
    rows,
    bars: [],
  }
}

function rate(kind: Kind, instructions: number): string {
  if (kind === 'first') return instructions.toLocaleString('en')
  if (kind === 'stream') return short((2 ** 20 * 8) / instructions)
  return Math.round(1e9 / instructions).toLocaleString('en')
}

function callsTable(found: readonly Found[], contenders: readonly string[], bars: readonly Bar[] = []): Table {
  const figures = found.filter((one): one is CallFigure => one.what === 'call' || one.what === 'beside')
  const names = [...new Set(figures.map(({ call }) => call))]
  const of = (call: string, contender: string) =>
    figures.find((one) => one.call === call && (one.contender === contender || one.contender === ''))
  const rows = names.map((call) => {
    const all = contenders.map((contender) => of(call, contender))
    const [own, other] = [all[0], all.at(-1)]
    return [
      call,
      ...all.map((one) => (one ? short(one.instructions / 1e6) : '')),
      own && other && other !== own ? (own.instructions / other.instructions).toFixed(3) : '',
      `${(Math.max(...all.map((one) => one?.spread ?? 0)) * 100).toFixed(2)} %`,
    ]
  })
  return {
    title: 'Budget: plugin calls',
    method:
      'Millions of instructions of one call: the plugin, its tools, those that it leaves behind, and the kernel, until 100 ms after its end. The row `nothing` is /bin/true in the same way. The cheapest of ten calls, after two that do not count; the spread is that of the two cheapest.',
    head: ['call', ...contenders, 'ratio', 'spread'],
    rows,
    bars,
  }
}
