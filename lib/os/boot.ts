import { fs } from './fs.ts'

/**
 * The time of the node's boot in nanoseconds since 1970, by today's clock (proc_stat(5)). When somebody sets the clock,
 * this time changes with it. A file that is older can still be from this boot: it was written before the clock was set.
 */
export function bootTimeNs(): bigint {
  const [, seconds] = /^btime (\d+)$/m.exec(fs.readFileSync('/proc/stat')) ?? []
  if (seconds === undefined) throw new Error('Cannot read the time of the boot: /proc/stat has no line btime')
  return BigInt(seconds) * 1_000_000_000n
}
