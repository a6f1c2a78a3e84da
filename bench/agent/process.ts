import { dlopen, FFIType, ptr } from 'bun:ffi'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'

/** What a process has used since its start. */
export interface Usage {
  /** CPU time of its own, in milliseconds. */
  readonly own: number
  /** CPU time of all that it started, in milliseconds: those that have ended, and those that still run. */
  readonly children: number
  /** The part of it of those that have ended: of an agent its tools, without its monitors. */
  readonly ended: number
  /** Memory that it holds, and the most that it ever held, in MB (VmRSS, VmHWM). */
  readonly rss: number
  readonly peak: number
}

// proc(5): hundredths of a second, whatever the kernel's own tick is.
const TICK_MS = 10

/** What a process has used, by proc(5). */
export function usage(pid: number): Usage {
  const [own, ended] = times(pid) ?? [0, 0]
  const living = readdirSync('/proc').flatMap((name) =>
    /^\d+$/.test(name) && parentOf(Number(name)) === pid ? (times(Number(name)) ?? []) : [],
  )
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const mb = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) / 1000
  return { own, children: ended + living.reduce((sum, ms) => sum + ms, 0), ended, rss: mb('VmRSS'), peak: mb('VmHWM') }
}

/** Counts processes by the kernel's own accounting (acct(2)). */
export interface Accounting {
  /** How many that this process started have ended so far; undefined where the kernel keeps no account. */
  endedOf(pid: number): number | undefined
  stop(): void
}

// struct acct_v3 of linux/acct.h.
const [RECORD, PARENT] = [64, 20]

/** Has the kernel write down every process of this pid namespace that ends. */
export function account(file: string): Accounting {
  const { acct } = dlopen('libc.so.6', { acct: { args: [FFIType.ptr], returns: FFIType.i32 } }).symbols
  writeFileSync(file, '')
  const works = acct(ptr(Buffer.from(`${file}\0`))) === 0
  return {
    endedOf(pid) {
      if (!works) return undefined
      const records = readFileSync(file)
      return Array.from({ length: Math.floor(records.length / RECORD) }, (_, i) =>
        records.readUInt32LE(i * RECORD + PARENT),
      ).filter((parent) => parent === pid).length
    },
    stop: () => void acct(null),
  }
}

function fields(pid: number): string[] | undefined {
  const file = `/proc/${pid}/stat`
  try {
    return existsSync(file) ? readFileSync(file, 'utf8').split(') ').at(-1)?.split(' ') : undefined
  } catch {
    // It has ended meanwhile.
    return undefined
  }
}

function parentOf(pid: number): number {
  return Number(fields(pid)?.[1])
}

function times(pid: number): [own: number, ended: number] | undefined {
  const all = fields(pid)
  const sum = (a: number, b: number) => (Number(all?.[a]) + Number(all?.[b])) * TICK_MS
  return all && [sum(11, 12), sum(13, 14)]
}
