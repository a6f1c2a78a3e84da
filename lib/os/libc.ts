import { errno, libc, pointerTo } from './door.ts'
import { ERRORS } from './errors.ts'

const CLONE_NEWNET = 0x40000000
const [LOCK_SH, LOCK_EX, LOCK_NB] = [1, 2, 4]
const [EINTR, EWOULDBLOCK, EACCES] = [4, 11, 13]
const O_CLOEXEC = 0x80000
const MFD_CLOEXEC = 1
// fcntl(2). The pipe size is the default of /proc/sys/fs/pipe-max-size.
const [F_SETFL, O_NONBLOCK, F_SETPIPE_SZ, PIPE_BYTES] = [4, 0x800, 1031, 1 << 20]
const POLLIN = 1
const SYS_PIDFD_OPEN = 434n
// struct flock of 64-bit machines: two shorts, then start and length.
const [F_OFD_SETLK, F_WRLCK, F_UNLCK, FLOCK_BYTES, FLOCK_START, FLOCK_LENGTH] = [37, 1, 2, 32, 8, 16]

/**
 * Moves this thread and its future child processes into the network namespace of an open file (setns(2)). Throws Error
 * with the errno.
 */
export function setns(fd: number): void {
  must('setns', libc().setns(fd, CLONE_NEWNET))
}

/**
 * Takes the lock of an open file (flock(2)). The lock is exclusive unless `shared`. It ends when the file is closed or
 * the process dies. host-local's `lock` file uses the same kind of lock. Returns false only with `wait: false`, when
 * another process has the lock.
 */
export function flock(fd: number, { shared = false, wait = true } = {}): boolean {
  while (libc().flock(fd, (shared ? LOCK_SH : LOCK_EX) | (wait ? 0 : LOCK_NB)) !== 0) {
    const code = errno()
    if (code === EWOULDBLOCK && !wait) return false
    if (code !== EINTR) throw new Error(`flock: errno ${code}`)
  }
  return true
}

/**
 * Locks one byte of an open file (F_OFD_SETLK, fcntl(2)). The lock belongs to this open(2), so child processes that
 * inherit the file hold it too. Returns false when another open file has the lock. `held: false` unlocks the byte.
 * Throws Error with the errno.
 */
export function lockByte(fd: number, at: bigint, held = true): boolean {
  const bytes = new Uint8Array(FLOCK_BYTES)
  const lock = new DataView(bytes.buffer)
  lock.setInt16(0, held ? F_WRLCK : F_UNLCK, true)
  lock.setBigInt64(FLOCK_START, at, true)
  lock.setBigInt64(FLOCK_LENGTH, 1n, true)
  if (libc().fcntl64(fd, F_OFD_SETLK, bytes) === 0) return true
  const code = errno()
  if (code !== EWOULDBLOCK && code !== EACCES) throw new Error(`fcntl: ${named(code)}`)
  return false
}

/**
 * A started process. It reads the pipe `stdin` to its end. A write to the full pipe fails with EAGAIN. Its output goes
 * to two files in memory, which never block it. The caller closes all three.
 */
export interface Child {
  readonly pid: number
  readonly stdin: number
  readonly stdout: number
  /** -1 when the child shares this process's stderr. */
  readonly stderr: number
}

/**
 * Starts a program in this thread's namespaces (posix_spawn(3)). The program inherits no files except `inherited`. A
 * descriptor of -1 is ignored. Throws Error with the errno.
 */
export function spawn(
  file: string,
  argv: readonly string[],
  env: readonly string[],
  ownStderr: boolean,
  inherited: readonly number[],
): Child {
  const c = libc()
  const opened: number[] = []
  const noted = (fd: number): number => {
    opened.push(fd)
    return fd
  }
  try {
    const stdout = noted(memory())
    const stderr = ownStderr ? -1 : noted(memory())
    const pipe = new Int32Array(2)
    must('pipe2', c.pipe2(pipe, O_CLOEXEC))
    const [input, stdin] = [noted(pipe[0] as number), noted(pipe[1] as number)]
    c.fcntl(stdin, F_SETFL, O_NONBLOCK)
    const actions = new Uint8Array(ACTIONS_BYTES)
    c.posix_spawn_file_actions_init(actions)
    c.posix_spawn_file_actions_adddup2(actions, input, 0)
    c.posix_spawn_file_actions_adddup2(actions, stdout, 1)
    if (!ownStderr) c.posix_spawn_file_actions_adddup2(actions, stderr, 2)
    // dup2 to the same number only removes close-on-exec.
    for (const fd of inherited) if (fd >= 0) c.posix_spawn_file_actions_adddup2(actions, fd, fd)
    const pid = new Int32Array(1)
    const [path, args, vars] = [bytes(file), pointersTo(argv), pointersTo(env)]
    const code = c.posix_spawn(pid, path, actions, null, args.pointers, vars.pointers)
    c.posix_spawn_file_actions_destroy(actions)
    // The pointer arrays hold only addresses. This line keeps the garbage collector from freeing the texts earlier.
    args.texts.length = vars.texts.length = 0
    if (code !== 0) throw new Error(`posix_spawn: ${named(code)}`)
    c.close(input)
    return { pid: pid[0] as number, stdin, stdout, stderr }
  } catch (cause) {
    for (const fd of opened) c.close(fd)
    throw cause
  }
}

