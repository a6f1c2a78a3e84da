import { existsSync, readFileSync, statSync } from 'node:fs'
import { inside } from '../../lib/os/netns.ts'
import { addAndDel, type Call, call, started } from '../call.ts'
import { bridgeConf, makeNode, ptpConf } from '../node.ts'
import { median, paired } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { preread } from '../sides.ts'

const STRACE = '/usr/bin/strace'
/**
 * What plumb must not pass: the ratio of the CPU of an ADD to that of the newest reference, and the MB of a bridge in
 * memory and on disk.
 */
const [MOST_CPU, MOST_MEMORY, MOST_DISK] = [1, 5, 3]

interface Case {
  readonly name: string
  readonly type: string
  readonly conf: (dataDir: string) => object
}
const MASQ = 'bridge + ipMasq'
const CASES: readonly Case[] = [
  { name: 'bridge', type: 'bridge', conf: (dir) => bridgeConf(dir, false) },
  { name: MASQ, type: 'bridge', conf: (dir) => bridgeConf(dir, true) },
  { name: 'ptp', type: 'ptp', conf: (dir) => ptpConf(dir, '10.1.0.0/16') },
  { name: 'loopback', type: 'loopback', conf: () => ({ cniVersion: '1.0.0', name: 'bench', type: 'loopback' }) },
]

/** What one ADD costs the machine: CPU, memory, processes. */
export async function cost(bench: Bench): Promise<Table> {
  const sides = [bench.ours, ...bench.theirs]
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const { name, type, conf } of CASES) {
    const calls = sides.map((side): Call => ({ side, type, ...makeNode(), conf: conf(bench.dataDir()) }))
    for (const { side } of calls) preread(side)
    const samples = paired(calls, bench.times(TIMES), (one, round) => addAndDel(one, `c${round}`))
    const cpuOf = (one: Call, verb: number) =>
      median((samples.get(one) ?? []).map((both) => both[verb]?.cpuMs ?? Number.NaN))
    for (const one of calls) {
      const [add, del] = [cpuOf(one, 0), cpuOf(one, 1)]
      const peaks: number[] = []
      for (let n = 0; n < 5; n++) peaks.push(await peak(one, `peak${n}`))
      // A call may end before the first look at it.
      const memory = median(peaks.filter((mb) => mb > 0))
      const disk = statSync(`${one.side.dir}/${type}`).size / 1e6
      const others = (verb: number) =>
        calls.filter(({ side }) => !side.ours).map((other) => ({ name: other.side.name, figure: cpuOf(other, verb) }))
      const cells = [ratios(add, others(0)).cells, ratios(del, others(1)).cells]
      const newest = ratios(add, others(0).slice(0, 1), MOST_CPU).bar as Bar
      const own = one.side.ours && name !== MASQ ? [newest] : []
      if (one.side.ours && name === 'bridge')
        own.push(atMost(MOST_MEMORY, 'MB in memory', memory), atMost(MOST_DISK, 'MB on disk', disk))
      bars.push(...own)
      rows.push([
        `${name}, ${one.side.name}`,
        short(add),
        short(del),
        ...cells.map((both) => (one.side.ours ? both.join(', ') : '')),
        Number.isNaN(memory) ? '-' : short(memory),
        short(disk),
        ...['ADD', 'DEL'].map((verb) => processes(one, verb)),
        own.map(({ text }) => text).join('; '),
      ])
    }
  }
  const counted = existsSync(STRACE) ? 'as strace counts execve' : 'not counted: strace is not installed'
  return {
    title: 'What a call costs the machine',
    method: `CPU of the plugin and all it starts, median in ms, n = ${bench.times(TIMES)}; plumb's ratio to each reference. Memory: the most that the plugin's own process held at once (VmHWM), in MB, n = 5; a part of it are pages of the executable, which all its processes share. Processes that it starts: ${counted}.`,
    head: [
      'ADD of',
      'CPU of ADD',
      'CPU of DEL',
      'ratio of ADD',
      'ratio of DEL',
      'MB',
      'MB on disk',
      'processes of ADD',
      'processes of DEL',
      'bars',
    ],
    rows,
    bars,
  }
}

// A median of twenty scatters by some per cent, which is as much as the bar of an ADD's CPU leaves.
const TIMES = 60

function atMost(limit: number, name: string, figure: number): Bar {
  return judge(`≤ ${limit} ${name}`, [{ name, figure, met: figure <= limit }])
}

// wait4 would tell the driver's own memory for the child's: the kernel counts what it shared with its parent before
// exec.
async function peak(one: Call, id: string): Promise<number> {
  const { argv, env, stdin } = started(one, 'ADD', id)
  const child = inside(one.node, () => Bun.spawn(argv, { env, stdin, stdout: 'ignore', stderr: 'inherit', cwd: '/' }))
  let kilobytes = 0
  for (let found = true; found; ) {
    const [, seen] = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? []
    found = seen !== undefined
    kilobytes = Math.max(kilobytes, Number(seen ?? 0))
  }
  if ((await child.exited) !== 0) throw new Error(`${argv.join(' ')} ADD failed`)
  call(one, 'DEL', id)
  return kilobytes / 1024
}

function processes(one: Call, verb: string): string {
  if (!existsSync(STRACE)) return '-'
  if (verb === 'DEL') call(one, 'ADD', 'traced')
  const { argv, env, stdin } = started(one, verb, 'traced')
  const { success, stderr } = inside(one.node, () =>
    Bun.spawnSync([STRACE, '-f', '-qq', '-e', 'trace=execve', '-e', 'signal=none', '-z', ...argv], {
      env,
      stdin,
      stdout: 'ignore',
      stderr: 'pipe',
      cwd: '/',
    }),
  )
  if (!success) throw new Error(`${argv.join(' ')} ${verb} failed under strace: ${stderr}`)
  if (verb === 'ADD') call(one, 'DEL', 'traced')
  return String((stderr.toString().match(/execve\(/g) ?? []).length - 1)
}
