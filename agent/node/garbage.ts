import { dlopen, FFIType } from 'bun:ffi'
import { edenGC } from 'bun:jsc'
import { existsSync, readFileSync, statSync } from 'node:fs'

// Work on fewer objects leaves too little garbage to be worth the time.
const MANY = 1000

/**
 * Collects garbage after work on `count` objects, when they are many. Without this the heap first grows by tens of
 * megabytes. Takes milliseconds.
 */
export function tidy(count: number): void {
  if (count < MANY) return
  edenGC()
  slim()
}

/**
 * Returns memory to the kernel after a step that changed many (`count`) objects. Takes tens of milliseconds.
 */
export function giveBack(count: number): void {
  if (count < MANY) return
  Bun.gc(true)
  slim()
}

// prctl(2) and madvise(2) of Linux.
const PR_SET_THP_DISABLE = 41
const MADV_DONTNEED = 4
const SMAPS = '/proc/self/smaps'
const { i32, u64 } = FFIType
const { prctl, madvise } = dlopen('libc.so.6', {
  prctl: { args: [i32, u64, u64, u64, u64], returns: i32 },
  madvise: { args: [u64, u64, i32], returns: i32 },
}).symbols

let own: readonly (readonly [at: bigint, size: bigint])[] | undefined

/**
 * Releases the pages of plumb's own code and constants that this process has mapped. Most served something that is
 * over, such as the start. Each page that is needed again costs a page fault. From then on the kernel maps small pages:
 * with huge ones a long-lived process looks 40 MB larger. Child processes inherit this setting.
 */
export function slim(): void {
  if (own === undefined) {
    prctl(PR_SET_THP_DISABLE, 1n, 0n, 0n, 0n)
    own = unwritten()
  }
  for (const [at, size] of own) madvise(at, size, MADV_DONTNEED)
}

// The address ranges of plumb's program file in this process, without modified pages. Empty on a kernel without smaps
// (CONFIG_PROC_PAGE_MONITOR).
function unwritten(): [at: bigint, size: bigint][] {
  if (!existsSync(SMAPS)) return []
  const exe = statSync('/proc/self/exe').ino
  // Each entry is a line with address, perms, offset, dev, inode and pathname, then a line per count
  // (proc_pid_smaps(5)).
  const all = readFileSync(SMAPS, 'utf8').matchAll(/^(\w+)-(\w+) r-.p \w+ \S+ (\d+) .*\n(?:\w+: .*\n)+/gm)
  // Skips mappings with anonymous pages: they were written before they became read-only, and no file has their content.
  const ours = [...all].filter(([text, , , inode]) => Number(inode) === exe && /^Anonymous: +0 kB$/m.test(text))
  return ours.map(([, from, to]) => [BigInt(`0x${from}`), BigInt(`0x${to}`) - BigInt(`0x${from}`)])
}
