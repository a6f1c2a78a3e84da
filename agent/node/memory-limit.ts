// The memory limit of the agent's control group, told before the kernel enforces it: it kills the agent without a word.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { log, warn } from '../../lib/os/log.ts'
import { readText } from '../../lib/os/reading.ts'
import { listed } from '../cluster/api.ts'
import type { Failures } from '../scheduler/failures.ts'
import { pause } from '../scheduler/pause.ts'

/** A limit, and what counts against it, in bytes. The kernel drops unused pages of files before it kills, so they do not count. */
export interface Memory {
  readonly limit: number
  readonly used: number
}

/** How often the agent looks, in milliseconds: under a limit in the first minute and while lists of the cluster come in, and else. */
const [WHILE_LISTING_MS, LATER_MS] = [200, 5000]
const FIRST_MS = 60_000
/** Above this part of the limit the agent says so, and below the other one it is over. */
const [FULL, WELL] = [0.8, 0.7]
/** From this part of the limit on, a forecast counts. It needs so many objects. */
const [HALF, ENOUGH] = [0.5, 2000]
/** What is proposed is more than what the lists need, because policies and Services are compiled then. In steps of bytes. */
const [SPARE, STEP] = [1.5, 128 * 1024 ** 2]
const MI = 1024 ** 2

interface Hierarchy {
  readonly limit: string
  readonly used: string
  /** The lines of memory.stat with pages of files that are in no use. */
  readonly reclaimable: RegExp
}
// Documentation/admin-guide/cgroup-v2.rst, and cgroup-v1/memory.rst of Linux.
const V2: Hierarchy = { limit: 'memory.max', used: 'memory.current', reclaimable: /^(?:in)?active_file (\d+)$/gm }
const V1: Hierarchy = {
  limit: 'memory.limit_in_bytes',
  used: 'memory.usage_in_bytes',
  reclaimable: /^total_(?:in)?active_file (\d+)$/gm,
}

/**
 * The group with the least room, of this process's own and those above it. Undefined when none has a limit. `root` is
 * where /proc and /sys are. Throws Error when /proc cannot be read.
 */
export function memoryNow(root = '/'): Memory | undefined {
  const groups = readFileSync(join(root, 'proc/self/cgroup'), 'utf8')
  const mounts = readFileSync(join(root, 'proc/self/mountinfo'), 'utf8')
  const found = [
    ...levels(root, groups, mounts, /^0::(.*)$/m, /^\d+ \d+ \S+ (\S+) (\S+) .* - cgroup2 /, V2),
    ...levels(
      root,
      groups,
      mounts,
      /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/m,
      /^\d+ \d+ \S+ (\S+) (\S+) .* - cgroup \S+ .*\bmemory\b/,
      V1,
    ),
  ]
  return found.sort((a, b) => a.limit - a.used - (b.limit - b.used))[0]
}

// A container may see the tree of the host, or its own group as the root. What is mounted begins at `top`.
function levels(root: string, groups: string, mounts: string, own: RegExp, mounted: RegExp, kind: Hierarchy): Memory[] {
  const [, path] = own.exec(groups) ?? []
  const [, top, at] = mounts.split('\n').flatMap((line) => mounted.exec(line) ?? [])
  if (path === undefined || top === undefined || at === undefined) return []
  const below = top === '/' ? path : path.startsWith(top) ? path.slice(top.length) : '/'
  const names = below.split('/').filter((name) => name !== '' && name !== '..')
  return Array.from({ length: names.length + 1 }, (_, depth) => names.slice(0, depth)).flatMap((some) => {
    const dir = join(root, at, ...some)
    const [limit, used] = [kind.limit, kind.used].map((file) => Number(readText(`${dir}/${file}`)?.trim() ?? 'max'))
    // "max", or a number of version 1 that no machine has.
    if (limit === undefined || used === undefined || !(limit < Number.MAX_SAFE_INTEGER) || Number.isNaN(used)) return []
    const free = [...(readText(`${dir}/memory.stat`) ?? '').matchAll(kind.reclaimable)]
    return [{ limit, used: used - free.reduce((sum, [, bytes]) => sum + Number(bytes), 0) }]
  })
}