/**
 * A second event to wait for, beside the end of a process. `isDone` reads `fd` after poll and says whether it has come.
 */
export interface Sign {
  readonly fd: number
  isDone(): boolean
}

/**
 * Waits for the end of a child or for a sign that its work is done. Returns the exit status, or 128 plus the signal's
 * number when a signal ended the child. Returns 0 for the sign, and undefined when `limitMs` passes first.
 */
export function wait(pid: number, limitMs: number, sign?: Sign): number | undefined {
  const c = libc()
  const fd = Number(c.syscall(SYS_PIDFD_OPEN, BigInt(pid), 0n, 0n, 0n, 0n))
  // Kernels before 5.3 have no pidfd. There the wait has no limit.
  if (fd >= 0) {
    const come = awaited(fd, performance.now() + limitMs, sign)
    c.close(fd)
    if (come !== 'end') return come === 'sign' ? 0 : undefined
  }
  const status = new Int32Array(1)
  while (c.waitpid(pid, status, 0) < 0) if (errno() !== EINTR) throw new Error(`waitpid: errno ${errno()}`)
  const [word = 0] = status
  return word & 0x7f ? 128 + (word & 0x7f) : (word >> 8) & 0xff
}

function awaited(pidfd: number, until: number, sign?: Sign): 'end' | 'sign' | 'limit' {
  // struct pollfd: a descriptor, the requested events, the returned events.
  const polled = new Int32Array(sign ? [pidfd, POLLIN, sign.fd, POLLIN] : [pidfd, POLLIN])
  for (;;) {
    const ready = libc().poll(polled, BigInt(polled.length / 2), Math.max(0, Math.ceil(until - performance.now())))
    if (ready === 0) return 'limit'
    if (ready < 0 && errno() !== EINTR) throw new Error(`poll: ${named(errno())}`)
    // The returned events are the upper half of the second number.
    if (ready > 0 && (polled[1] as number) >>> 16 !== 0) return 'end'
    if (ready > 0 && sign?.isDone()) return 'sign'
  }
}

// sizeof(posix_spawn_file_actions_t) in glibc is 80 on 64-bit machines.
const ACTIONS_BYTES = 128

function named(code: number): string {
  return ERRORS[code]?.[0] ?? `errno ${code}`
}

function must(call: string, status: number): void {
  if (status !== 0) throw new Error(`${call}: ${named(errno())}`)
}

/**
 * A file in memory that the caller closes. A tool that writes to it never blocks, and no reader wakes up for each
 * write. `text` is the initial content, which a tool reads from the beginning. Throws Error with the errno.
 */
export function memory(text = ''): number {
  const fd = libc().memfd_create(bytes('plumb'), MFD_CLOEXEC)
  const content = bytes(text)
  if (fd < 0 || (text !== '' && Number(libc().pwrite(fd, content, BigInt(content.length - 1), 0n)) < 0))
    throw new Error(`memfd_create: ${named(errno())}`)
  return fd
}

/**
 * A pipe with a buffer of 1 MB where the kernel allows that. A tool that reports ten thousand changes at once then does
 * not block. The caller closes both ends. Throws Error with the errno.
 */
export function pipe(): { readonly read: number; readonly write: number } {
  const ends = new Int32Array(2)
  must('pipe2', libc().pipe2(ends, O_CLOEXEC))
  const [read = -1, write = -1] = ends
  libc().fcntl(write, F_SETPIPE_SZ, PIPE_BYTES)
  return { read, write }
}

/**
 * The error of the last call. `errno` is negative as in Node's errors. `code` is the name, or `errno N` without one.
 */
export function lastError(): { readonly errno: number; readonly code: string; readonly meaning: string } {
  const number = errno()
  return { errno: -number, code: named(number), meaning: ERRORS[number]?.[1] ?? 'unknown error' }
}

/** A text as a C string, with its null byte. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`)
}

/**
 * The addresses of C strings, ending with a null pointer (execve(2)). `texts` is returned too, because the texts must
 * live as long as their addresses are used.
 */
export function pointersTo(texts: readonly string[]): { pointers: BigUint64Array; texts: Uint8Array[] } {
  const kept = texts.map(bytes)
  return { pointers: new BigUint64Array([...kept.map((text) => BigInt(pointerTo(text))), 0n]), texts: kept }
}
