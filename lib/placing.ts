import { ptr } from 'bun:ffi'
import { libc } from './libc.ts'

const [SYS_SCHED_SETAFFINITY, SYS_SCHED_GETAFFINITY, SYS_GETCPU] = process.arch === 'arm64' ? [122n, 123n, 168n] : [203n, 204n, 309n]
// As many CPUs as Linux can have (CONFIG_NR_CPUS), in bytes of a mask.
const MASK_BYTES = 1024

/**
 * Sends a process that was just started to another CPU than this thread's. Whoever starts one waits until it has begun with its program (vfork),
 * and takes its CPU from it when woken; where the kernel then finds no other that is idle, the new one stands in line behind who started it.
 * It may run wherever it might before. Where there is no other CPU, or the kernel will not, it stays.
 */
export function sendAway(pid: number): void {
  const call = (number: bigint, ...args: bigint[]) => Number(libc().syscall(number, args[0] ?? 0n, args[1] ?? 0n, args[2] ?? 0n, 0n, 0n))
  const [allowed, here] = [new Uint8Array(MASK_BYTES), new Uint32Array(1)]
  const size = call(SYS_SCHED_GETAFFINITY, BigInt(pid), BigInt(MASK_BYTES), BigInt(ptr(allowed)))
  if (size <= 0 || call(SYS_GETCPU, BigInt(ptr(here))) !== 0) return
  const others = allowed.slice()
  const [cpu = 0] = here
  others[cpu >> 3] = (others[cpu >> 3] as number) & ~(1 << (cpu & 7))
  const isMoved = call(SYS_SCHED_SETAFFINITY, BigInt(pid), BigInt(size), BigInt(ptr(others))) === 0
  if (isMoved) call(SYS_SCHED_SETAFFINITY, BigInt(pid), BigInt(size), BigInt(ptr(allowed)))
}
