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
/** The index of ru_minflt in struct rusage, in 64-bit words: two times (two words each) and four counts come before it. */
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
 * Releases the pages of plumb's own code and constants that this process has mapped. Most served something that is over, such as the
 * start. Each page that is needed again costs a page fault. From then on the kernel maps small pages. Huge pages start a plugin sooner,
 * but a long-lived process looks 40 MB larger with them. Child processes inherit this setting.
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
  // Each entry is a line with address, perms, offset, dev, inode and pathname, then a line per count (proc_pid_smaps(5)).
  const all = readFileSync(SMAPS, 'utf8').matchAll(/^(\w+)-(\w+) r-.p \w+ \S+ (\d+) .*\n(?:\w+: .*\n)+/gm)
  // Skips mappings with anonymous pages: they were written before they became read-only, and no file has their content.
  const ours = [...all].filter(([text, , , inode]) => Number(inode) === exe && /^Anonymous: +0 kB$/m.test(text))
  return ours.map(([, from, to]) => [BigInt(`0x${from}`), BigInt(`0x${to}`) - BigInt(`0x${from}`)])
}

/**
 * Loads a file into huge pages of the page cache. This works only for parts that are not in memory yet, when kernel and file system
 * support it (Linux 5.14, MADV_POPULATE_READ). Does nothing for an unreadable file.
 */
export function fetchHuge(path: string): void {
  let fd: number | undefined
  try {
    fd = openSync(path, 'r')
    const size = statSync(path).size
    // Maps one huge page at a time. All pages together would count as memory of this process.
    for (let at = 0; at < size; at += HUGE_PAGE) {
      const mapped = mmap(0n, HUGE_PAGE, PROT_READ, MAP_PRIVATE, fd, at)
      if (mapped === MAP_FAILED) return
      // The mapping is never read directly, so a file that shrinks meanwhile cannot raise SIGBUS.
      madvise(mapped, HUGE_PAGE, MADV_HUGEPAGE)
      madvise(mapped, HUGE_PAGE, MADV_POPULATE_READ)
      munmap(mapped, HUGE_PAGE)
    }
  } catch {
    // The loading saves only a millisecond. The program that needs the file reports the error.
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** A limit between the page faults of a plugin's VERSION in huge pages (629 to 669 measured) and in small pages (820 to 941). */
export const SMALL_PAGES = 750
const LIMIT_MS = 5000

/**
 * The minor page faults of a plugin's VERSION. They show whether the plugin is in huge or small pages of the page cache. Takes the
 * smaller of two runs, because the first run may read the file from disk. Undefined when the plugin does not run.
 */
export function pageFaults(plugin: string): number | undefined {
  const [one, other] = [faultsOf(plugin), faultsOf(plugin)]
  return one === undefined || other === undefined ? undefined : Math.min(one, other)
}

const HOUR_MS = 3_600_000

/**
 * Checks the pages of a plugin once an hour, until the signal. Calls `say` when the plugin is in small pages, and when it is in large
 * pages again.
 */
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

// Runs the plugin synchronously. So no other child can end meanwhile and add to the count.
function faultsOf(plugin: string): number | undefined {
  const before = childFaults()
  try {
    const { success } = Bun.spawnSync([plugin], { env: { CNI_COMMAND: 'VERSION' }, stdin: 'ignore', stdout: 'ignore', stderr: 'ignore', cwd: '/', timeout: LIMIT_MS })
    return success ? childFaults() - before : undefined
  } catch {
    // The program is missing, or is being written.
    return undefined
  }
}

function childFaults(): number {
  const usage = new BigInt64Array(18)
  getrusage(RUSAGE_CHILDREN, usage)
  return Number(usage[MINOR_FAULTS])
}
