import { isArm, libc, pointerTo } from './door.ts'
import { fs } from './fs.ts'
import { bytes, lastError } from './libc.ts'
import { listFiles } from './reading.ts'

// The tracepoint skb:kfree_skb says why the kernel drops a packet (Linux 5.17). It works without BPF. plumb makes an
// instance of tracefs of its own, so that other users of tracing notice nothing.
const ROOT = '/sys/kernel/tracing'
const INSTANCES = `${ROOT}/instances`
const PREFIX = 'plumb-trace-'
// asm/unistd_64.h and asm-generic/unistd.h; linux/sched.h and linux/mount.h
const [SYS_UNSHARE, SYS_MOUNT] = isArm ? [97n, 40n] : [272n, 165n]
const [CLONE_NEWNS, MS_REC, MS_SLAVE] = [0x20000n, 0x4000n, 0x80000n]
/** The size of the buffer of each processor. A trace is about a few packets. */
const BUFFER_KB = '16'

/** A drop of a packet: the kernel's reason, such as `NETFILTER_DROP`, and the function that dropped it. */
export interface Drop {
  readonly reason: string
  readonly where: string
}
/** Listens to the drops that happen while this thread sends packets. */
export interface DropWatch {
  drops(): Drop[]
  close(): void
}

/**
 * Begins to listen to drops. The kernel handles a packet that a thread sends over a pair of veth links in that thread,
 * so the drops of other packets are filtered out. Removes the instances of processes that have ended. Undefined when the
 * kernel has no such tracepoint, or refuses.
 */
export function watchDrops(): DropWatch | undefined {
  const dir = `${INSTANCES}/${PREFIX}${Math.random().toString(16).slice(2, 10)}`
  let marker: number | undefined
  const close = () => {
    if (marker !== undefined) fs.closeSync(marker)
    remove(dir)
  }
  try {
    if (!fs.existsSync(INSTANCES)) mountInPrivate()
    // The kernel removes no instance of a process that lives, because the process has one of its files open.
    for (const name of listFiles(INSTANCES)) if (name.startsWith(PREFIX)) remove(`${INSTANCES}/${name}`)
    fs.mkdirSync(dir, 0o700)
    marker = fs.openSync(`${dir}/trace_marker`, 'r+')
    write(`${dir}/buffer_size_kb`, BUFFER_KB)
    write(`${dir}/events/skb/kfree_skb/filter`, `common_pid == ${threadOf(dir, marker)}`)
    write(`${dir}/events/skb/kfree_skb/enable`, '1')
  } catch {
    close()
    return undefined
  }
  return { drops: () => dropsIn(fs.readFileSync(`${dir}/trace`)), close }
}

// The number of this thread outside of all containers. The kernel writes it before each line: `plumb-1234  [001] …`.
function threadOf(dir: string, marker: number): number {
  fs.writeAllSync(marker, PREFIX)
  const [, thread] = /-(\d+) +\[\d+\].*tracing_mark_write/.exec(fs.readFileSync(`${dir}/trace`)) ?? []
  return Number(thread)
}

/** Reads the lines of the tracepoint. Pure. */
export function dropsIn(text: string): Drop[] {
  return [...text.matchAll(/ kfree_skb: .*\blocation=(\S+?)(?:\+0x\S+)? reason: (\w+)/g)].map(
    ([, where = '', reason = '']) => ({ where, reason }),
  )
}

// The mount is in a mount namespace of this thread, so that it ends with the process.
function mountInPrivate(): void {
  if (Number(libc().syscall(SYS_UNSHARE, CLONE_NEWNS, 0n, 0n, 0n, 0n)) !== 0)
    throw new Error(`unshare: ${lastError().code}`)
  const [root, target, type] = [bytes('/'), bytes(ROOT), bytes('tracefs')]
  const at = (text: Uint8Array) => BigInt(pointerTo(text))
  const none = at(type)
  const isSlave = Number(libc().syscall(SYS_MOUNT, none, at(root), 0n, MS_REC | MS_SLAVE, 0n)) === 0
  const isMounted = isSlave && Number(libc().syscall(SYS_MOUNT, none, at(target), at(type), 0n, 0n)) === 0
  const { code } = lastError()
  // These writes keep the garbage collector from freeing the texts before this line.
  for (const text of [root, target, type]) text.fill(0)
  if (!isMounted) throw new Error(`mount: ${code}`)
}

function remove(dir: string): void {
  try {
    fs.rmdirSync(dir)
  } catch {
    // It was never made, another process has removed it, or its owner lives.
  }
}

function write(path: string, text: string): void {
  const fd = fs.openSync(path, 'r+')
  try {
    fs.writeAllSync(fd, text)
  } finally {
    fs.closeSync(fd)
  }
}