/** What is known of the lists that come in: objects that were read, and those that the server still has. */
export interface Lists {
  readonly read: number
  readonly left: number
}

/**
 * Judges what it is shown, one look after another. `isPod` decides which command raises the limit. The sentence stays
 * the same while the proposal does.
 */
export class MemoryJudge {
  readonly #isPod: boolean
  #start: { readonly used: number; readonly read: number } | undefined
  #said: { readonly proposal: number; readonly text: string; readonly isForeseen: boolean } | undefined

  constructor(isPod: boolean) {
    this.#isPod = isPod
  }

  /** Why the limit is too small, with the command that raises it. Undefined while there is room. */
  look({ limit, used }: Memory, lists: Lists): string | undefined {
    if (lists.left === 0) this.#start = undefined
    else this.#start ??= { used, read: lists.read }
    const more = this.#start && lists.read - this.#start.read >= ENOUGH ? this.#perObject(used, lists) * lists.left : 0
    const isFull = used > limit * (this.#said ? WELL : FULL)
    const isForeseen = used > limit * HALF && used + more > limit
    // What was foreseen is over when all objects are there.
    const isStillForeseen = this.#said?.isForeseen === true && lists.left > 0
    if (!isFull && !isForeseen && !isStillForeseen) {
      this.#said = undefined
      return undefined
    }
    const proposal = Math.max(Math.ceil(((used + more) * SPARE) / STEP) * STEP, this.#said?.proposal ?? 0)
    if (this.#said?.proposal === proposal) return this.#said.text
    const room = `The agent's memory limit is ${mi(limit)}, and ${mi(used)} are in use`
    const atLeast = more > 0 ? `, which need at least ${mi(used + more)}` : ''
    const need =
      lists.left > 0
        ? `after ${lists.read} of ${lists.read + lists.left} objects of the cluster${atLeast}`
        : 'by the objects of the cluster'
    const text = `${room} ${need}: at the limit the kernel kills the agent; run ${this.#command(proposal)}`
    this.#said = { proposal, text, isForeseen }
    return text
  }

  #perObject(used: number, { read }: Lists): number {
    const from = this.#start ?? { used, read }
    return Math.max(0, used - from.used) / Math.max(1, read - from.read)
  }

  #command(bytes: number): string {
    const size = Math.round(bytes / MI)
    return this.#isPod
      ? `helm upgrade plumb conf/chart --namespace plumb --reset-then-reuse-values --set resources.limits.memory=${size}Mi`
      : `systemctl set-property plumb-agent.service MemoryMax=${size}M`
  }
}

function mi(bytes: number): string {
  return `${Math.round(bytes / MI)}Mi`
}

/** Looks at the limit until the signal, and reports to status and log while it is too small. */
export async function watchMemory(failures: Failures, signal: AbortSignal): Promise<void> {
  const judge = new MemoryJudge(process.env['KUBERNETES_SERVICE_HOST'] !== undefined)
  let last: string | undefined
  const begun = performance.now()
  while (!signal.aborted) {
    const lists = listed()
    let memory: Memory | undefined
    try {
      memory = memoryNow()
    } catch (cause) {
      log(`agent: cannot tell its memory limit: ${(cause as Error).message}`)
      return
    }
    const text = memory && judge.look(memory, lists)
    if (text !== undefined && text !== last) warn(`agent: ${text}`)
    last = text
    failures.report('memory', text === undefined ? [] : [{ scope: 'part', text }])
    const isUrgent = memory !== undefined && (lists.read > 0 || performance.now() - begun < FIRST_MS)
    await pause(isUrgent ? WHILE_LISTING_MS : LATER_MS, signal)
  }
}
