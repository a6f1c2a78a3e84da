import { join } from 'node:path'
import { inside } from '../../../../lib/os/netns.ts'
import { parse } from '../../../../lib/text/values.ts'
import type { Namespace, Row } from '../../../support/harness.ts'

const DIST = join(import.meta.dir, '../../../../dist')
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin'

/** What one plugin answered, and how long it took in milliseconds. */
export interface Told {
  readonly ok: boolean
  readonly ms: number
  readonly result: Row
  readonly error: { readonly code: number; readonly msg: string; readonly details: string }
}
/** Who a call is for. An empty `netns` is what a runtime sends that has forgotten it. */
export interface For {
  readonly id: string
  readonly netns: string
  readonly ifname: string
}

/**
 * Calls a plugin of dist/ on a node as a runtime does, without a program in between: what is measured is the plugin.
 */
export async function call(
  node: Namespace,
  command: 'ADD' | 'DEL',
  conf: Row & { readonly type: string },
  { id, netns, ifname }: For,
): Promise<Told> {
  const env = { PATH, CNI_COMMAND: command, CNI_CONTAINERID: id, CNI_NETNS: netns, CNI_IFNAME: ifname, CNI_PATH: DIST }
  const began = performance.now()
  const child = inside(parse.netns(node.path), () =>
    Bun.spawn([join(DIST, conf.type)], {
      env,
      stdin: new Blob([JSON.stringify(conf)]),
      stdout: 'pipe',
      stderr: 'pipe',
      cwd: '/',
    }),
  )
  const [stdout, stderr, status] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  const ms = performance.now() - began
  const ok = status === 0
  // What is no JSON is no answer of a plugin: a crash, say.
  const said = stdout.startsWith('{')
    ? JSON.parse(stdout)
    : { code: -1, msg: `status ${status}: ${stdout}`, details: stderr }
  return { ok, ms, result: ok ? said : {}, error: ok ? { code: 0, msg: '', details: '' } : { details: '', ...said } }
}

/** The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for. */
export async function quiet(node: Namespace): Promise<void> {
  await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
}

/** Makes or removes a named network namespace. */
export async function netns(verb: 'add' | 'delete', path: string): Promise<void> {
  const child = Bun.spawn(['ip', 'netns', verb, path.slice(path.lastIndexOf('/') + 1)], {
    stdout: 'ignore',
    stderr: 'pipe',
  })
  const [said, status] = await Promise.all([child.stderr.text(), child.exited])
  if (status !== 0) throw new Error(`ip netns ${verb} ${path}: ${said}`)
}

/** So many workers, each with the next piece of work as soon as it is done with one. */
export async function crowd<T>(width: number, work: readonly T[], deal: (one: T) => Promise<void>): Promise<void> {
  const left = [...work]
  const worker = async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await deal(one)
  }
  await Promise.all(Array.from({ length: width }, worker))
}

/** Middle, 90 %, 99 % and longest of times in milliseconds. */
export function spread(times: readonly number[]): {
  readonly n: number
  readonly median: number
  readonly p90: number
  readonly p99: number
  readonly longest: number
} {
  const sorted = [...times].sort((a, b) => a - b)
  const at = (part: number) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0)
  return { n: sorted.length, median: at(0.5), p90: at(0.9), p99: at(0.99), longest: at(1) }
}
