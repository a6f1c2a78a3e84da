// The door to the machine: what a program's engine gives it of its process and of libc. This file is the door of Bun,
// which runs the agent, the commands and the tests. The plugins run on the small engine: their build takes
// door-engine.ts instead of this file.
import { dlopen, FFIType, type Pointer, ptr, read } from 'bun:ffi'
import { CniError, CODE } from '../text/errors.ts'

/** The variables of the environment. */
export const env: Readonly<Record<string, string | undefined>> = process.env
/** The name by which this program was called: argv[0]. */
export function calledAs(): string {
  return process.argv0
}

/** The arguments after the program's name. */
export function args(): readonly string[] {
  return process.argv.slice(2)
}

/** The id of this process. */
export function pid(): number {
  return process.pid
}

/** Whether the machine is arm64. */
export const isArm: boolean = process.arch === 'arm64'

/** The path of this executable. */
export function executable(): string {
  return process.execPath
}

/** Ends the process at once. */
export function exit(status: number): never {
  process.exit(status)
}

/** Stops this thread for some milliseconds. */
export function sleep(ms: number): void {
  Bun.sleepSync(ms)
}

/** The address of an array's bytes. It is valid as long as the array is alive. */
export function pointerTo(bytes: NodeJS.TypedArray): number {
  return ptr(bytes)
}

const { i32, u64, i64, ptr: pointer } = FFIType
const SIGNATURES = {
  setns: { args: [i32, i32], returns: i32 },
  flock: { args: [i32, i32], returns: i32 },
  pipe2: { args: [pointer, i32], returns: i32 },
  fcntl: { args: [i32, i32, i32], returns: i32 },
  // The same call as fcntl, for commands that take a struct.
  fcntl64: { args: [i32, i32, pointer], returns: i32 },
  close: { args: [i32], returns: i32 },
  socket: { args: [i32, i32, i32], returns: i32 },
  ioctl: { args: [i32, u64, pointer], returns: i32 },
  bind: { args: [i32, pointer, i32], returns: i32 },
  connect: { args: [i32, pointer, i32], returns: i32 },
  getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u64], returns: i32 },
  memfd_create: { args: [pointer, i32], returns: i32 },
  pwrite: { args: [i32, pointer, u64, i64], returns: i64 },
  posix_spawn: { args: [pointer, pointer, pointer, pointer, pointer, pointer], returns: i32 },
  posix_spawn_file_actions_init: { args: [pointer], returns: i32 },
  posix_spawn_file_actions_adddup2: { args: [pointer, i32, i32], returns: i32 },
  posix_spawn_file_actions_destroy: { args: [pointer], returns: i32 },
  execve: { args: [pointer, pointer, pointer], returns: i32 },
  waitpid: { args: [i32, pointer, i32], returns: i32 },
  kill: { args: [i32, i32], returns: i32 },
  poll: { args: [pointer, u64, i32], returns: i32 },
  usleep: { args: [i32], returns: i32 },
  clock_gettime: { args: [i32, pointer], returns: i32 },
  syscall: { args: [i64, i64, i64, i64, i64, i64], returns: i64 },
  access: { args: [pointer, i32], returns: i32 },
  open: { args: [pointer, i32, i32], returns: i32 },
  read: { args: [i32, pointer, u64], returns: i64 },
  pread: { args: [i32, pointer, u64, i64], returns: i64 },
  write: { args: [i32, pointer, u64], returns: i64 },
  lseek: { args: [i32, i64, i32], returns: i64 },
  ftruncate: { args: [i32, i64], returns: i32 },
  fsync: { args: [i32], returns: i32 },
  statx: { args: [i32, pointer, i32, i32, pointer], returns: i32 },
  getdents64: { args: [i32, pointer, u64], returns: i64 },
  statfs: { args: [pointer, pointer], returns: i32 },
  readlink: { args: [pointer, pointer, u64], returns: i64 },
  mkdir: { args: [pointer, i32], returns: i32 },
  rmdir: { args: [pointer], returns: i32 },
  unlink: { args: [pointer], returns: i32 },
  link: { args: [pointer, pointer], returns: i32 },
  symlink: { args: [pointer, pointer], returns: i32 },
  rename: { args: [pointer, pointer], returns: i32 },
  utimensat: { args: [i32, pointer, pointer, i32], returns: i32 },
  send: { args: [i32, pointer, u64, i32], returns: i64 },
  sendto: { args: [i32, pointer, u64, i32, pointer, i32], returns: i64 },
  recv: { args: [i32, pointer, u64, i32], returns: i64 },
  recvfrom: { args: [i32, pointer, u64, i32, pointer, pointer], returns: i64 },
  __errno_location: { args: [], returns: pointer },
} as const

/** The functions of libc(7) that plumb calls. A 64-bit result may be a number or a bigint. */
export type Libc = Omit<ReturnType<typeof open>, '__errno_location'>
let opened: ReturnType<typeof open> | undefined

/**
 * Opens libc at the first use. Throws CniError 5 when the process may not make memory executable: Bun generates the
 * code of these calls.
 */
export function libc(): Libc {
  opened ??= open()
  return opened
}

/** The number of the error of the last call (errno(3)). */
export function errno(): number {
  libc()
  return read.i32((opened as ReturnType<typeof open>).__errno_location() as Pointer, 0)
}

function open() {
  try {
    return dlopen('libc.so.6', SIGNATURES).symbols
  } catch (cause) {
    const policies = 'without MemoryDenyWriteExecute= in their systemd unit, with execmem in the SELinux policy'
    const wish = `plumb's agent and commands need both: ${policies}, and without ulimit -v (LimitAS=)`
    throw new CniError(
      CODE.io,
      'Cannot call libc: this process may not make memory executable, or has too little address space',
      `${wish}; ${(cause as Error).message}`,
      { cause },
    )
  }
}
