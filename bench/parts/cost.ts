import { existsSync, readFileSync } from 'node:fs'
import { inside } from '../../lib/os/netns.ts'
import { type Call, call, started } from '../call.ts'
import { bridgeConf, makeNode } from '../node.ts'
import { median, paired } from '../paired.ts'
import type { Bench } from '../part.ts'
import { short, type Table } from '../report.ts'

const STRACE = '/usr/bin/strace'

/** What one ADD costs the machine: CPU, memory, processes. */
export async function cost(bench: Bench): Promise<Table> {
  const sides = [bench.ours, ...bench.theirs]
  const rows: string[][] = []
  for (const masq of [false, true]) {
    const calls = sides.map((side): Call => ({ side, type: 'bridge', ...makeNode(), conf: bridgeConf(bench.dataDir(), masq) }))
    const samples = paired(calls, bench.times(20), (one, round) => [call(one, 'ADD', `c${round}`), call(one, 'DEL', `c${round}`)])
    for (const one of calls) {
      const cpu = (verb: number) => median((samples.get(one) ?? []).map((both) => both[verb]?.cpuMs ?? Number.NaN))
      const peaks: number[] = []
      for (let n = 0; n < 5; n++) peaks.push(await peak(one, `peak${n}`))
      rows.push([`bridge${masq ? ' + ipMasq' : ''}, ${one.side.name}`, short(cpu(0)), short(cpu(1)), short(median(peaks)), ...['ADD', 'DEL'].map((verb) => processes(one, verb))])
    }
  }
  const counted = existsSync(STRACE) ? 'as strace counts execve' : 'not counted: strace is not installed'
  return {
    title: 'What a call costs the machine',
    method: `CPU of the plugin and all it starts, median in ms, n = ${bench.times(20)}. Memory: the most that the plugin's own process held at once (VmHWM), in MB, n = 5; plumb's is mostly the executable's pages, which all its processes share. Processes that it starts: ${counted}.`,
    head: ['ADD of', 'CPU of ADD', 'CPU of DEL', 'MB', 'processes of ADD', 'processes of DEL'],
    rows,
    bars: [],
  }
}

// wait4 would tell the driver's own memory for the child's: the kernel counts what it shared with its parent before exec.
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
  const { success, stderr } = inside(one.node, () => Bun.spawnSync([STRACE, '-f', '-qq', '-e', 'trace=execve', '-e', 'signal=none', '-z', ...argv], { env, stdin, stdout: 'ignore', stderr: 'pipe', cwd: '/' }))
  if (!success) throw new Error(`${argv.join(' ')} ${verb} failed under strace: ${stderr}`)
  if (verb === 'ADD') call(one, 'DEL', 'traced')
  return String((stderr.toString().match(/execve\(/g) ?? []).length - 1)
}
