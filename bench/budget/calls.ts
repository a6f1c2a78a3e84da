import { inside } from '../../lib/os/netns.ts'
import { type Call, call, started, timed } from '../call.ts'
import { bridgeConf, makeNode, ptpConf } from '../node.ts'
import { busy } from './busy.ts'
import type { Contender, Nodes } from './nodes.ts'

/** What the machine executed for one call of a plugin, and by how much the two cheapest calls differ. */
export interface CallFigure {
  readonly contender: string
  readonly call: string
  readonly instructions: number
  readonly spread: number
}

const VERBS = ['VERSION', 'ADD', 'DEL'] as const
const LOOPBACK = { cniVersion: '1.0.0', name: 'cni-loopback', type: 'loopback' }
/** The first calls bring files into memory. */
const [WARM, TIMES] = [2, 10]
/** What a call leaves to do is done by then: the kernel's work after a DEL takes some 20 ms. */
const REST_MS = 100
/** The agent adds a port to the fast path within this time, and is idle again. */
const AGENT_MS = 3000

/**
 * Calls plugins, each alone in the machine. A figure is all that ran on the processor from the start of the plugin until
 * 100 ms after its end. That is the plugin with its tools, those that it leaves behind, and the kernel's own threads. The
 * start of a program and the pause take the same for all sides: that is the row `nothing`. `clock` is the process that
 * keeps the clock from jumping. It stands still once the first calls have brought all files into memory.
 *
 * Not callgrind and not perf. callgrind sees no kernel, where a third of an ADD is, and nothing of the tools that end
 * after the plugin. perf has no counters in a virtual machine.
 */
export function callsOf(contenders: readonly Contender[], clock: number): CallFigure[] {
  const all = contenders.flatMap(({ name, plugins }) => {
    const dir = (part: string) => `/run/budget/calls/${name.replaceAll(/\W/g, '-')}/${part}`
    const calls: readonly Call[] = [
      { side: plugins, type: 'loopback', ...makeNode(), conf: LOOPBACK, ifname: 'lo' },
      { side: plugins, type: 'bridge', ...makeNode(), conf: bridgeConf(dir('bridge'), false) },
      { side: plugins, type: 'ptp', ...makeNode(), conf: ptpConf(dir('ptp'), '10.2.0.0/16') },
    ]
    return calls.map((one) => ({ contender: name, one }))
  })
  const round = (one: Call, n: number) => VERBS.map((verb) => counted(() => calling(one, verb, `c${n}`)))
  for (const { one } of all) for (let n = 0; n < WARM; n++) round(one, n)
  process.kill(clock, 'SIGSTOP')
  const nothing = times(() => counted(() => void timed(['/bin/true'], {}, Buffer.from(''))))
  const figures = all.flatMap(({ contender, one }) => {
    const rounds = times((n) => round(one, WARM + n))
    return VERBS.map((verb, i) => figure(contender, `${one.type} ${verb}`, column(rounds, i)))
  })
  process.kill(clock, 'SIGCONT')
  return [figure('', 'nothing', nothing), ...figures]
}

/**
 * The same for ADD and DEL of a bridged pod on a node whose agent has made its tables. First the plugin's own work, while
 * the agent stands still. Then all of the agent's work with it, until the machine is at rest.
 */
export function callsBeside({ name }: Contender, nodes: Nodes, clock: number): CallFigure[] {
  const one = nodes.more()
  const verbs = ['ADD', 'DEL'] as const
  const round = (restMs: number) => (n: number) =>
    verbs.map((verb) => counted(() => void call(one, verb, `m${n}`), restMs))
  const rounds = (what: string, restMs: number) => {
    for (let n = 0; n < WARM; n++) round(restMs)(n)
    const all = times(round(restMs))
    return verbs.map((verb, i) => figure(name, `bridge ${verb}, ${what}`, column(all, i)))
  }
  process.kill(clock, 'SIGSTOP')
  nodes.freeze(true)
  const alone = rounds('the agent stopped', REST_MS)
  nodes.freeze(false)
  const beside = rounds('with the agent', AGENT_MS)
  process.kill(clock, 'SIGCONT')
  return [...alone, ...beside]
}

function times<T>(work: (n: number) => T): T[] {
  return Array.from({ length: TIMES }, (_, n) => work(n))
}

function column(rows: readonly (readonly number[])[], i: number): number[] {
  return rows.map((row) => row[i] as number)
}

function calling(one: Call, verb: string, id: string): void {
  const { argv, env, stdin } = started(one, verb, id)
  inside(one.node, () => void timed(argv, env, stdin))
}

function figure(contender: string, call: string, all: readonly number[]): CallFigure {
  const [least = Number.NaN, second = Number.NaN] = [...all].sort((a, b) => a - b)
  return { contender, call, instructions: Math.round(least), spread: second / least - 1 }
}

function counted(work: () => void, restMs = REST_MS): number {
  const all = () => {
    // This program's own time is added when it sleeps.
    Bun.sleepSync(1)
    return busy()
  }
  const before = all()
  work()
  Bun.sleepSync(restMs)
  return all() - before
}
