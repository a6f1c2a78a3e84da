import { inside } from '../lib/netns.ts'
import type { NetnsPath } from '../lib/values.ts'
import type { Sample } from './paired.ts'
import type { Side } from './sides.ts'

/** A namespace file made for the bench. */
export type Place = NetnsPath

/** One CNI call: a plugin of a side, in the namespace that stands for the node. */
export interface Call {
  readonly side: Side
  readonly type: string
  readonly node: Place
  readonly pod: Place
  readonly conf: object
}

/** Everything that a plugin is started with: argv, environment, standard input. */
export function started({ side, type, pod, conf }: Omit<Call, 'node'>, command: string, containerId: string): { argv: string[]; env: Record<string, string>; stdin: Buffer } {
  const env = { CNI_COMMAND: command, CNI_CONTAINERID: containerId, CNI_NETNS: pod, CNI_IFNAME: 'eth0', CNI_PATH: side.dir, PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }
  return { argv: [`${side.dir}/${type}`], env, stdin: Buffer.from(JSON.stringify(conf)) }
}

/** Calls and waits. Throws Error with what the plugin said when it failed: a call that fails is never measured. */
export function call(one: Call, command: string, containerId: string): Sample {
  const { argv, env, stdin } = started(one, command, containerId)
  return inside(one.node, () => timed(argv, env, stdin))
}

/** ADD, then DEL of the same attachment. */
export function addAndDel(one: Call, containerId: string): readonly [Sample, Sample] {
  return [call(one, 'ADD', containerId), call(one, 'DEL', containerId)]
}

/** Starts a program and waits: time as the caller sees it, CPU as the kernel counted it. Throws Error when its status is not 0. */
export function timed(argv: readonly string[], env: Readonly<Record<string, string>>, stdin: Buffer): Sample {
  const begin = performance.now()
  const child = Bun.spawnSync([...argv], { env: { ...env }, stdin, stdout: 'pipe', stderr: 'pipe', cwd: '/' })
  const ms = performance.now() - begin
  if (!child.success) throw new Error(`${argv.join(' ')} ${env['CNI_COMMAND']} failed: ${child.stdout}${child.stderr}`)
  return { ms, cpuMs: Number(child.resourceUsage.cpuTime.total) / 1000 }
}
