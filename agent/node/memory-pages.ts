import { dlopen, FFIType } from 'bun:ffi'
import { closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs'

// prctl(2) and madvise(2) of Linux.
const PR_SET_THP_DISABLE = 41
const [MADV_DONTNEED, MADV_HUGEPAGE, MADV_POPULATE_READ] = [4, 14, 22]
const [PROT_READ, MAP_PRIVATE] = [1, 2]
const MAP_FAILED = 0xffff_ffff_ffff_ffffn
const HUGE_PAGE = 2 << 20
const SMAPS = '/proc/self/smaps'
const RUSAGE_CHILDREN = -1
/** Where ru_minflt is in struct rusage, in words of 64 bits: after two times and four counts. */
const MINOR_FAULTS = 8
const { i32, u64, i64 } = FFIType
const { prctl, mmap, munmap, madvise, getrusage } = dlopen('libc.so.6', {
  prctl: { args: [i32, u64, u64, u64, u64], returns: i32 },
  mmap: { args: [u64, u64, i32, i32, i32, i64], returns: u64 },
  munmap: { args: [u64, u64], returns: i32 },
  madvise: { args: [u64, u64, i32], returns: i32 },
  getrusage: { args: [i32, FFIType.ptr], returns: i32 },
}).symbols

let own: readonly (readonly [at: bigint, size: bigint])[] | undefined

/**
 * Gives back the pages of plumb's own code and constants that this process has mapped, most of them for something that is over, such as its start; what it
 * needs again costs a page fault. From then on the kernel maps them in small pieces: huge pages make a plugin start sooner, and a process that stays look
 * 40 MB larger. Children inherit that.
 */
export function slim(): void {
  if (own === undefined) {
    prctl(PR_SET_THP_DISABLE, 1n, 0n, 0n, 0n)
    own = unwritten()
  }
  for (const [at, size] of own) madvise(at, size, MADV_DONTNEED)
}

// Where this process has its own program as it is in the file; nowhere, on a kernel that does not tell (CONFIG_PROC_PAGE_MONITOR).
function unwritten(): [at: bigint, size: bigint][] {
  if (!existsSync(SMAPS)) return []
  const exe = statSync('/proc/self/exe').ino
  // address perms offset dev inode pathname, then a line for each count (proc_pid_smaps(5)).
  const all = readFileSync(SMAPS, 'utf8').matchAll(/^(\w+)-(\w+) r-.p \w+ \S+ (\d+) .*\n(?:\w+: .*\n)+/gm)
  // What was written before it was closed to writing is nowhere else.
  const ours = [...all].filter(([text, , , inode]) => Number(inode) === exe && /^Anonymous: +0 kB$/m.test(text))
  return ours.map(([, from, to]) => [BigInt(`0x${from}`), BigInt(`0x${to}`) - BigInt(`0x${from}`)])
}

/** Has the kernel read a file into huge pages, where none of it is in memory yet and kernel and file system can (Linux 5.14, MADV_POPULATE_READ). Does nothing for a file that cannot be read. */
export function fetchHuge(path: string): void {
  let fd: number | undefined
  try {
    fd = openSync(path, 'r')
    const size = statSync(path).size
    // One after the other: all of them at once would count as memory of this process.
    for (let at = 0; at < size; at += HUGE_PAGE) {
      const mapped = mmap(0n, HUGE_PAGE, PROT_READ, MAP_PRIVATE, fd, at)
      if (mapped === MAP_FAILED) return
      // What is not touched cannot raise SIGBUS, should somebody shorten the file.
      madvise(mapped, HUGE_PAGE, MADV_HUGEPAGE)
      madvise(mapped, HUGE_PAGE, MADV_POPULATE_READ)
      munmap(mapped, HUGE_PAGE)
    }
  } catch {
    // It is a matter of a millisecond: whoever needs the file says what is wrong with it.
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** More page faults than a plugin's VERSION takes in huge pages (629 to 669 measured), and less than in small ones (820 to 941). */
export const SMALL_PAGES = 750
const LIMIT_MS = 5000

/** Minor page faults of a plugin's VERSION, which tell how it lies in the page cache: the least of two, for the first may have to read the file. Undefined where it does not run. */
export function pageFaults(plugin: string): number | undefined {
  const [one, other] = [faultsOf(plugin), faultsOf(plugin)]
  return one === undefined || other === undefined ? undefined : Math.min(one, other)
}

const HOUR_MS = 3_600_000

/** Looks once an hour at how a plugin lies in the page cache, and says when that is in small pages, or in large ones again; until the signal. */
export function watchPages(plugin: string, say: (text: string) => void, signal: AbortSignal, everyMs = HOUR_MS): void {
  let wasSmall = false
  const look = () => {
    const faults = pageFaults(plugin)
    if (faults === undefined || faults > SMALL_PAGES === wasSmall) return
    wasSmall = !wasSmall
    const state = wasSmall ? 'lie in small pages of memory, and each call takes more CPU; plumb install --rewrite writes them anew' : 'lie in large pages of memory again'
    say(`agent: the plugins ${state}: ${plugin} starts with ${faults} page faults`)
  }
  const timer = setInterval(look, everyMs)
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
}

// Nobody else waits for a child meanwhile: this one is waited for without leaving.
function faultsOf(plugin: string): number | undefined {
  const before = childFaults()
  try {
    const { success } = Bun.spawnSync([plugin], { env: { CNI_COMMAND: 'VERSION' }, stdin: 'ignore', stdout: 'ignore', stderr: 'ignore', cwd: '/', timeout: LIMIT_MS })
    return success ? childFaults() - before : undefined
  } catch {
    // There is no such program, or it is being written.
    return undefined
  }
}

function childFaults(): number {
  const usage = new BigInt64Array(18)
  getrusage(RUSAGE_CHILDREN, usage)
  return Number(usage[MINOR_FAULTS])
}
