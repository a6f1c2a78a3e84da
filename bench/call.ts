import { lstatSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { inside } from '../lib/os/netns.ts'
import type { NetnsPath } from '../lib/text/values.ts'
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
  /** Plugins after it; each gets the result of the one before. */
  readonly chained?: readonly { readonly type: string; readonly conf: object }[]
  /**
   * What stands for `/run/cni/plumb` on this node, where several stand beside each other; the same for all unless
   * given.
   */
  readonly run?: string
  /** The link's name in the pod; eth0 unless given. */
  readonly ifname?: string
  /** CNI_ARGS. */
  readonly args?: string
  /** TRACEPARENT. */
  readonly trace?: string
}

/** Everything that a plugin is started with: argv, environment, standard input. */
export function started(
  { side, type, pod, conf, ifname = 'eth0', args, trace }: Omit<Call, 'node'>,
  command: string,
  containerId: string,
): { argv: string[]; env: Record<string, string>; stdin: Buffer } {
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: containerId,
    CNI_NETNS: pod,
    CNI_IFNAME: ifname,
    CNI_PATH: side.dir,
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
    ...(args !== undefined && { CNI_ARGS: args }),
    ...(trace !== undefined && { TRACEPARENT: trace }),
  }
  return { argv: [`${side.dir}/${type}`], env, stdin: Buffer.from(JSON.stringify(conf)) }
}

/**
 * Calls and waits: the plugin, and those chained to it, as a runtime calls a list; the time of all. Throws Error with
 * what the plugin said when it failed: a call that fails is never measured.
 */
export function call(one: Call, command: string, containerId: string): Sample {
  return calls(one, command, containerId).reduce((total, { ms, cpuMs }) => ({
    ms: total.ms + ms,
    cpuMs: total.cpuMs + cpuMs,
  }))
}

/** The same, with the time of each: for DEL the last plugin comes first. */
export function calls(one: Call, command: string, containerId: string): Sample[] {
  if (one.run) lead(one.run)
  const step = (part: Pick<Call, 'type' | 'conf'>): Timed => {
    const { argv, env, stdin } = started({ ...one, ...part }, command, containerId)
    return inside(one.node, () => timed(argv, env, stdin))
  }
  const key = JSON.stringify([one.node, containerId])
  const parts = [one, ...(one.chained ?? [])]
  const given = (part: Pick<Call, 'type' | 'conf'>, result: string | undefined) =>
    part === one || !result ? part : { type: part.type, conf: { ...part.conf, prevResult: JSON.parse(result) } }
  const samples: Sample[] = []
  let last = command === 'ADD' ? undefined : results.get(key)
  for (const part of command === 'ADD' ? parts : parts.toReversed()) {
    const done = step(given(part, last))
    samples.push({ ms: done.ms, cpuMs: done.cpuMs })
    if (command === 'ADD') last = done.stdout
  }
  if (command === 'ADD' && last !== undefined && one.chained) results.set(key, last)
  else results.delete(key)
  return samples
}
// What the last plugin of a list answered, by attachment.
const results = new Map<string, string>()

/** Makes a folder stand for `/run/cni/plumb`. */
export function lead(run: string): void {
  mkdirSync(run, { recursive: true })
  mkdirSync(dirname(RUN), { recursive: true })
  // The folder that parts before this one have left: of their nodes there is none any more.
  if (lstatSync(RUN, { throwIfNoEntry: false })?.isDirectory()) rmSync(RUN, { recursive: true })
  rmSync(`${RUN}.new`, { force: true })
  symlinkSync(run, `${RUN}.new`)
  renameSync(`${RUN}.new`, RUN)
}
const RUN = '/run/cni/plumb'

/** ADD, then DEL of the same attachment. */
export function addAndDel(one: Call, containerId: string): readonly [Sample, Sample] {
  return [call(one, 'ADD', containerId), call(one, 'DEL', containerId)]
}

/** What a program took, and what it said. */
interface Timed extends Sample {
  readonly stdout: string
}

/**
 * Starts a program and waits: time as the caller sees it, CPU as the kernel counted it. Throws Error when its status is
 * not 0.
 */
export function timed(argv: readonly string[], env: Readonly<Record<string, string>>, stdin: Buffer): Timed {
  const begin = performance.now()
  const child = Bun.spawnSync([...argv], { env: { ...env }, stdin, stdout: 'pipe', stderr: 'pipe', cwd: '/' })
  const ms = performance.now() - begin
  if (!child.success) throw new Error(`${argv.join(' ')} ${env['CNI_COMMAND']} failed: ${child.stdout}${child.stderr}`)
  return { ms, cpuMs: Number(child.resourceUsage.cpuTime.total) / 1000, stdout: child.stdout.toString() }
}
