import { inside } from '../../lib/os/netns.ts'
import { type Call, started, timed } from '../call.ts'
import { bridgeConf, makeNode, ptpConf } from '../node.ts'
import { busy } from './busy.ts'
import type { Contender } from './nodes.ts'

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
const REST_MS = 200

/**
 * Calls plugins, each alone in the machine. A figure is all that ran on the processor from the start of the plugin until
 * a fifth of a second after its end. That is the plugin with its tools, those that it leaves behind, and the kernel's own
 * threads. The start of a program and the pause take the same for all sides: that is the row `nothing`.
 *
 * Not callgrind and not perf. callgrind sees no kernel, where a third of an ADD is, and nothing of the tools that end
 * after the plugin. perf has no counters in a virtual machine.
 */
export function callsOf(contenders: readonly Contender[]): CallFigure[] {
  const figures: CallFigure[] = [cheapest('', 'nothing', () => void timed(['/bin/true'], {}, Buffer.from('')))]
  for (const { name, plugins } of contenders) {
    const dir = (part: string) => `/run/budget/calls/${name.replaceAll(/\W/g, '-')}/${part}`
    const calls: readonly Call[] = [
      { side: plugins, type: 'loopback', ...makeNode(), conf: LOOPBACK, ifname: 'lo' },
      { side: plugins, type: 'bridge', ...makeNode(), conf: bridgeConf(dir('bridge'), false) },
      { side: plugins, type: 'ptp', ...makeNode(), conf: ptpConf(dir('ptp'), '10.2.0.0/16') },
    ]
    for (const one of calls) {
      const rounds = Array.from({ length: WARM + TIMES }, (_, round) =>
        VERBS.map((verb) => counted(() => calling(one, verb, `c${round}`))),
      ).slice(WARM)
      for (const [i, verb] of VERBS.entries())
        figures.push(
          figure(
            name,
            `${one.type} ${verb}`,
            rounds.map((all) => all[i] as number),
          ),
        )
    }
  }
  return figures
}

function calling(one: Call, verb: string, id: string): void {
  const { argv, env, stdin } = started(one, verb, id)
  inside(one.node, () => void timed(argv, env, stdin))
}

function cheapest(contender: string, call: string, work: () => void): CallFigure {
  const all = Array.from({ length: WARM + TIMES }, () => counted(work)).slice(WARM)
  return figure(contender, call, all)
}

function figure(contender: string, call: string, all: readonly number[]): CallFigure {
  const [least = Number.NaN, second = Number.NaN] = [...all].sort((a, b) => a - b)
  return { contender, call, instructions: Math.round(least), spread: second / least - 1 }
}

function counted(work: () => void): number {
  // This program's own slice is counted when it ends.
  Bun.sleepSync(1)
  const before = busy()
  work()
  Bun.sleepSync(REST_MS)
  return busy() - before
}
