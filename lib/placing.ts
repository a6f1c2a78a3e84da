import { ptr } from './ffi.ts'
import { libc } from './libc.ts'

const [SYS_SCHED_SETAFFINITY, SYS_SCHED_GETAFFINITY, SYS_GETCPU] = process.arch === 'arm64' ? [122n, 123n, 168n] : [203n, 204n, 309n]
// As many CPUs as Linux can have (CONFIG_NR_CPUS), in bytes of a mask.
const MASK_BYTES = 1024

/** The CPUs that a process may run on, as the kernel has them, and the one that this thread is on. */
interface Place {
  readonly allowed: Uint8Array
  readonly here: number
}

/**
 * Sends a process that was just started to another CPU than this thread's. Whoever starts one waits until it has begun with its program (vfork),
 * and takes its CPU from it when woken; where the kernel then finds no other that is idle, the new one stands in line behind who started it.
 * It may run wherever it might before. Where there is no other CPU, or the kernel will not, it stays.
 */
export function sendAway(pid: number): void {
  const place = placeOf(pid)
  if (place) among(pid, place, away(place), () => undefined)
}

/** Does what wakes a process that waits, while so many others are at work: it then runs beside this thread, or on this thread's CPU, where that is about to wait (`isLast`) and those have all the rest. */
export function wake<T>(pid: number, busy: number, isLast: boolean, work: () => T): T {
  const place = busy > 0 ? placeOf(pid) : undefined
  if (!place) return work()
  if (!isLast) return among(pid, place, away(place), work)
  if (count(place.allowed) > busy + 1) return work()
  const here = new Uint8Array(place.allowed.length)
  here[place.here >> 3] = 1 << (place.here & 7)
  return among(pid, place, here, work)
}

function among<T>(pid: number, { allowed }: Place, cpus: Uint8Array, work: () => T): T {
  const isMoved = allow(pid, cpus)
  try {
    return work()
  } finally {
    if (isMoved) allow(pid, allowed)
  }
}

function away({ allowed, here }: Place): Uint8Array {
  const others = allowed.slice()
  const at = here >> 3
  others[at] = (others[at] as number) & ~(1 << (here & 7))
  return others
}

function placeOf(pid: number): Place | undefined {
  const [mask, here] = [new Uint8Array(MASK_BYTES), new Uint32Array(1)]
  const size = call(SYS_SCHED_GETAFFINITY, BigInt(pid), BigInt(MASK_BYTES), BigInt(ptr(mask)))
  if (size <= 0 || call(SYS_GETCPU, BigInt(ptr(here)), 0n, 0n) !== 0) return undefined
  return { allowed: mask.subarray(0, size), here: here[0] as number }
}

function allow(pid: number, cpus: Uint8Array): boolean {
  return call(SYS_SCHED_SETAFFINITY, BigInt(pid), BigInt(cpus.length), BigInt(ptr(cpus))) === 0
}

function count(mask: Uint8Array): number {
  let found = 0
  for (const byte of mask) for (let rest = byte; rest > 0; rest &= rest - 1) found++
  return found
}

function call(number: bigint, ...[first, second, third]: [bigint, bigint, bigint]): number {
  return Number(libc().syscall(number, first, second, third, 0n, 0n))
}
